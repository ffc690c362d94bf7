//===- CPUExecutable.cpp - programs on the processor ----------------------===//

#include "runtime/CPU/CPUExecutable.h"
#include "lib/Support/Clock.h"
#include "lib/Support/Text.h"
#include "runtime/CPU/CPUFeatures.h"
#include "runtime/CPU/Commands.h"
#include "runtime/CPU/Memory.h"
#include "runtime/Core/Parts.h"
#include "runtime/Core/Poison.h"

#include <algorithm>
#include <cstring>

using namespace nsa;
using artifact::Slice;

namespace {

class CPUExecutable : public Executable {
public:
  CPUExecutable(const Artifact &artifact, const RuntimeOptions &options)
      : source(artifact), options(options) {}
  ~CPUExecutable() override { forgetLostThreads(); }

  /// Everything that can fail.
  Status load();

  void *segment(unsigned index) const override {
    return segments[index].data();
  }
  Status bind(unsigned entry, const Bindings &bindings) override;
  RunResult start(unsigned entry) override;
  RunResult finish(unsigned) override { return {}; }
  Status upload(const Slice &) override { return {}; }
  Status download(const Slice &) override { return {}; }
  uint64_t allocatedBytes() const override;
  int threads() const override { return pool ? pool->threads() : 0; }
  std::string gemmLibrary() const override {
    return blas ? "OpenBLAS (" + blas->core() + ")" : "";
  }
  const std::vector<uint64_t> &nanoseconds(unsigned entry) const override {
    return entries[entry].nanoseconds;
  }
  const std::vector<CommandSpan> &lastRun(unsigned entry) const override {
    return entries[entry].lastRun;
  }

private:
  struct ReadyEntry {
    /// What the addresses of the commands follow.
    Bindings bindings;
    std::vector<ReadyCommand> commands;
    std::vector<uint64_t> nanoseconds;
    std::vector<CommandSpan> lastRun;
    /// What to poison before a run.
    std::vector<std::pair<char *, uint64_t>> poisoned;
  };

  int rank() const {
    return options.communicator ? options.communicator->rank() : 0;
  }
  Status allocateSegments();
  Status loadKernels();
  Status loadBlas();
  Status startThreads();
  bool forgetLostThreads();
  /// Where a slice lies while the entry that is resolved or runs has these
  /// bindings.
  char *address(const Slice &slice) const {
    if (std::optional<char *> elsewhere = bound->find(slice))
      return *elsewhere;
    return segments[slice.segment()].data() + slice.offset();
  }
  ReadyEntry resolve(const artifact::Entry &entry) const;
  Action resolve(const artifact::Command &command) const;
  Action resolve(const artifact::Launch &launch) const;
  Action resolve(const artifact::Gemm &gemm) const;
  Action resolve(const artifact::Fill &fill) const;
  Action resolve(const artifact::Copy &copy) const;
  Action resolve(const artifact::Initialize &initialize) const;
  Action resolve(const artifact::CollectiveStart &start) const;
  std::optional<NonFinite>
  findNonFinite(size_t command, const std::vector<FloatOutput> &outputs) const;
  Status communicate(const Action &action);
  void runCommands(unsigned index);

  Artifact source;
  RuntimeOptions options;
  std::vector<PageMemory> segments;
  KernelLibrary library;
  std::vector<KernelFunction> kernels;
  std::optional<Blas> blas;
  std::unique_ptr<ThreadPool> pool;
  std::vector<ReadyEntry> entries;
  const Bindings none;
  const Bindings *bound = &none;
  /// The collectives in progress, by their data.
  std::vector<std::pair<const void *, uint64_t>> running;
  /// What stopped the run in progress.
  RunResult stopped;
};

} // namespace

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

Status nsa::checkProcessor(const artifact::Artifact &root,
                           const std::set<std::string> &flags) {
  std::string missing;
  if (root.cpu_features())
    for (const flatbuffers::String *feature : *root.cpu_features())
      if (!hasFeature(flags, feature->string_view()))
        missing += (missing.empty() ? "" : ", ") + feature->str();
  if (missing.empty())
    return {};
  return Error{"is compiled for the processor '" +
               (root.cpu() ? root.cpu()->str() : "unknown") +
               "'; this one lacks " + missing};
}

Status CPUExecutable::load() {
  NSA_RETURN_IF_ERROR(checkProcessor(source.root(), hostCPUFlags()));
  int size = options.communicator ? options.communicator->size() : 1;
  NSA_RETURN_IF_ERROR(checkRanks(source.root(), size));
  for (auto step :
       {&CPUExecutable::allocateSegments, &CPUExecutable::loadKernels,
        &CPUExecutable::loadBlas, &CPUExecutable::startThreads})
    NSA_RETURN_IF_ERROR((this->*step)());
  for (const artifact::Entry *entry : *source->entries())
    entries.push_back(resolve(*entry));
  return {};
}

Status CPUExecutable::allocateSegments() {
  if (options.externalMemory) {
    segments.resize(source->segments()->size());
    return {};
  }
  for (const artifact::Segment *segment : *source->segments()) {
    NSA_ASSIGN_OR_RETURN(PageMemory memory,
                         PageMemory::allocate(segment->size()));
    segments.push_back(std::move(memory));
  }
  return {};
}

Status CPUExecutable::loadKernels() {
  if (source->kernels()->size() == 0)
    return {};
  const artifact::Binary *found = nullptr;
  for (const artifact::Binary *binary : *source->binaries())
    if (binary->format()->string_view() == artifact::objectsFormat)
      found = binary;
  if (!found)
    return Error{std::string("has no binary of the format ") +
                 artifact::objectsFormat +
                 ", which this version runs; compile it again"};
  NSA_ASSIGN_OR_RETURN(
      library, KernelLibrary::load(
                   {reinterpret_cast<const char *>(found->data()->data()),
                    found->data()->size()}));
  for (const artifact::Kernel *kernel : *source->kernels()) {
    kernels.push_back(library.find(kernel->symbol()->str()));
    if (!kernels.back())
      return Error{"kernel " + quote(kernel->name()->str()) +
                   " is the symbol " + quote(kernel->symbol()->str()) +
                   ", which its binary does not define"};
  }
  return options.checkFinite ? canCheckResults(source.root()) : Status();
}

Status CPUExecutable::loadBlas() {
  for (const artifact::Entry *entry : *source->entries())
    for (const artifact::Command *command : *entry->commands())
      if (command->action_as_Gemm() && !blas) {
        NSA_ASSIGN_OR_RETURN(blas, Blas::open(options.blasLibrary));
      }
  if (blas && !blas->missedCore().empty() && !options.allowSlowGemm)
    return Error{
        "OpenBLAS " + quote(blas->path()) + " runs its " + blas->core() +
        " kernels where this processor could run those for " +
        blas->missedCore() + "; set OPENBLAS_CORETYPE to choose some by name"};
  return {};
}

Status CPUExecutable::startThreads() {
  constexpr int most = 1024;
  if (options.threads < 0 || options.threads > most)
    return Error{"cannot run on " + std::to_string(options.threads) +
                 " threads; 1 to " + std::to_string(most) +
                 " are possible, and 0 takes one per processor"};
  int count = options.threads ? options.threads : availableProcessors();
  NSA_ASSIGN_OR_RETURN(pool, ThreadPool::create(std::min(count, most)));
  if (!blas)
    return {};
  // OpenBLAS allocates a buffer for every thread that calls it first.
  pool->execute([&] {
    pool->onEachThread([&](int64_t) {
      const float one = 1;
      float out = 0;
      blas->multiply({1, 1, 1, false, false, &one, 1, &one, 1, /*alpha=*/1,
                      /*beta=*/0, &out, 1});
    });
  });
  return {};
}

/// After a fork, leaves the pool of the parent where it is; whether it did.
bool CPUExecutable::forgetLostThreads() {
  if (!pool || pool->hasThreads())
    return false;
  [[maybe_unused]] ThreadPool *lost = pool.release();
  return true;
}

//===----------------------------------------------------------------------===//
// Resolving commands
//===----------------------------------------------------------------------===//

Action CPUExecutable::resolve(const artifact::Launch &launch) const {
  const artifact::Kernel &kernel = *source->kernels()->Get(launch.kernel());
  LaunchCommand action;
  action.kernel = kernels[launch.kernel()];
  for (const Slice *slice : *launch.operands())
    action.arguments.push_back(address(*slice));
  // Integers in the place of pointers, as kernels read them.
  if (kernel.takes_extents())
    for (uint64_t extent : *source->extents()->values())
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      action.arguments.push_back(reinterpret_cast<void *>(extent));
  action.programs =
      int64_t(kernel.grid_x()) * kernel.grid_y() * kernel.grid_z();
  return action;
}

Action CPUExecutable::resolve(const artifact::Gemm &gemm) const {
  return resolveGemm(gemm, [&](const Slice &slice) { return address(slice); });
}

Action CPUExecutable::resolve(const artifact::Fill &fill) const {
  return FillCommand{fill.type(), fill.value(), address(*fill.out()),
                     int64_t(fill.out()->size() / elementBytes(fill.type()))};
}

Action CPUExecutable::resolve(const artifact::Copy &copy) const {
  return CopyCommand{address(*copy.source()), address(*copy.out()),
                     rangesOf(source.root(), copy, rank())};
}

Action CPUExecutable::resolve(const artifact::Initialize &initialize) const {
  const artifact::Tensor &tensor = *source->tensors()->Get(initialize.tensor());
  const Slice &slice = *tensor.slice();
  return InitializeCommand{&tensor, address(slice),
                           int64_t(slice.size() / elementBytes(tensor.type())),
                           options.seed};
}

Action CPUExecutable::resolve(const artifact::CollectiveStart &start) const {
  SequenceRows rows;
  if (start.rows()) {
    rows.sequences = int64_t(start.sequences());
    rows.data = address(*start.rows());
    rows.bytes = int64_t(start.rows()->size()) / (2 * rows.sequences);
  }
  return StartCollectiveCommand{
      start.kind(), address(*start.memory()),
      int64_t(start.memory()->size() / elementBytes(start.type())),
      start.type(), rows};
}

Action CPUExecutable::resolve(const artifact::Command &command) const {
  if (const auto *launch = command.action_as_Launch())
    return resolve(*launch);
  if (const auto *gemm = command.action_as_Gemm())
    return resolve(*gemm);
  if (const auto *fill = command.action_as_Fill())
    return resolve(*fill);
  if (const auto *copy = command.action_as_Copy())
    return resolve(*copy);
  if (const auto *start = command.action_as_CollectiveStart())
    return resolve(*start);
  if (const auto *done = command.action_as_CollectiveDone())
    return FinishCollectiveCommand{address(*done->memory())};
  return resolve(*command.action_as_Initialize());
}

CPUExecutable::ReadyEntry
CPUExecutable::resolve(const artifact::Entry &entry) const {
  ReadyEntry ready;
  ready.nanoseconds.resize(entry.commands()->size());
  ready.lastRun.resize(entry.commands()->size());
  // Without memory there are no addresses before some are bound.
  if (options.externalMemory && bound == &none)
    return ready;
  for (const artifact::Command *command : *entry.commands())
    ready.commands.push_back(
        {resolve(*command),
         options.checkFinite ? floatOutputs(source.root(), *command)
                             : std::vector<FloatOutput>(),
         options.checkFinite ? selectionInputs(source.root(), entry, *command)
                             : std::vector<SelectionInput>()});
  if (!options.poison)
    return ready;
  for (const Slice &slice : slicesToPoison(source.root(), entry))
    ready.poisoned.push_back({address(slice), slice.size()});
  return ready;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

uint64_t CPUExecutable::allocatedBytes() const {
  uint64_t bytes = 0;
  for (const PageMemory &memory : segments)
    bytes += memory.size();
  return bytes;
}

Status CPUExecutable::bind(unsigned index, const Bindings &bindings) {
  ReadyEntry &entry = entries[index];
  if (entry.bindings == bindings)
    return {};
  const artifact::Entry &described = *source->entries()->Get(index);
  if (!entry.bindings.coversSame(bindings))
    NSA_RETURN_IF_ERROR(
        bindings.check(source.root(), described, options.externalMemory));
  entry.bindings = bindings;
  bound = &entry.bindings;
  ReadyEntry ready = resolve(described);
  bound = &none;
  entry.commands = std::move(ready.commands);
  entry.poisoned = std::move(ready.poisoned);
  return {};
}

RunResult CPUExecutable::start(unsigned entry) {
  // An earlier start of threads may have failed, too.
  if (forgetLostThreads() || !pool)
    if (Status status = startThreads(); !status)
      return RunFailure{std::nullopt, status.message()};
  for (const auto &[data, bytes] : entries[entry].poisoned)
    std::memset(data, 0xFF, bytes);
  stopped = {};
  running.clear();
  bound = &entries[entry].bindings;
  pool->execute([&] { runCommands(entry); });
  bound = &none;
  return stopped;
}

std::optional<NonFinite>
CPUExecutable::findNonFinite(size_t command,
                             const std::vector<FloatOutput> &outputs) const {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (std::optional<NonFinite> first = nsa::findNonFinite(
            command, i, outputs[i], address(outputs[i].slice)))
      return first;
  return std::nullopt;
}

/// Starts or finishes a collective; nothing to do for other commands and for
/// one rank.
Status CPUExecutable::communicate(const Action &action) {
  Communicator *communicator = options.communicator;
  if (!communicator || communicator->size() == 1)
    return {};
  if (const auto *start = std::get_if<StartCollectiveCommand>(&action))
    running.emplace_back(
        start->data, communicator->start(start->kind, start->data, start->count,
                                         start->type, start->rows));
  const auto *finish = std::get_if<FinishCollectiveCommand>(&action);
  if (!finish)
    return {};
  auto started = std::find_if(running.begin(), running.end(), [&](auto &entry) {
    return entry.first == finish->data;
  });
  uint64_t number = started->second;
  running.erase(started);
  return communicator->wait(number);
}

/// Runs on the pool's leader.
void CPUExecutable::runCommands(unsigned index) {
  ReadyEntry &entry = entries[index];
  const Blas *library = blas ? &*blas : nullptr;
  for (size_t i = 0; i < entry.commands.size(); ++i) {
    for (const SelectionInput &input : entry.commands[i].selections)
      if (std::string bad = findBadSelection(input, address(input.slice));
          !bad.empty()) {
        stopped = RunFailure{i, bad};
        return;
      }
    uint64_t start = options.profile ? steadyNanoseconds() : 0;
    runAction(entry.commands[i].action, library, *pool);
    if (Status status = communicate(entry.commands[i].action); !status)
      stopped = RunFailure{i, status.message()};
    if (options.profile) {
      entry.lastRun[i] = {start, steadyNanoseconds() - start};
      entry.nanoseconds[i] += entry.lastRun[i].nanoseconds;
    }
    if (std::optional<NonFinite> found =
            findNonFinite(i, entry.commands[i].outputs))
      stopped = *found;
    if (!std::holds_alternative<std::monostate>(stopped))
      return;
  }
}

Result<std::unique_ptr<Executable>>
nsa::createCPUExecutable(const Artifact &artifact,
                         const RuntimeOptions &options) {
  auto executable = std::make_unique<CPUExecutable>(artifact, options);
  NSA_RETURN_IF_ERROR(executable->load());
  return std::unique_ptr<Executable>(std::move(executable));
}
