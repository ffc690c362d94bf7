//===- InitialWeights.cpp - a run that begins with weights ----------------===//

#include "runtime/Train/InitialWeights.h"
#include "lib/Support/Hash.h"
#include "runtime/Train/CheckpointLayout.h"
#include "runtime/Train/NamedTensors.h"

#include <filesystem>

namespace nsa {

using namespace checkpoint;
namespace fs = std::filesystem;

/// Keys of the model that were others where the weights were trained: shapes
/// do not tell.
static Result<std::vector<std::string>>
compareModels(const std::string &folder, int64_t step, const RunConfig &now) {
  NSA_ASSIGN_OR_RETURN(RunConfig then, readCheckpointConfig(folder, step));
  std::vector<std::string> notes;
  for (const ConfigDifference &found : compareConfigs(then, now))
    if (isModelKey(*found.field))
      notes.push_back("warning: the initial weights were trained with " +
                      found.field->path() + " " + found.before +
                      ", it is now " + found.after);
  return notes;
}

/// The file of a checkpoint's weights, verified, or one that was named itself,
/// with its hash.
static Result<InitialWeights> findWeights(const std::string &from,
                                          const RunConfig &config) {
  InitialWeights weights;
  std::error_code code;
  fs::path full = fs::absolute(from, code).lexically_normal();
  if (!code && fs::is_regular_file(full, code)) {
    weights.file = full.string();
    NSA_ASSIGN_OR_RETURN(uint64_t hash, hashFile(weights.file));
    weights.hash = hash;
    return weights;
  }
  NSA_ASSIGN_OR_RETURN(FoundCheckpoint checkpoint,
                       findCheckpoint(from, config.train.keepCheckpoints));
  weights.notes = checkpoint.warnings;
  const std::string &folder = checkpoint.path;
  weights.file = folder + "/" + modelFile;
  NSA_ASSIGN_OR_RETURN(uint64_t hash, savedHash(folder, modelFile));
  weights.hash = hash;
  if (!checkpoint.opened)
    NSA_RETURN_IF_ERROR(checkHash(weights.file, weights.hash));
  NSA_ASSIGN_OR_RETURN(TrainState state, readTrainState(folder));
  weights.tokenizerHash = state.tokenizerHash;
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> found,
                       compareModels(folder, state.step, config));
  weights.notes.insert(weights.notes.end(), found.begin(), found.end());
  return weights;
}

/// What is not the same in the file and the model: an error, or notes.
static Status checkParameters(const SafetensorsFile &saved, const Model &model,
                              bool partial, std::vector<std::string> &notes) {
  ParameterDifferences found = compareParameters(saved, model);
  if (found.none())
    return {};
  if (!partial && found.different.empty())
    return Error{found.describe() +
                 " (--init-partial takes what both have, and leaves the rest)"};
  if (!partial || !found.different.empty())
    return Error{found.describe()};
  for (const std::string &name : found.missing)
    notes.push_back("the initial weights have no '" + name +
                    "', it keeps its initial value");
  for (const std::string &name : found.extra)
    notes.push_back("'" + name +
                    "' of the initial weights is not used: the artefact has "
                    "none");
  size_t all = weightsOf(model).size();
  if (found.missing.size() == all)
    return Error{"it has none of the " + std::to_string(all) +
                 " parameters of the artefact"};
  return {};
}

Result<InitialWeights> findInitialWeights(const std::string &from,
                                          const RunConfig &config,
                                          const Tokenizer *tokenizer) {
  Result<InitialWeights> weights = findWeights(from, config);
  bool isKnown =
      weights && weights->tokenizerHash && tokenizer && tokenizer->hash();
  if (isKnown &&
      !tokenizer->hasIdsOf(
          (fs::path(weights->file).parent_path() / tokenizerFile).string(),
          weights->tokenizerHash))
    return Error{"cannot begin with the weights of '" + weights->file +
                 "': their tokens were made by the tokenizer " +
                 toHex(weights->tokenizerHash) + ", those of the data by " +
                 toHex(tokenizer->hash())};
  return weights;
}

Result<InitialWeights> loadInitialWeights(const std::string &from,
                                          const Model &model,
                                          const RunConfig &config, bool partial,
                                          const Tokenizer *tokenizer) {
  NSA_ASSIGN_OR_RETURN(InitialWeights weights,
                       findInitialWeights(from, config, tokenizer));
  NSA_ASSIGN_OR_RETURN(SafetensorsFile saved,
                       SafetensorsFile::open(weights.file));
  weights.notes.insert(weights.notes.begin(), "initial weights from " +
                                                  weights.file + " " +
                                                  toHex(weights.hash));
  NSA_ASSIGN_OR_RETURN(std::string found, saved.findNonFinite());
  Status status;
  if (!found.empty())
    status = Error{"it has a value that is not finite: " + found};
  if (status)
    status = checkParameters(saved, model, partial, weights.notes);
  if (!status)
    return Error{"cannot begin with the weights of '" + weights.file +
                 "': " + status.message()};
  if (status = copyParameters(saved, model); !status)
    return Error{status.message()};
  return weights;
}

} // namespace nsa
