//===- Program.cpp - loading and running artefacts ------------------------===//

#include "lib/Support/Suggest.h"
#include "lib/Support/Text.h"
#include "nsa/Runtime/Runtime.h"
#include "runtime/Core/Describe.h"
#include "runtime/Core/Executable.h"

#include <cmath>

using namespace nsa;

Program::Program(Program &&) noexcept = default;
Program &Program::operator=(Program &&) noexcept = default;
Program::~Program() = default;

Result<Program> Program::create(const Artifact &artifact,
                                const RuntimeOptions &options) {
  if (artifact.needsExtents()) {
    std::string names;
    for (const std::string &name : artifact.extentNames())
      names += (names.empty() ? "" : ", ") + quote(name);
    return Error{artifact.name() +
                 ": runs with tensors of given extents only: " + names +
                 " are not given"};
  }
  Result<std::unique_ptr<Executable>> executable =
      createExecutable(artifact, options);
  if (!executable)
    return Error{artifact.name() + ": " + executable.message()};
  Program program(artifact, std::move(*executable));
  program.unbound.assign(options.externalMemory ? program.entryList.size() : 0,
                         true);
  return program;
}

static TensorView makeView(const artifact::Artifact &root,
                           const artifact::Tensor &tensor,
                           const Executable &executable) {
  TensorView view;
  view.name = tensor.name()->str();
  view.type = tensor.type();
  view.shape.assign(tensor.shape()->begin(), tensor.shape()->end());
  if (void *segment = executable.segment(tensor.slice()->segment()))
    view.data = static_cast<char *>(segment) + tensor.slice()->offset();
  view.bytes = tensor.slice()->size();
  view.role = tensor.role();
  view.frozen = tensor.role() == TensorRole::Constant &&
                (tensor.init() == artifact::InitKind::Normal ||
                 tensor.init() == artifact::InitKind::Constant);
  view.decay = tensor.decay();
  view.sharded = root.segments()->Get(tensor.slice()->segment())->kind() ==
                 artifact::SegmentKind::Host;
  if (tensor.state())
    view.state = tensor.state()->str();
  return view;
}

Program::Program(Artifact artifact, std::unique_ptr<Executable> made)
    : source(std::move(artifact)), executable(std::move(made)) {
  for (const artifact::Tensor *tensor : *source->tensors())
    tensorList.push_back(makeView(source.root(), *tensor, *executable));
  for (const artifact::Entry *entry : *source->entries())
    entryList.push_back({entry->name()->str(),
                         {entry->inputs()->begin(), entry->inputs()->end()},
                         {entry->outputs()->begin(), entry->outputs()->end()},
                         unsigned(entryList.size()),
                         entry->commands()->size()});
}

/// The element of this name, or null.
template <typename T>
static const T *find(const std::vector<T> &list, std::string_view name) {
  for (const T &element : list)
    if (element.name == name)
      return &element;
  return nullptr;
}

/// "unknown tensor 'x'", with the nearest name if there is one.
template <typename T>
static Error unknown(const char *what, const std::vector<T> &list,
                     std::string_view name) {
  std::vector<std::string> names;
  names.reserve(list.size());
  for (const T &element : list)
    names.push_back(element.name);
  return Error{std::string("unknown ") + what + " " + quote(std::string(name)) +
               suggestion(name, names)};
}

const TensorView *Program::findTensor(std::string_view name) const {
  return find(tensorList, name);
}

const EntryInfo *Program::findEntry(std::string_view name) const {
  return find(entryList, name);
}

Result<TensorView> Program::tensor(std::string_view name) const {
  if (const TensorView *view = findTensor(name))
    return *view;
  return unknown("tensor", tensorList, name);
}

Result<const EntryInfo *> Program::entry(std::string_view name) const {
  if (const EntryInfo *info = findEntry(name))
    return info;
  return unknown("entry", entryList, name);
}

/// The output of a command, in words.
static std::string nonFiniteText(const NonFinite &found) {
  return std::string("wrote ") +
         (std::isnan(found.value) ? "nan"
          : found.value > 0       ? "inf"
                                  : "-inf") +
         " to element " + std::to_string(found.element) +
         " of its float output " + std::to_string(found.output);
}

/// What stopped a run of the entry, if something did.
static Status describe(const Artifact &source, const EntryInfo &entry,
                       const RunResult &result) {
  if (std::holds_alternative<std::monostate>(result))
    return {};
  const auto *failed = std::get_if<RunFailure>(&result);
  if (failed && !failed->command)
    return Error{"entry " + quote(entry.name) + ": " + failed->message};
  const auto *found = std::get_if<NonFinite>(&result);
  size_t index = failed ? *failed->command : found->command;
  std::string what = failed ? failed->message : nonFiniteText(*found);
  const artifact::Command &command =
      *source->entries()->Get(entry.index)->commands()->Get(unsigned(index));
  return Error{"entry " + quote(entry.name) + ", " +
               describeCommand(source.root(), index, command, what)};
}

Status Program::run(std::string_view entryName) {
  NSA_ASSIGN_OR_RETURN(const EntryInfo *info, entry(entryName));
  return run(*info);
}

Status Program::run(const EntryInfo &entry) {
  NSA_RETURN_IF_ERROR(start(entry));
  return finish(entry);
}

Status Program::checkMemory(const EntryInfo &entry) const {
  if (!unbound.empty() && unbound[entry.index])
    return Error{"entry " + quote(entry.name) +
                 ": the program has no memory, and is given none"};
  return {};
}

Status Program::start(const EntryInfo &entry) {
  NSA_RETURN_IF_ERROR(checkMemory(entry));
  RunResult result = executable->start(entry.index);
  nonFinite = std::holds_alternative<NonFinite>(result);
  return describe(source, entry, result);
}

Status Program::finish(const EntryInfo &entry) {
  return describe(source, entry, executable->finish(entry.index));
}

static bool isScratch(const artifact::Segment &segment) {
  return segment.kind() == artifact::SegmentKind::Arena ||
         segment.kind() == artifact::SegmentKind::Workspace;
}

/// Segments begin at multiples of it in scratch memory: of the alignment of
/// either target.
static constexpr uint64_t scratchAlignment = 256;

static uint64_t alignScratch(uint64_t address) {
  return (address + scratchAlignment - 1) / scratchAlignment * scratchAlignment;
}

uint64_t Program::scratchBytes() const {
  uint64_t bytes = 0;
  for (const artifact::Segment *segment : *source->segments())
    if (isScratch(*segment))
      bytes += alignScratch(segment->size());
  // The first may begin after the address.
  return bytes ? bytes + scratchAlignment : 0;
}

/// The segments of intermediate values, one after the other.
static void placeScratch(const artifact::Artifact &root, void *scratch,
                         std::vector<Bindings::Range> &ranges) {
  auto *begin = static_cast<char *>(scratch);
  uint64_t first = reinterpret_cast<uint64_t>(scratch);
  uint64_t offset = alignScratch(first) - first;
  for (unsigned i = 0; i < root.segments()->size(); ++i) {
    const artifact::Segment &segment = *root.segments()->Get(i);
    if (!isScratch(segment) || segment.size() == 0)
      continue;
    ranges.push_back({artifact::Slice(i, 0, segment.size()), begin + offset});
    offset += alignScratch(segment.size());
  }
}

Status Program::bind(const EntryInfo &entry,
                     const std::vector<Binding> &bindings, void *scratch) {
  std::vector<Bindings::Range> ranges;
  ranges.reserve(bindings.size() + 2);
  for (const Binding &binding : bindings)
    ranges.push_back({*source->tensors()->Get(binding.tensor)->slice(),
                      static_cast<char *>(binding.data)});
  if (!unbound.empty() && scratch)
    placeScratch(source.root(), scratch, ranges);
  bool isEmpty = ranges.empty();
  Status status = executable->bind(entry.index, Bindings(std::move(ranges)));
  if (!status)
    return Error{"entry " + quote(entry.name) + ": " + status.message()};
  if (!unbound.empty())
    unbound[entry.index] = isEmpty;
  return {};
}

Status Program::waitFor(uint64_t stream) { return executable->waitFor(stream); }

bool Program::canEnqueue() const { return executable->canEnqueue(); }

Status Program::enqueue(const EntryInfo &entry, uint64_t stream) {
  NSA_RETURN_IF_ERROR(checkMemory(entry));
  return describe(source, entry, executable->enqueue(entry.index, stream));
}

Status Program::release(uint64_t stream) { return executable->release(stream); }

const artifact::Slice &Program::sliceOf(const TensorView &tensor) const {
  auto index = unsigned(findTensor(tensor.name) - tensorList.data());
  return *source->tensors()->Get(index)->slice();
}

Status Program::toDevice(const TensorView &tensor) const {
  return executable->upload(sliceOf(tensor));
}

Status Program::pinHost() { return executable->pinHost(); }

Status Program::toHost(const TensorView &tensor) const {
  return executable->download(sliceOf(tensor));
}

uint64_t MemoryUse::plannedBytes() const {
  uint64_t bytes = 0;
  for (const auto &[name, part] : planned)
    bytes += part;
  return bytes;
}

MemoryUse Program::memory() const {
  MemoryUse use;
  for (const artifact::Segment *segment : *source->segments())
    if (segment->kind() != artifact::SegmentKind::Host)
      use.planned.emplace_back(segmentName(segment->kind()), segment->size());
  use.allocated = executable->allocatedBytes();
  use.inUse = executable->deviceBytesInUse();
  use.connections = executable->connectionBytes();
  return use;
}

Result<std::optional<GPUPeaks>> Program::measureGPU() const {
  return executable->measureGPU();
}

int Program::threads() const { return executable->threads(); }

std::string Program::gpu() const { return executable->gpuName(); }

std::string Program::gemmLibrary() const { return executable->gemmLibrary(); }

std::string Program::reductionLibrary() const {
  return executable->reductionLibrary();
}

double Program::waitedSeconds() const { return executable->waitedSeconds(); }

std::vector<CommandProfile> Program::profile(const EntryInfo &entry) const {
  const std::vector<uint64_t> &times = executable->nanoseconds(entry.index);
  const auto &commands = *source->entries()->Get(entry.index)->commands();
  bool reduces = !executable->reductionLibrary().empty();
  std::vector<CommandProfile> profile;
  for (unsigned i = 0; i < commands.size(); ++i) {
    const artifact::Command &command = *commands.Get(i);
    const auto *start = command.action_as_CollectiveStart();
    profile.push_back({commandTitle(source.root(), command),
                       commandLocation(source.root(), command), times[i],
                       commandFlops(source.root(), command),
                       commandBytes(source.root(), command),
                       commandHasHalf(source.root(), command),
                       reduces && start && !start->grouped(),
                       reduces && command.action_as_CollectiveDone()});
  }
  return profile;
}

const std::vector<CommandSpan> &Program::lastRun(const EntryInfo &entry) const {
  return executable->lastRun(entry.index);
}
