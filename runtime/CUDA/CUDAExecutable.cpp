//===- CUDAExecutable.cpp - programs on a GPU -----------------------------===//

#include "runtime/CUDA/CUDAExecutable.h"
#include "lib/Support/Clock.h"
#include "runtime/CPU/FiniteCheck.h"
#include "runtime/CPU/Initialize.h"
#include "runtime/CUDA/BlasLt.h"
#include "runtime/CUDA/Commands.h"
#include "runtime/CUDA/Peaks.h"
#include "runtime/CUDA/Transfers.h"
#include "runtime/Core/Describe.h"
#include "runtime/Core/Poison.h"

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

using namespace nsa;
using namespace nsa::cuda;
using artifact::Slice;

namespace {

class CUDAExecutable : public Executable {
public:
  CUDAExecutable(const Artifact &artifact, const RuntimeOptions &options)
      : source(artifact), options(options) {
    this->options.checkFinite |= options.noGraph;
  }
  ~CUDAExecutable() override;

  /// Everything that can fail.
  Status load();

  void *segment(unsigned index) const override { return memory->mirror(index); }
  RunResult start(unsigned entry) override;
  RunResult finish(unsigned entry) override;
  Status upload(const Slice &slice) override;
  Status download(const Slice &slice) override;
  uint64_t allocatedBytes() const override { return memory->bytes(); }
  uint64_t deviceBytesInUse() const override {
    gpu->makeCurrent();
    return gpu->usedBytes();
  }
  Result<std::optional<GPUPeaks>> measureGPU() override;
  int threads() const override { return 1; }
  std::string gpuName() const override { return gpu->description(); }
  std::string gemmLibrary() const override {
    return blas ? blas->description() : "";
  }
  const std::vector<uint64_t> &nanoseconds(unsigned entry) const override {
    return entries[entry].nanoseconds;
  }
  const std::vector<CommandSpan> &lastRun(unsigned entry) const override {
    return entries[entry].lastRun;
  }

private:
  struct ReadyEntry {
    std::vector<Command> commands;
    /// What each command writes; filled only if results are checked.
    std::vector<std::vector<FloatOutput>> results;
    std::vector<uint64_t> nanoseconds;
    std::vector<CommandSpan> lastRun;
    /// Before each command and after the last; none unless measured.
    std::vector<Event> events;
    Transfers transfers;
    std::vector<Slice> poisoned;
    /// The commands as a graph, after the first run; null if some of them need
    /// the host.
    GraphExec graph = nullptr;
    bool mayCapture = true, ranOnce = false;
  };

  Status loadKernels();
  Status loadBlas();
  Status resolveEntries();
  Status resolve(const artifact::Entry &entry);
  Status prepareTransfers(const artifact::Entry &entry, ReadyEntry &ready);
  Result<Command> resolve(const artifact::Command &command);
  Result<Command> resolve(const artifact::Launch &launch) const;
  Result<Command> resolve(const artifact::Gemm &gemm);
  Result<Command> resolve(const artifact::Fill &fill) const;
  Result<Command> resolve(const artifact::Initialize &initialize) const;

  Status poison(const ReadyEntry &entry);
  Status initialize(const InitializeTensor &command);
  Status issue(const Command &command);
  RunResult runCommands(ReadyEntry &entry);
  Status mark(const ReadyEntry &entry, size_t event);
  Status readTimes(ReadyEntry &entry, uint64_t start);
  Status capture(ReadyEntry &entry);
  Status wait();
  Result<std::optional<NonFinite>>
  findNonFinite(size_t command, const std::vector<FloatOutput> &outputs);

  Artifact source;
  RuntimeOptions options;
  std::unique_ptr<GPU> gpu;
  std::unique_ptr<DeviceMemory> memory;
  Module code = nullptr;
  std::vector<Function> kernels;
  std::unique_ptr<BlasLt> blas;
  std::vector<ReadyEntry> entries;
  /// Where results are checked.
  PageMemory checked;
  /// When the last command that was measured ended.
  uint64_t measuredUntil = 0;
};

} // namespace

CUDAExecutable::~CUDAExecutable() {
  if (!gpu)
    return;
  gpu->makeCurrent();
  (void)gpu->wait();
  for (ReadyEntry &entry : entries) {
    if (entry.graph)
      gpu->driver().GraphExecDestroy(entry.graph);
    for (Event event : entry.events)
      gpu->driver().EventDestroy(event);
  }
  entries.clear();
  blas.reset();
  if (code)
    gpu->driver().ModuleUnload(code);
  memory.reset();
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

Status CUDAExecutable::load() {
  if (options.communicator && options.communicator->size() > 1)
    return Error{"several ranks (" +
                 std::to_string(options.communicator->size()) +
                 ") are supported on the CPU only"};
  if (options.checkFinite)
    if (Status status = canCheckResults(source.root()); !status)
      return status;
  Result<std::unique_ptr<GPU>> opened =
      GPU::open(options.device, source->target()->str());
  if (!opened)
    return opened.takeError();
  gpu = std::move(*opened);
  memory = std::make_unique<DeviceMemory>(*gpu);
  if (Status status = memory->allocate(source.root()); !status)
    return status;
  for (auto step : {&CUDAExecutable::loadKernels, &CUDAExecutable::loadBlas,
                    &CUDAExecutable::resolveEntries})
    if (Status status = (this->*step)(); !status)
      return status;
  return {};
}

Status CUDAExecutable::loadKernels() {
  if (source->kernels()->size() == 0)
    return {};
  const artifact::Binary *found = nullptr;
  for (const artifact::Binary *binary : *source->binaries())
    if (binary->format()->string_view() == artifact::cubinFormat ||
        binary->format()->string_view() == artifact::ptxFormat)
      found = binary;
  if (!found)
    return Error{"has no binary for a GPU"};
  const Driver &driver = gpu->driver();
  // Text has to end with a zero.
  std::string image(found->data()->begin(), found->data()->end());
  if (Status status = driver.check(
          driver.ModuleLoadDataEx(&code, image.c_str(), 0, nullptr, nullptr),
          "cuModuleLoadDataEx");
      !status)
    return status;
  for (const artifact::Kernel *kernel : *source->kernels()) {
    Function &function = kernels.emplace_back();
    if (Status status =
            driver.check(driver.ModuleGetFunction(&function, code,
                                                  kernel->symbol()->c_str()),
                         "cuModuleGetFunction");
        !status)
      return Error{"kernel '" + kernel->name()->str() +
                   "': " + status.message()};
    if (kernel->shared_bytes() <= 48 * 1024)
      continue;
    if (Status status = driver.check(
            driver.FuncSetAttribute(function, kMaxDynamicSharedSize,
                                    int(kernel->shared_bytes())),
            "cuFuncSetAttribute");
        !status)
      return Error{"kernel '" + kernel->name()->str() + "' needs " +
                   std::to_string(kernel->shared_bytes()) +
                   " bytes of shared memory: " + status.message()};
  }
  return {};
}

Status CUDAExecutable::loadBlas() {
  for (const artifact::Entry *entry : *source->entries())
    for (const artifact::Command *command : *entry->commands())
      if (command->action_as_Gemm() && !blas) {
        Result<std::unique_ptr<BlasLt>> opened =
            BlasLt::open(options.blasLibrary);
        if (!opened)
          return opened.takeError();
        blas = std::move(*opened);
      }
  return {};
}

//===----------------------------------------------------------------------===//
// Resolving commands
//===----------------------------------------------------------------------===//

Status CUDAExecutable::resolveEntries() {
  entries.reserve(source->entries()->size());
  for (const artifact::Entry *entry : *source->entries())
    if (Status status = resolve(*entry); !status)
      return Error{"entry '" + entry->name()->str() + "': " + status.message()};
  if (options.checkFinite) {
    uint64_t most = 0;
    for (const ReadyEntry &entry : entries)
      for (const std::vector<FloatOutput> &outputs : entry.results)
        for (const FloatOutput &output : outputs)
          most = std::max(most, output.slice.size());
    Result<PageMemory> buffer = PageMemory::allocate(most);
    if (!buffer)
      return buffer.takeError();
    checked = std::move(*buffer);
  }
  return wait();
}

Status CUDAExecutable::resolve(const artifact::Entry &entry) {
  ReadyEntry &ready = entries.emplace_back();
  for (const artifact::Command *command : *entry.commands()) {
    Result<Command> resolved = resolve(*command);
    if (!resolved)
      return Error{describeCommand(source.root(), ready.commands.size(),
                                   *command, resolved.message())};
    if (std::holds_alternative<InitializeTensor>(*resolved))
      ready.mayCapture = false;
    ready.commands.push_back(std::move(*resolved));
    if (options.checkFinite)
      ready.results.push_back(floatOutputs(source.root(), *command));
  }
  ready.nanoseconds.resize(ready.commands.size());
  ready.lastRun.resize(ready.commands.size());
  while (options.profile && ready.events.size() <= ready.commands.size())
    if (Status status = gpu->driver().check(
            gpu->driver().EventCreate(&ready.events.emplace_back(), 0),
            "cuEventCreate");
        !status)
      return status;
  return prepareTransfers(entry, ready);
}

Status CUDAExecutable::prepareTransfers(const artifact::Entry &entry,
                                        ReadyEntry &ready) {
  std::set<uint32_t> inputs(entry.inputs()->begin(), entry.inputs()->end());
  std::vector<Slice> in, out;
  for (uint32_t input : inputs)
    in.push_back(*source->tensors()->Get(input)->slice());
  for (uint32_t output : *entry.outputs()) {
    const artifact::Tensor &tensor = *source->tensors()->Get(output);
    if (tensor.role() == TensorRole::Output)
      out.push_back(*tensor.slice());
  }
  if (options.poison)
    ready.poisoned = slicesToPoison(source.root(), entry);
  return ready.transfers.prepare(*gpu, *memory, in, out);
}

Result<Command> CUDAExecutable::resolve(const artifact::Launch &launch) const {
  const artifact::Kernel &kernel = *source->kernels()->Get(launch.kernel());
  LaunchKernel command;
  command.function = kernels[launch.kernel()];
  command.grid = {kernel.grid_x(), kernel.grid_y(), kernel.grid_z()};
  command.threads = kernel.threads();
  command.sharedBytes = kernel.shared_bytes();
  for (const Slice *slice : *launch.operands())
    command.arguments.push_back(memory->address(*slice));
  return Command(std::move(command));
}

Result<Command> CUDAExecutable::resolve(const artifact::Gemm &gemm) {
  if (gemm.lhs_type() != gemm.rhs_type())
    return Error{std::string("a product of ") + typeName(gemm.lhs_type()) +
                 " and " + typeName(gemm.rhs_type()) +
                 " has no counterpart in cuBLASLt"};
  Result<unsigned> plan =
      blas->plan({int64_t(gemm.m()), int64_t(gemm.n()), int64_t(gemm.k()),
                  gemm.transpose_lhs(), gemm.transpose_rhs(), gemm.lhs_type(),
                  gemm.out_type(), gemm.beta(), memory->address(*gemm.lhs()),
                  memory->address(*gemm.rhs()), memory->address(*gemm.out()),
                  gemm.workspace() ? memory->address(*gemm.workspace()) : 0,
                  gemm.workspace() ? gemm.workspace()->size() : 0});
  if (!plan)
    return plan.takeError();
  return Command(RunGemm{*plan});
}

Result<Command> CUDAExecutable::resolve(const artifact::Fill &fill) const {
  return makeFill(fill.type(), fill.value(), memory->address(*fill.out()),
                  fill.out()->size());
}

Result<Command>
CUDAExecutable::resolve(const artifact::Initialize &initialize) const {
  const artifact::Tensor &tensor = *source->tensors()->Get(initialize.tensor());
  return Command(InitializeTensor{&tensor});
}

Result<Command> CUDAExecutable::resolve(const artifact::Command &command) {
  if (const auto *launch = command.action_as_Launch())
    return resolve(*launch);
  if (const auto *gemm = command.action_as_Gemm())
    return resolve(*gemm);
  if (const auto *fill = command.action_as_Fill())
    return resolve(*fill);
  if (const auto *copy = command.action_as_Copy())
    return Command(CopyMemory{memory->address(*copy->source()),
                              memory->address(*copy->out()),
                              copy->out()->size()});
  if (command.action_as_AllReduceStart() || command.action_as_AllReduceDone())
    return Command(PassOver{});
  return resolve(*command.action_as_Initialize());
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

Status CUDAExecutable::upload(const Slice &slice) {
  gpu->makeCurrent();
  return memory->upload(slice);
}

Status CUDAExecutable::download(const Slice &slice) {
  gpu->makeCurrent();
  return memory->download(slice);
}

Status CUDAExecutable::wait() {
  Status status = gpu->wait();
  for (ReadyEntry &entry : entries)
    entry.transfers.recycle();
  return status;
}

Status CUDAExecutable::poison(const ReadyEntry &entry) {
  const Driver &driver = gpu->driver();
  for (const Slice &slice : entry.poisoned)
    if (slice.size() != 0)
      if (Status status =
              driver.check(driver.MemsetD8Async(memory->address(slice), 0xFF,
                                                slice.size(), gpu->stream()),
                           "cuMemsetD8Async");
          !status)
        return status;
  return {};
}

/// Initial values of a tensor of `count` elements: those of a large one, which
/// do not depend on each other, on several threads.
static void initializeOnThreads(const artifact::Tensor &tensor, uint64_t seed,
                                void *data, int64_t count) {
  constexpr int64_t fewest = 1 << 16, most = 16;
  int64_t processors =
      std::max<unsigned>(std::thread::hardware_concurrency(), 1);
  int64_t pieces =
      std::clamp<int64_t>(count / fewest, 1, std::min(processors, most));
  // Elements come in fours.
  int64_t length = (count / pieces + 3) / 4 * 4;
  std::vector<std::thread> threads;
  for (int64_t begin = length; begin < count; begin += length)
    threads.emplace_back([&, begin] {
      initializeTensor(tensor, seed, data, begin,
                       std::min(begin + length, count));
    });
  initializeTensor(tensor, seed, data, 0, std::min(length, count));
  for (std::thread &thread : threads)
    thread.join();
}

/// Initial values are computed on the host, the same on every target.
Status CUDAExecutable::initialize(const InitializeTensor &command) {
  const Slice &slice = *command.tensor->slice();
  int64_t count = int64_t(slice.size() / elementBytes(command.tensor->type()));
  initializeOnThreads(*command.tensor, options.seed, memory->mirror(slice),
                      count);
  return memory->upload(slice);
}

Status CUDAExecutable::issue(const Command &command) {
  if (const auto *gemm = std::get_if<RunGemm>(&command))
    return blas->run(gemm->plan, gpu->stream());
  if (const auto *tensor = std::get_if<InitializeTensor>(&command))
    return initialize(*tensor);
  return issueCommand(gpu->driver(), command, gpu->stream());
}

Result<std::optional<NonFinite>>
CUDAExecutable::findNonFinite(size_t command,
                              const std::vector<FloatOutput> &outputs) {
  const Driver &driver = gpu->driver();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Slice &slice = outputs[i].slice;
    if (slice.size() == 0)
      continue;
    if (Status status = driver.check(
            driver.MemcpyDtoHAsync(checked.data(), memory->address(slice),
                                   slice.size(), gpu->stream()),
            "cuMemcpyDtoHAsync");
        !status)
      return Error{status.message()};
    if (Status status = gpu->wait(); !status)
      return Error{status.message()};
    if (std::optional<NonFinite> found =
            nsa::findNonFinite(command, i, outputs[i], checked.data()))
      return found;
  }
  return std::optional<NonFinite>();
}

Status CUDAExecutable::mark(const ReadyEntry &entry, size_t event) {
  if (!options.profile)
    return {};
  return gpu->driver().check(
      gpu->driver().EventRecord(entry.events[event], gpu->stream()),
      "cuEventRecord");
}

/// How long the GPU took for each command. Its clock shows differences only;
/// the first command began at `start` of the host's, and after all others.
Status CUDAExecutable::readTimes(ReadyEntry &entry, uint64_t start) {
  const Driver &driver = gpu->driver();
  if (Status status = wait(); !status)
    return status;
  start = std::max(start, measuredUntil);
  for (size_t i = 0; i < entry.commands.size(); ++i) {
    float milliseconds = 0;
    if (Status status =
            driver.check(driver.EventElapsedTime(&milliseconds, entry.events[i],
                                                 entry.events[i + 1]),
                         "cuEventElapsedTime");
        !status)
      return status;
    entry.lastRun[i] = {start, uint64_t(double(milliseconds) * 1e6)};
    entry.nanoseconds[i] += entry.lastRun[i].nanoseconds;
    start += entry.lastRun[i].nanoseconds;
  }
  measuredUntil = start;
  return {};
}

/// One command after the other.
RunResult CUDAExecutable::runCommands(ReadyEntry &entry) {
  uint64_t start = steadyNanoseconds();
  size_t count = entry.commands.size();
  for (size_t i = 0; i < count; ++i) {
    Status status = mark(entry, i);
    if (status.ok())
      status = issue(entry.commands[i]);
    if (status.ok() && options.checkFinite)
      status = gpu->wait();
    if (!status)
      return RunFailure{i, status.message()};
    if (!options.checkFinite)
      continue;
    Result<std::optional<NonFinite>> found = findNonFinite(i, entry.results[i]);
    if (!found)
      return RunFailure{i, found.message()};
    if (*found)
      return **found;
  }
  Status status = mark(entry, count);
  if (status.ok() && options.profile)
    status = readTimes(entry, start);
  if (!status)
    return RunFailure{std::nullopt, status.message()};
  return std::monostate();
}

/// Records the commands as a graph, which nothing changes: what differs from
/// run to run is in memory.
Status CUDAExecutable::capture(ReadyEntry &entry) {
  constexpr int relaxed = 2;
  const Driver &driver = gpu->driver();
  Graph graph = nullptr;
  if (Status status =
          driver.check(driver.StreamBeginCapture(gpu->stream(), relaxed),
                       "cuStreamBeginCapture");
      !status)
    return status;
  Status issued;
  for (const Command &command : entry.commands)
    if (issued.ok())
      issued = issue(command);
  Status ended = driver.check(driver.StreamEndCapture(gpu->stream(), &graph),
                              "cuStreamEndCapture");
  if (!issued)
    return issued;
  if (!ended)
    return ended;
  Status status = driver.check(driver.GraphInstantiate(&entry.graph, graph, 0),
                               "cuGraphInstantiate");
  driver.GraphDestroy(graph);
  return status;
}

RunResult CUDAExecutable::start(unsigned index) {
  ReadyEntry &entry = entries[index];
  gpu->makeCurrent();
  if (Status status = entry.transfers.send(); !status)
    return RunFailure{std::nullopt, status.message()};
  if (Status status = poison(entry); !status)
    return RunFailure{std::nullopt, status.message()};
  bool usesGraph = entry.mayCapture && !options.profile && !options.checkFinite;
  if (usesGraph && entry.ranOnce && !entry.graph)
    if (Status status = capture(entry); !status)
      return RunFailure{std::nullopt, status.message()};
  entry.ranOnce = true;
  if (!entry.graph)
    return runCommands(entry);
  Status status = gpu->driver().check(
      gpu->driver().GraphLaunch(entry.graph, gpu->stream()), "cuGraphLaunch");
  if (!status)
    return RunFailure{std::nullopt, status.message()};
  return std::monostate();
}

RunResult CUDAExecutable::finish(unsigned index) {
  ReadyEntry &entry = entries[index];
  gpu->makeCurrent();
  Status status = entry.transfers.fetch();
  if (Status waited = wait(); status.ok())
    status = waited;
  if (!status)
    return RunFailure{std::nullopt,
                      status.message() + (options.checkFinite
                                              ? ""
                                              : "; --no-graph names the "
                                                "command that failed")};
  entry.transfers.deliver();
  return std::monostate();
}

Result<std::optional<GPUPeaks>> CUDAExecutable::measureGPU() {
  gpu->makeCurrent();
  Result<GPUPeaks> peaks = measurePeaks(*gpu, options.blasLibrary);
  if (!peaks)
    return Error{"the GPU cannot be measured: " + peaks.message()};
  return std::optional<GPUPeaks>(std::move(*peaks));
}

Result<std::unique_ptr<Executable>>
nsa::createCUDAExecutable(const Artifact &artifact,
                          const RuntimeOptions &options) {
  auto executable = std::make_unique<CUDAExecutable>(artifact, options);
  if (Status status = executable->load(); !status)
    return Error{status.message()};
  return std::unique_ptr<Executable>(std::move(executable));
}
