//===- GeneratorTensors.cpp - the entries and tensors of generation -------===//

#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/Generate/Generator.h"

#include <charconv>
#include <tuple>

using namespace nsa;

/// The input or output of this name.
static Result<TensorView> findTensor(const Program &program,
                                     const EntryInfo &entry,
                                     const std::vector<unsigned> &tensors,
                                     const char *name) {
  for (unsigned index : tensors)
    if (program.tensors()[index].name == name)
      return program.tensors()[index];
  return Error{program.artifact().name() + ": entry " + quote(entry.name) +
               " has no tensor " + quote(name)};
}

using NamedView = std::pair<const char *, TensorView *>;

/// Fills each view with the tensor of its name.
static Status findTensors(const Program &program,
                          const std::vector<NamedView> &views) {
  for (auto [name, view] : views) {
    NSA_ASSIGN_OR_RETURN(*view, program.tensor(name));
  }
  return {};
}

/// Tokens that the artefact was compiled for; 0 if it does not say.
static int64_t readContext(const Artifact &artifact) {
  int64_t context = 0;
  if (const auto *options = artifact->options())
    for (const auto *option : *options)
      if (std::string_view key = option->key()->string_view();
          key == "context" || key == training::sampleContextOption) {
        std::string_view text = option->value()->string_view();
        std::from_chars(text.data(), text.data() + text.size(), context);
      }
  return context;
}

Status Generator::bind() {
  prefillEntry = model->findEntry(training::prefillEntry);
  decodeEntry = model->findEntry(training::decodeEntry);
  if (!decodeEntry)
    return Error{model->artifact().name() + " has no entry " +
                 quote(training::decodeEntry) +
                 ": nsa-compile --context N makes one that generates"};
  NSA_ASSIGN_OR_RETURN(token,
                       findTensor(*model, *decodeEntry, decodeEntry->inputs,
                                  training::tokenInput));
  NSA_ASSIGN_OR_RETURN(positions,
                       findTensor(*model, *decodeEntry, decodeEntry->inputs,
                                  training::positionsInput));
  NSA_ASSIGN_OR_RETURN(nextLogits,
                       findTensor(*model, *decodeEntry, decodeEntry->outputs,
                                  training::nextLogitsOutput));
  partEntry = model->findEntry(training::prefillPartEntry);
  if (const EntryInfo *prompts = partEntry ? partEntry : prefillEntry) {
    NSA_ASSIGN_OR_RETURN(promptTokens,
                         findTensor(*model, *prompts, prompts->inputs,
                                    partEntry ? training::partTokensInput
                                              : training::tokensInput));
    promptLength = int64_t(promptTokens.shape.back());
  }
  for (auto [entry, views, prefix] :
       {std::tuple(partEntry ? partEntry : prefillEntry, &promptSelection,
                   training::selectionPrefix),
        std::tuple(decodeEntry, &stepSelection, training::nextSelectionPrefix)})
    for (size_t i = 0; entry && i < entry->outputs.size(); ++i)
      if (const TensorView &view = model->tensors()[entry->outputs[i]];
          view.name.rfind(prefix, 0) == 0)
        views->push_back(view);
  limit = readContext(model->artifact());
  bool isShaped = (!promptLength || (promptTokens.shape.size() == 2 &&
                                     promptTokens.type == DataType::I32)) &&
                  nextLogits.shape.size() == 3 && positions.shape.size() == 1 &&
                  token.type == DataType::I32 &&
                  positions.type == DataType::I32 && isFloat(nextLogits.type);
  if (!isShaped || limit <= 0)
    return Error{model->artifact().name() +
                 " does not generate: its entries have other tensors, or it "
                 "says no context"};
  rows = int64_t(positions.shape[0]);
  tokens = int64_t(nextLogits.shape[2]);
  keptLogits.resize(size_t(rows * tokens));
  for (int64_t row = 0; row < rows; ++row)
    lastLogits.push_back(keptLogits.data() + row * tokens);
  lengths.resize(size_t(rows));
  tails.resize(size_t(rows));
  finite.assign(size_t(rows), true);
  unclean.assign(size_t(rows), false);
  selected.assign(size_t(rows),
                  std::vector<std::vector<int32_t>>(stepSelection.size()));
  return {};
}

Status Generator::bindPages() {
  for (const TensorView &view : model->tensors())
    if (view.name.rfind(training::pageCachePrefix, 0) == 0)
      pageCaches.push_back(view);
    else if (view.name.rfind(training::cachePrefix, 0) == 0)
      rowCaches.push_back(view);
  if (pageCaches.empty())
    return {};
  NSA_ASSIGN_OR_RETURN(TensorView table, model->tensor(training::pagesInput));
  const std::vector<uint64_t> &shape = pageCaches[0].shape;
  bool isShaped = partEntry && table.type == DataType::I32 &&
                  table.shape.size() == 2 && table.shape[0] == uint64_t(rows) &&
                  shape.size() == 4 &&
                  table.shape[1] * shape[1] >= uint64_t(limit);
  for (const TensorView &view : pageCaches)
    isShaped &= view.shape.size() == 4 && view.shape[0] == shape[0] &&
                view.shape[1] == shape[1];
  if (!isShaped)
    return Error{model->artifact().name() + ": tensor " +
                 quote(training::pagesInput) + " is not that of its caches"};
  pool = PagePool(table.as<int32_t>(), rows, int64_t(table.shape[1]),
                  int64_t(shape[0]), int64_t(shape[1]));
  return {};
}

Status Generator::bindParts() {
  if (!partEntry)
    return {};
  copyEntry = model->findEntry(training::copyPrefixEntry);
  std::vector<NamedView> views = {{training::partAtInput, &part.at},
                                  {training::partLastInput, &part.last},
                                  {training::partLogitsOutput, &part.logits}};
  if (copyEntry)
    views.emplace_back(training::partFromInput, &part.from);
  if (pool)
    views.emplace_back(training::partPositionInput, &part.position);
  NSA_RETURN_IF_ERROR(findTensors(*model, views));
  if (!(copyEntry ? part.from.elements() == 2 : bool(pool)) ||
      promptTokens.shape[0] != 1 || part.at.elements() != 2 ||
      (pool && part.position.elements() != 2) || part.last.elements() != 1 ||
      part.logits.elements() != uint64_t(tokens))
    return Error{model->artifact().name() + ": entry " +
                 quote(training::prefillPartEntry) + " has other tensors"};
  return {};
}

Status Generator::bindNext() {
  nextEntry = model->findEntry(training::nextEntry);
  if (!nextEntry)
    return {};
  std::vector<NamedView> views = {
      {training::nextTokenState, &next.token},
      {training::nextPositionsState, &next.positions},
      {training::nextIdsState, &next.ids},
      {training::nextEndState, &next.end},
      {training::nextUniformsState, &next.uniforms},
      {training::nextTopKState, &next.topK},
      {training::nextTopPState, &next.topP},
      {training::nextBiasState, &next.bias},
      {training::nextInverseState, &next.inverse}};
  NSA_RETURN_IF_ERROR(findTensors(*model, views));
  constexpr int digits = training::fractionDigits;
  uint64_t batch = uint64_t(rows), vocab = uint64_t(tokens);
  bool isShaped =
      next.token.elements() == batch && next.positions.elements() == batch &&
      next.ids.shape.size() == 2 && next.ids.shape[0] == batch &&
      next.ids.shape[1] > 0 && next.end.elements() == 1 &&
      next.bias.elements() == vocab &&
      next.uniforms.elements() == digits * next.ids.elements() &&
      next.inverse.elements() == batch && next.topK.elements() == batch &&
      next.topP.elements() == digits * batch;
  for (size_t i = 0; i < views.size(); ++i)
    isShaped &=
        views[i].second->type == (i < 7 ? DataType::I32 : DataType::F32);
  if (!isShaped)
    return Error{model->artifact().name() + ": entry " +
                 quote(training::nextEntry) + " has other tensors"};
  return setChoice({}, {}, -1);
}
