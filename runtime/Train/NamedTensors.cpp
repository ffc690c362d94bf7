//===- NamedTensors.cpp - tensors of other programs by name ---------------===//

#include "runtime/Train/NamedTensors.h"
#include "lib/Support/Npy.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/Train/CheckpointLayout.h"
#include "runtime/Train/StateRanges.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace nsa {

using namespace checkpoint;

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

std::string findDifference(const SafeTensor &saved, const TensorView &tensor) {
  std::string type = safetensorsType(tensor.type);
  if (saved.dtype == type && saved.shape == tensor.shape)
    return "";
  return saved.dtype + "[" + shapeText(saved.shape) + "], the artefact's is " +
         type + "[" + shapeText(tensor.shape) + "]";
}

ParameterDifferences compareParameters(const SafetensorsFile &saved,
                                       const TensorSet &model) {
  ParameterDifferences found;
  std::set<std::string> known;
  for (const TensorView &tensor : weightsOf(model)) {
    known.insert(tensor.name);
    const SafeTensor *source = saved.find(tensor.name);
    if (!source)
      found.missing.push_back(tensor.name);
    else if (std::string text = findDifference(*source, tensor); !text.empty())
      found.different.push_back("'" + tensor.name + "' is " + text);
  }
  for (const SafeTensor &tensor : saved.tensors())
    if (!known.count(tensor.name))
      found.extra.push_back(tensor.name);
  return found;
}

/// The first few of a list.
static std::string listSome(const std::vector<std::string> &items,
                            const char *quote) {
  constexpr size_t most = 8;
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), most); ++i)
    text += (i ? ", " : "") + (quote + items[i] + quote);
  if (items.size() > most)
    text += " and " + std::to_string(items.size() - most) + " more";
  return text;
}

std::string ParameterDifferences::describe() const {
  std::string text;
  auto add = [&](const std::string &part) {
    text += (text.empty() ? "" : "; ") + part;
  };
  if (!missing.empty())
    add("it lacks " + listSome(missing, "'"));
  if (!extra.empty())
    add("the artefact has no " + listSome(extra, "'"));
  if (!different.empty())
    add(listSome(different, ""));
  return text;
}

static Status copyTensor(const SafetensorsFile &file, const SafeTensor &source,
                         const TensorView &tensor, const TensorSet &model) {
  NSA_RETURN_IF_ERROR(file.read(source, tensor.data));
  return model.toDevice(tensor);
}

Status copyParameters(const SafetensorsFile &saved, const TensorSet &model) {
  for (const TensorView &tensor : weightsOf(model)) {
    const SafeTensor *source = saved.find(tensor.name);
    if (!source || !findDifference(*source, tensor).empty())
      continue;
    NSA_RETURN_IF_ERROR(copyTensor(saved, *source, tensor, model));
  }
  return {};
}

Result<bool> hasParametersOf(const std::string &folder,
                             const TensorSet &model) {
  NSA_ASSIGN_OR_RETURN(SafetensorsFile saved,
                       SafetensorsFile::open(folder + "/" + modelFile));
  return compareParameters(saved, model).none();
}

//===----------------------------------------------------------------------===//
// States of the optimizer
//===----------------------------------------------------------------------===//

namespace {

/// The optimizer's states of a checkpoint by parameter, from one file or those
/// of ranks.
class SavedStates {
public:
  static Result<SavedStates> open(const std::string &folder,
                                  const TensorSet &model, bool isSameProgram);

  /// Copies elements of the state of a parameter, such as m.w.
  Status read(const std::string &state, uint64_t first, uint64_t count,
              float *out) const;

  /// What optimizer.safetensors has besides.
  const std::map<std::string, const SafeTensor *> &otherState() const {
    return others;
  }
  Status readOther(const SafeTensor &source, const TensorView &tensor,
                   const TensorSet &model) const {
    return copyTensor(files.front(), source, tensor, model);
  }

private:
  /// Elements of a state from `first` on.
  struct Source {
    uint64_t count;
    /// In this tensor of this file, from `offset` on.
    size_t file;
    const SafeTensor *tensor;
    uint64_t offset;
  };

  Status addWhole(const std::string &path, const TensorSet &model);
  Status addShare(const std::string &path,
                  const Result<std::vector<StateRange>> &known);

  std::vector<SafetensorsFile> files;
  /// By the state's name and the first element.
  std::map<std::string, std::map<uint64_t, Source>> sources;
  std::map<std::string, const SafeTensor *> others;
};

} // namespace

/// The names of the states of a model's optimizer.
static std::set<std::string> stateNames(const TensorSet &model) {
  std::set<std::string> names;
  for (const TensorView &tensor : model.tensors())
    if (!tensor.state.empty())
      names.insert(tensor.state);
  return names;
}

/// Takes in optimizer.safetensors.
Status SavedStates::addWhole(const std::string &path, const TensorSet &model) {
  NSA_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::open(path));
  files.push_back(std::move(opened));
  std::map<std::string, TensorView> known;
  for (const TensorView &tensor : model.tensors())
    if (!tensor.state.empty())
      known.emplace(tensor.name, tensor);
  // Where ranks share the states, the model has none of one parameter.
  for (const TensorView &tensor : tensorsOfRole(model, TensorRole::Parameter))
    for (const std::string &state : stateNames(model))
      known.emplace(state + "." + tensor.name, tensor);
  for (const SafeTensor &tensor : files.back().tensors()) {
    auto whole = known.find(tensor.name);
    if (whole == known.end()) {
      others[tensor.name] = &tensor;
      continue;
    }
    if (std::string text = findDifference(tensor, whole->second); !text.empty())
      return Error{"state '" + tensor.name + "' of '" + path + "' is " + text};
    sources[tensor.name][0] = {tensor.bytes / sizeof(float), 0, &tensor, 0};
  }
  return {};
}

/// Takes in the file of a rank that shared states. Where it does not say whose,
/// as those of older versions, they are the ones that are `known`.
Status SavedStates::addShare(const std::string &path,
                             const Result<std::vector<StateRange>> &known) {
  NSA_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::open(path));
  files.push_back(std::move(opened));
  const SafetensorsFile &file = files.back();
  auto text = file.metadata().find(rangesMember);
  bool isSaid = text != file.metadata().end();
  Result<std::vector<StateRange>> ranges =
      isSaid ? parseStateRanges(text->second) : known;
  if (!ranges)
    return Error{"'" + path + "' " +
                 (isSaid ? "has damaged ranges of states: " : "") +
                 ranges.message()};
  for (const StateRange &range : *ranges) {
    const SafeTensor *tensor = file.find(range.tensor);
    uint64_t elements = tensor ? tensor->bytes / sizeof(float) : 0;
    if (!tensor || tensor->dtype != "F32" || range.offset > elements ||
        range.count > elements - range.offset)
      return Error{"'" + path + "' has no elements " +
                   std::to_string(range.offset) + " to " +
                   std::to_string(range.offset + range.count) + " of '" +
                   range.tensor + "'"};
    sources[range.stateName()][range.first] = {range.count, files.size() - 1,
                                               tensor, range.offset};
  }
  return {};
}

Result<SavedStates> SavedStates::open(const std::string &folder,
                                      const TensorSet &model,
                                      bool isSameProgram) {
  SavedStates states;
  NSA_RETURN_IF_ERROR(states.addWhole(folder + "/" + optimizerFile, model));
  for (int rank = 0;; ++rank) {
    std::string path = folder + "/" + shareFile(rank);
    NSA_ASSIGN_OR_RETURN(bool there, fileExists(path));
    if (!there)
      return std::move(states);
    NSA_RETURN_IF_ERROR(states.addShare(
        path, isSameProgram
                  ? model.stateRanges(rank)
                  : Error{"does not say whose states it has: only the artefact "
                          "that saved it can go on from it"}));
  }
}

Status SavedStates::read(const std::string &state, uint64_t first,
                         uint64_t count, float *out) const {
  auto found = sources.find(state);
  while (found != sources.end() && count > 0) {
    auto source = found->second.upper_bound(first);
    if (source == found->second.begin())
      break;
    --source;
    uint64_t skipped = first - source->first;
    if (skipped >= source->second.count)
      break;
    uint64_t taken = std::min(count, source->second.count - skipped);
    const Source &from = source->second;
    NSA_RETURN_IF_ERROR(files[from.file].read(
        *from.tensor, (from.offset + skipped) * sizeof(float),
        taken * sizeof(float), out));
    first += taken;
    count -= taken;
    out += taken;
  }
  if (count == 0)
    return {};
  return Error{"the checkpoint has no element " + std::to_string(first) +
               " of the state '" + state + "'"};
}

/// Fills the states that a rank keeps: all, or its part.
static Status restoreStates(const SavedStates &saved, const TensorSet &model,
                            int rank) {
  NSA_ASSIGN_OR_RETURN(std::vector<StateRange> ranges, model.stateRanges(rank));
  for (const TensorView &tensor : model.tensors()) {
    // Weights are taken from the model's file.
    if (tensor.state.empty() || tensor.state == training::weightState)
      continue;
    Status status;
    if (model.sharingRanks() == 0)
      status =
          saved.read(tensor.name, 0, tensor.elements(), tensor.as<float>());
    // What is between the ranges is padding, which starts and stays 0.
    else
      std::fill_n(tensor.as<float>(), tensor.elements(), 0.0f);
    for (const StateRange &range : ranges)
      if (status && range.tensor == tensor.name)
        status = saved.read(range.stateName(), range.first, range.count,
                            tensor.as<float>() + range.offset);
    if (status)
      status = model.toDevice(tensor);
    if (!status)
      return status;
  }
  return {};
}

//===----------------------------------------------------------------------===//
// A whole checkpoint
//===----------------------------------------------------------------------===//

/// Copies the state that both have, and reports the rest.
static Result<std::vector<std::string>> restoreState(const SavedStates &saved,
                                                     const TensorSet &model) {
  std::vector<std::string> notes;
  std::set<std::string> used;
  for (const TensorView &tensor : tensorsOfRole(model, TensorRole::State)) {
    if (!tensor.state.empty() || training::isDerivedState(tensor.name))
      continue;
    auto source = saved.otherState().find(tensor.name);
    if (source == saved.otherState().end()) {
      notes.push_back("the checkpoint has no '" + tensor.name +
                      "': it begins anew");
      continue;
    }
    used.insert(tensor.name);
    if (std::string text = findDifference(*source->second, tensor);
        !text.empty())
      return Error{"'" + tensor.name + "' of the checkpoint is " + text};
    NSA_RETURN_IF_ERROR(saved.readOther(*source->second, tensor, model));
  }
  for (const auto &[name, tensor] : saved.otherState())
    if (!used.count(name))
      notes.push_back("'" + name +
                      "' of the checkpoint is dropped: the artefact has none");
  return notes;
}

Result<std::vector<std::string>> restoreByName(const std::string &folder,
                                               const TensorSet &model, int rank,
                                               bool isSameProgram) {
  std::string path = folder + "/" + modelFile;
  NSA_ASSIGN_OR_RETURN(SafetensorsFile saved, SafetensorsFile::open(path));
  if (ParameterDifferences found = compareParameters(saved, model);
      !found.none())
    return Error{
        "cannot resume from '" + folder +
        "': its parameters are not the artefact's: " + found.describe()};
  NSA_RETURN_IF_ERROR(copyParameters(saved, model));
  NSA_ASSIGN_OR_RETURN(SavedStates states,
                       SavedStates::open(folder, model, isSameProgram));
  if (Status status = restoreStates(states, model, rank); !status)
    return Error{"cannot resume from '" + folder + "': " + status.message()};
  return restoreState(states, model);
}

} // namespace nsa
