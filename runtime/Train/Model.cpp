//===- Model.cpp - a trainable program ------------------------------------===//

#include "runtime/Train/Model.h"
#include "lib/Support/Config.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/CPU/Convert.h"
#include "runtime/CPU/Memory.h"
#include "runtime/Core/Describe.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

namespace nsa {

Status ProgramModel::run(std::string_view entry) {
  NSA_RETURN_IF_ERROR(start(entry));
  return finish(entry);
}

Status ProgramModel::start(std::string_view entry) {
  NSA_ASSIGN_OR_RETURN(const EntryInfo *info, program.entry(entry));
  if (training::endsStep(entry))
    hasGathered = false;
  Status status = program.start(*info);
  // Where commands are measured, they have ended.
  if (status && profile)
    profile->record(program, *info);
  return status;
}

Status ProgramModel::gatherWeights() {
  if (hasGathered || !hasEntry(training::gatherEntry))
    return {};
  hasGathered = true;
  return run(training::gatherEntry);
}

Status ProgramModel::finish(std::string_view entry) {
  NSA_ASSIGN_OR_RETURN(const EntryInfo *info, program.entry(entry));
  return program.finish(*info);
}

static const TensorView *findAmong(const Program &program,
                                   const std::vector<unsigned> &indices,
                                   std::string_view name) {
  for (unsigned index : indices)
    if (program.tensors()[index].name == name)
      return &program.tensors()[index];
  return nullptr;
}

const TensorView *ProgramModel::input(std::string_view entry,
                                      std::string_view name) const {
  const EntryInfo *info = program.findEntry(entry);
  return info ? findAmong(program, info->inputs, name) : nullptr;
}

const TensorView *ProgramModel::output(std::string_view entry,
                                       std::string_view name) const {
  const EntryInfo *info = program.findEntry(entry);
  return info ? findAmong(program, info->outputs, name) : nullptr;
}

/// Whether the command writes bytes of the slice.
static bool writes(const artifact::Artifact &root,
                   const artifact::Command &command,
                   const artifact::Slice &slice) {
  auto meets = [&](const artifact::Slice *other) {
    return other->segment() == slice.segment() &&
           other->offset() < slice.offset() + slice.size() &&
           slice.offset() < other->offset() + other->size();
  };
  if (const auto *gemm = command.action_as_Gemm())
    return meets(gemm->out());
  if (const auto *fill = command.action_as_Fill())
    return meets(fill->out());
  if (const auto *copy = command.action_as_Copy())
    return meets(copy->out());
  const auto *launch = command.action_as_Launch();
  if (!launch)
    return false;
  const artifact::Kernel &kernel = *root.kernels()->Get(launch->kernel());
  for (unsigned i = kernel.arguments() - kernel.outputs();
       i < kernel.arguments(); ++i)
    if (meets(launch->operands()->Get(i)))
      return true;
  return false;
}

/// The commands of an entry that write bytes of a tensor, ascending.
static std::vector<unsigned> findWriters(const Program &program,
                                         std::string_view entryName,
                                         const TensorView &view) {
  std::vector<unsigned> writers;
  const artifact::Artifact &root = program.artifact().root();
  const EntryInfo *entry = program.findEntry(entryName);
  for (const artifact::Tensor *tensor : *root.tensors()) {
    if (!entry || tensor->name()->str() != view.name)
      continue;
    const auto &commands = *root.entries()->Get(entry->index)->commands();
    for (unsigned i = 0; i < commands.size(); ++i)
      if (writes(root, *commands.Get(i), *tensor->slice()))
        writers.push_back(i);
  }
  return writers;
}

std::string ProgramModel::origin(std::string_view entryName,
                                 const TensorView &view) const {
  std::vector<unsigned> writers = findWriters(program, entryName, view);
  if (writers.empty())
    return "";
  const artifact::Artifact &root = program.artifact().root();
  const EntryInfo *entry = program.findEntry(entryName);
  return commandLocation(
      root,
      *root.entries()->Get(entry->index)->commands()->Get(writers.back()));
}

size_t ProgramModel::firstWriter(std::string_view entryName,
                                 const TensorView &view) const {
  std::vector<unsigned> writers = findWriters(program, entryName, view);
  return writers.empty() ? std::numeric_limits<size_t>::max() : writers.front();
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

/// The name in a location such as "m.mlir:3:5 (layers.0.mlp) (backward)", with
/// a star for numbers of layers; without one, the whole location.
static std::string placeName(const std::string &location) {
  size_t open = location.find('('), close = location.find(')', open);
  std::string name = location;
  if (open != std::string::npos && close != std::string::npos &&
      location.compare(open, 10, "(backward)") != 0)
    name = location.substr(open + 1, close - open - 1);
  std::string result;
  for (size_t begin = 0; begin <= name.size();) {
    size_t end = std::min(name.find('.', begin), name.size());
    std::string part = name.substr(begin, end - begin);
    bool isNumber = !part.empty() &&
                    part.find_first_not_of("0123456789") == std::string::npos;
    result += (begin ? "." : "") + (isNumber ? "*" : part);
    begin = end + 1;
  }
  return result;
}

uint64_t ProgramModel::flops(std::string_view entryName) const {
  const artifact::Artifact &root = program.artifact().root();
  const EntryInfo *entry = program.findEntry(entryName);
  uint64_t sum = 0;
  if (entry)
    for (const artifact::Command *command :
         *root.entries()->Get(entry->index)->commands())
      sum += commandFlops(root, *command);
  return sum;
}

int64_t ProgramModel::sampleContext() const {
  int64_t context = 0;
  if (const auto *options = program.artifact()->options())
    for (const artifact::Option *option : *options)
      if (option->key()->string_view() == training::sampleContextOption) {
        std::string_view text = option->value()->string_view();
        std::from_chars(text.data(), text.data() + text.size(), context);
      }
  return context;
}

int64_t ProgramModel::vocabSize() const {
  const auto *text = program.artifact()->model_config();
  if (!text || text->size() == 0)
    return 0;
  Result<RunConfig> config = parseModelConfig(text->str(), "the configuration");
  return config ? config->model.vocabSize : 0;
}

std::vector<ActivationClass> ProgramModel::activations() const {
  const artifact::Artifact &root = program.artifact().root();
  const EntryInfo *entry = program.findEntry(training::accumulateEntry);
  std::vector<ActivationClass> classes;
  if (!entry)
    return classes;
  for (const artifact::Command *command :
       *root.entries()->Get(entry->index)->commands()) {
    std::string location = commandLocation(root, *command);
    ActivationClass made;
    made.name = placeName(location);
    made.backward = location.find("(backward)") != std::string::npos;
    for (const WrittenArray &array : writtenArrays(root, *command)) {
      if (root.segments()->Get(array.slice.segment())->kind() !=
          artifact::SegmentKind::Arena)
        continue;
      made.type = array.type;
      made.elements = array.count;
      auto known = std::find_if(
          classes.begin(), classes.end(), [&](const ActivationClass &other) {
            return std::tie(other.name, other.type, other.elements,
                            other.backward) ==
                   std::tie(made.name, made.type, made.elements, made.backward);
          });
      if (known == classes.end())
        known = classes.insert(known, made);
      ++known->arrays;
    }
  }
  return classes;
}

//===----------------------------------------------------------------------===//
// Binding
//===----------------------------------------------------------------------===//

namespace {

std::string describe(DataType type, const std::vector<uint64_t> &shape) {
  std::string text = "tensor<";
  for (uint64_t extent : shape)
    text += std::to_string(extent) + "x";
  return text + typeName(type) + ">";
}

/// Looks tensors up and remembers the first error.
class Binder {
public:
  explicit Binder(const Model &model) : model(model) {}

  const TensorView *find(bool isInput, const char *entry, const char *name) {
    const TensorView *found =
        isInput ? model.input(entry, name) : model.output(entry, name);
    if (!found)
      fail(std::string("entry '") + entry + "' has no " +
           (isInput ? "input" : "output") + " '" + name + "'");
    return found;
  }

  /// The data of a tensor that must have this type and shape.
  template <typename T>
  T *bind(bool isInput, const char *entry, const char *name, DataType type,
          const std::vector<uint64_t> &shape) {
    const TensorView *found = find(isInput, entry, name);
    if (!found)
      return nullptr;
    if (found->type != type || found->shape != shape)
      fail(std::string("'") + name + "' of entry '" + entry + "' is " +
           describe(found->type, found->shape) + ", training needs " +
           describe(type, shape));
    return found->as<T>();
  }

  void fail(const std::string &text) {
    if (message.empty())
      message = "the artefact cannot be trained: " + text;
  }

  /// Whether samples go on by decode, and whether there are any.
  bool decodes() const { return model.sampleContext() > 0; }
  bool samples() const {
    return decodes() || model.hasEntry(training::forwardEntry);
  }

  std::string message;

private:
  const Model &model;
};

} // namespace

/// Learns batch, length and vocabulary from the shapes.
static void bindShapes(Binder &binder, const Model &model,
                       TrainBinding &binding) {
  const TensorView *tokens =
      binder.find(true, training::accumulateEntry, training::tokensInput);
  if (!tokens)
    return;
  if (tokens->shape.size() != 2) {
    binder.fail("'" + std::string(training::tokensInput) + "' of entry '" +
                training::accumulateEntry + "' has rank " +
                std::to_string(tokens->shape.size()) + ", not 2");
    return;
  }
  binding.microBatch = int64_t(tokens->shape[0]);
  binding.seqLen = int64_t(tokens->shape[1]);
  binding.sequenceRanks = model.sequenceRanks();
  if (binding.sequenceRanks > 1) {
    binding.microBatch /= 2;
    binding.seqLen *= 2 * binding.sequenceRanks;
  }
  if (!binder.samples()) {
    binding.vocab = model.vocabSize();
    if (binding.vocab == 0)
      binder.fail("it has neither an entry '" +
                  std::string(training::forwardEntry) +
                  "' nor the configuration of its model, one of which says "
                  "what tokens there are");
    return;
  }
  bool decodes = binder.decodes();
  const char *sampler =
      decodes ? training::decodeEntry : training::forwardEntry;
  const TensorView *logits = binder.find(false, sampler,
                                         decodes ? training::nextLogitsOutput
                                                 : training::logitsOutput);
  if (!logits)
    return;
  uint64_t rows = decodes ? 1 : uint64_t(binding.seqLen);
  bool isLogits =
      logits->shape.size() == 3 && logits->shape[1] == rows &&
      (logits->type == DataType::F32 || logits->type == DataType::BF16 ||
       logits->type == DataType::F16);
  if (!isLogits) {
    binder.fail("'" + logits->name + "' of entry '" + sampler + "' is " +
                describe(logits->type, logits->shape) + " for " +
                std::to_string(rows) + " tokens");
    return;
  }
  binding.logits = *logits;
  binding.forwardBatch = decodes ? 0 : int64_t(logits->shape[0]);
  binding.vocab = int64_t(logits->shape[2]);
}

/// The inputs of what continues samples.
static void bindSamples(Binder &binder, TrainBinding &binding,
                        bool isIsolated) {
  auto ids = [&](const char *entry, const char *name,
                 const std::vector<uint64_t> &shape) {
    return binder.bind<int32_t>(true, entry, name, DataType::I32, shape);
  };
  if (binder.decodes()) {
    binding.sampleToken =
        ids(training::decodeEntry, training::tokenInput, {1, 1});
    binding.samplePosition =
        ids(training::decodeEntry, training::positionsInput, {1});
    return;
  }
  if (!binder.samples())
    return;
  std::vector<uint64_t> shape = {uint64_t(binding.forwardBatch),
                                 uint64_t(binding.seqLen)};
  binding.forwardTokens =
      ids(training::forwardEntry, training::tokensInput, shape);
  if (isIsolated)
    binding.forwardStarts =
        ids(training::forwardEntry, training::startInput, shape);
}

/// The inputs of windows, which say in their names how long these are.
static void bindWindows(Binder &binder, const Model &model,
                        TrainBinding &binding,
                        const std::vector<uint64_t> &shape) {
  std::string_view prefix = training::windowAtPrefix;
  for (const TensorView &tensor : model.tensors()) {
    std::string_view name = tensor.name;
    if (tensor.role != TensorRole::Input || name.rfind(prefix, 0) != 0)
      continue;
    int64_t halo = 0;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(),
                    halo);
    binding.windowAt.emplace_back(
        halo, binder.bind<int32_t>(true, training::accumulateEntry,
                                   tensor.name.c_str(), DataType::I32, shape));
  }
}

Result<TrainBinding> TrainBinding::create(const Model &model) {
  Binder binder(model);
  for (const char *entry : {training::initEntry, training::accumulateEntry,
                            training::updateEntry, training::evalEntry})
    if (!model.hasEntry(entry))
      binder.fail(std::string("it has no entry '") + entry + "'");
  TrainBinding binding;
  bindShapes(binder, model, binding);
  std::vector<uint64_t> whole = {uint64_t(binding.microBatch),
                                 uint64_t(binding.seqLen)};
  std::vector<uint64_t> batch = whole, places = {2 * whole[0], 2};
  bool isCut = binding.sequenceRanks > 1;
  if (isCut)
    batch = {places[0], whole[1] / uint64_t(2 * binding.sequenceRanks)};
  auto ids = [&](const char *entry, const char *name,
                 const std::vector<uint64_t> &shape) {
    return binder.bind<int32_t>(true, entry, name, DataType::I32, shape);
  };
  auto scalar = [&](const char *entry, const char *name) {
    return binder.bind<const float>(false, entry, name, DataType::F32, {});
  };
  binding.tokens = ids(training::accumulateEntry, training::tokensInput, batch);
  binding.targets =
      ids(training::accumulateEntry, training::targetsInput, batch);
  bool isIsolated =
      model.input(training::accumulateEntry, training::startInput) != nullptr;
  if (isIsolated)
    binding.starts =
        ids(training::accumulateEntry, training::startInput, whole);
  if (isCut)
    binding.at = ids(training::accumulateEntry, training::atInput, places);
  while (const TensorView *view =
             model.input(training::accumulateEntry,
                         training::selectionPrefix +
                             std::to_string(binding.selections.size())))
    binding.selections.push_back(*view);
  bindWindows(binder, model, binding, places);
  bindSamples(binder, binding, isIsolated);
  binding.sampleContext = model.sampleContext();
  auto sharesPlaces = [&](const char *entry) {
    return (!isIsolated ||
            ids(entry, training::startInput, whole) == binding.starts) &&
           (!isCut || ids(entry, training::atInput, places) == binding.at);
  };
  binding.hyper =
      binder.bind<float>(true, training::updateEntry, training::hyperInput,
                         DataType::F32, {training::numHyper});
  binding.gradNorm = scalar(training::updateEntry, training::gradNormOutput);
  binding.lossSum = scalar(training::updateEntry, training::lossSumOutput);
  binding.fractionSum =
      scalar(training::updateEntry, training::targetFractionSumOutput);
  binding.evalLoss = scalar(training::evalEntry, training::lossOutput);
  if (model.output(training::updateEntry, training::lossScaleOutput)) {
    binding.lossScale =
        scalar(training::updateEntry, training::lossScaleOutput);
    binding.skippedUpdates =
        scalar(training::updateEntry, training::skippedUpdatesOutput);
  }
  bool shared = ids(training::evalEntry, training::tokensInput, batch) ==
                    binding.tokens &&
                ids(training::evalEntry, training::targetsInput, batch) ==
                    binding.targets &&
                sharesPlaces(training::evalEntry);
  binding.hasStep = model.hasEntry(training::stepEntry);
  if (binding.hasStep)
    shared = shared &&
             ids(training::stepEntry, training::tokensInput, batch) ==
                 binding.tokens &&
             ids(training::stepEntry, training::targetsInput, batch) ==
                 binding.targets &&
             sharesPlaces(training::stepEntry) &&
             scalar(training::stepEntry, training::gradNormOutput) ==
                 binding.gradNorm &&
             scalar(training::stepEntry, training::lossSumOutput) ==
                 binding.lossSum &&
             scalar(training::stepEntry, training::targetFractionSumOutput) ==
                 binding.fractionSum;
  if (!shared)
    binder.fail("its entries do not share 'tokens', 'targets' and the losses");
  if (!binder.message.empty())
    return Error{binder.message};
  return binding;
}

void TrainBinding::load(const int32_t *ofTokens, const int32_t *ofTargets,
                        const int32_t *ofStarts, int rank) const {
  if (starts)
    std::copy_n(ofStarts, microBatch * seqLen, starts);
  if (!at) {
    std::copy_n(ofTokens, microBatch * seqLen, tokens);
    std::copy_n(ofTargets, microBatch * seqLen, targets);
    return;
  }
  int64_t length = seqLen / (2 * sequenceRanks);
  for (int64_t row = 0; row < 2 * microBatch; ++row) {
    int64_t first = length * int64_t(chunkOf(uint64_t(row), uint64_t(rank),
                                             uint64_t(sequenceRanks)));
    int64_t from = row / 2 * seqLen + first;
    std::copy_n(ofTokens + from, length, tokens + row * length);
    std::copy_n(ofTargets + from, length, targets + row * length);
    at[2 * row] = int32_t(row / 2);
    at[2 * row + 1] = int32_t(first);
    for (auto [halo, places] : windowAt) {
      places[2 * row] = int32_t(row);
      places[2 * row + 1] = first ? int32_t(halo) : 0;
    }
  }
}

//===----------------------------------------------------------------------===//
// Looking at tensors
//===----------------------------------------------------------------------===//

std::vector<TensorView> tensorsOfRole(const TensorSet &set, TensorRole role) {
  std::vector<TensorView> found;
  for (const TensorView &tensor : set.tensors())
    if (tensor.role == role)
      found.push_back(tensor);
  return found;
}

std::vector<TensorView> weightsOf(const TensorSet &set) {
  std::vector<TensorView> found;
  for (const TensorView &tensor : set.tensors())
    if (tensor.role == TensorRole::Parameter || tensor.frozen)
      found.push_back(tensor);
  return found;
}

void discardSharded(const TensorSet &set) {
  for (const TensorView &tensor : set.tensors())
    if (tensor.sharded)
      discardPages(tensor.data, tensor.bytes);
}

uint64_t parameterCount(const TensorSet &set) {
  uint64_t count = 0;
  for (const TensorView &tensor : set.tensors())
    if (tensor.role == TensorRole::Parameter)
      count += tensor.elements();
  return count;
}

float elementAt(const TensorView &tensor, uint64_t index) {
  assert(isFloat(tensor.type) && "no float tensor");
  return float(elementAt(tensor.type, tensor.data, int64_t(index)));
}

/// The gradients in the order in which backward computes them.
static std::vector<TensorView> gradientsInOrder(const Model &model) {
  std::vector<std::pair<size_t, TensorView>> found;
  for (TensorView &tensor : tensorsOfRole(model, TensorRole::Gradient))
    found.emplace_back(model.firstWriter(training::accumulateEntry, tensor),
                       tensor);
  std::sort(found.begin(), found.end(), [](const auto &a, const auto &b) {
    return std::tie(a.first, a.second.name) < std::tie(b.first, b.second.name);
  });
  std::vector<TensorView> gradients;
  gradients.reserve(found.size());
  for (auto &[writer, tensor] : found)
    gradients.push_back(std::move(tensor));
  return gradients;
}

/// Element `index` of a tensor for the parts of gradients, by the parameter
/// that it belongs to; empty for other tensors.
static std::string partName(const std::vector<StateRange> &ranges,
                            const TensorView &tensor, uint64_t index) {
  for (const StateRange &range : ranges)
    if (training::gradientName(range.stateSuffix()) == tensor.name &&
        index >= range.offset && index < range.offset + range.count)
      return training::gradientName(range.parameter) + "[" +
             std::to_string(range.first + index - range.offset) + "]";
  return "";
}

Result<std::string> firstNonFiniteGradient(const Model &model, int rank) {
  NSA_ASSIGN_OR_RETURN(std::vector<StateRange> ranges, model.stateRanges(rank));
  for (const TensorView &tensor : gradientsInOrder(model)) {
    NSA_RETURN_IF_ERROR(model.toHost(tensor));
    uint64_t count = tensor.elements();
    // Parts are in the order of the model, from the end of which backward
    // begins.
    bool isPart = !partName(ranges, tensor, 0).empty();
    for (uint64_t n = 0; n < count; ++n) {
      uint64_t i = isPart ? count - 1 - n : n;
      if (std::isfinite(elementAt(tensor, i)))
        continue;
      if (std::string name = partName(ranges, tensor, i); !name.empty())
        return name;
      std::string place = model.origin(training::accumulateEntry, tensor);
      return tensor.name + "[" + std::to_string(i) + "]" +
             (place.empty() ? "" : " (from " + place + ")");
    }
  }
  return std::string();
}

Result<std::string> largestGradient(const Model &model) {
  std::string name;
  float largest = -1.0f;
  for (const TensorView &tensor : tensorsOfRole(model, TensorRole::Gradient)) {
    NSA_RETURN_IF_ERROR(model.toHost(tensor));
    for (uint64_t i = 0, count = tensor.elements(); i < count; ++i)
      if (float size = std::fabs(elementAt(tensor, i)); size > largest) {
        largest = size;
        name = tensor.name;
      }
  }
  return name;
}

} // namespace nsa
