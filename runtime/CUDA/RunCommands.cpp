//===- RunCommands.cpp - running entries on a GPU -------------------------===//

#include "lib/Support/Clock.h"
#include "runtime/CPU/Initialize.h"
#include "runtime/CUDA/CUDAExecutableImpl.h"
#include "runtime/CUDA/Peaks.h"

#include <algorithm>
#include <thread>

using namespace nsa;
using namespace nsa::cuda;
using artifact::Slice;

Status CUDAExecutable::upload(const Slice &slice) {
  CurrentGPU current(*gpu);
  return memory->upload(slice);
}

Status CUDAExecutable::pinHost() {
  CurrentGPU current(*gpu);
  return memory->pin(source.root());
}

Status CUDAExecutable::download(const Slice &slice) {
  CurrentGPU current(*gpu);
  return memory->download(slice);
}

/// Waits for the stream; not forever for other ranks.
Status CUDAExecutable::synchronize() {
  return reductions ? reductions->wait() : gpu->wait();
}

Status CUDAExecutable::wait() {
  Status status = synchronize();
  if (status.ok() && reductions)
    status = reductions->endRun();
  for (ReadyEntry &entry : entries)
    entry.transfers.recycle();
  return status;
}

Status CUDAExecutable::poison(const ReadyEntry &entry) {
  const Driver &driver = gpu->driver();
  for (const Slice &slice : entry.poisoned)
    if (slice.size() != 0)
      NSA_RETURN_IF_ERROR(
          driver.check(driver.MemsetD8Async(address(slice), 0xFF, slice.size(),
                                            gpu->stream()),
                       "cuMemsetD8Async"));
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

Status CUDAExecutable::issue(const Command &command, Stream stream) {
  if (const auto *gemm = std::get_if<RunGemm>(&command))
    return blas->run(gemm->plan, gemm->memory, stream);
  if (const auto *tensor = std::get_if<InitializeTensor>(&command))
    return initialize(*tensor);
  if (const auto *start = std::get_if<StartReduction>(&command))
    return reductions->start(start->number);
  if (const auto *finish = std::get_if<FinishReduction>(&command))
    return reductions->finish(finish->number, finish->first, finish->isLast);
  return issueCommand(gpu->driver(), command, stream);
}

/// Copies what is in a slice to the host's memory.
Status CUDAExecutable::download(const Slice &slice, void *data) {
  const Driver &driver = gpu->driver();
  NSA_RETURN_IF_ERROR(driver.check(
      driver.MemcpyDtoHAsync(data, address(slice), slice.size(), gpu->stream()),
      "cuMemcpyDtoHAsync"));
  return gpu->wait();
}

/// Fails if a command would read what it ignores.
Status
CUDAExecutable::checkSelections(const std::vector<SelectionInput> &inputs) {
  for (const SelectionInput &input : inputs) {
    if (input.slice.size() == 0)
      continue;
    NSA_RETURN_IF_ERROR(download(input.slice, checked.data()));
    if (std::string bad = findBadSelection(input, checked.data()); !bad.empty())
      return Error{bad};
  }
  return {};
}

Result<std::optional<NonFinite>>
CUDAExecutable::findNonFinite(size_t command,
                              const std::vector<FloatOutput> &outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Slice &slice = outputs[i].slice;
    if (slice.size() == 0)
      continue;
    NSA_RETURN_IF_ERROR(download(slice, checked.data()));
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

/// When a reduction ran, which is beside the commands, in an entry whose first
/// command began at `start`; nothing for other commands.
Result<std::optional<CommandSpan>>
CUDAExecutable::readReduction(const ReadyEntry &entry, size_t command,
                              uint64_t start) {
  const auto *reduction = std::get_if<StartReduction>(&entry.commands[command]);
  if (!reduction)
    return std::optional<CommandSpan>();
  Result<std::pair<double, double>> times =
      reductions->measured(reduction->number, entry.events[0]);
  if (!times)
    return times.takeError();
  auto [begin, end] = *times;
  return std::optional<CommandSpan>(
      {start + uint64_t(begin * 1e6), uint64_t((end - begin) * 1e6)});
}

/// How long the GPU took for each command. Its clock shows differences only;
/// the first command began at `start` of the host's, and after all others.
Status CUDAExecutable::readTimes(ReadyEntry &entry, uint64_t start) {
  const Driver &driver = gpu->driver();
  NSA_RETURN_IF_ERROR(wait());
  start = std::max(start, measuredUntil);
  uint64_t begin = start;
  for (size_t i = 0; i < entry.commands.size(); ++i) {
    NSA_ASSIGN_OR_RETURN(std::optional<CommandSpan> reduction,
                         readReduction(entry, i, begin));
    if (reduction) {
      entry.lastRun[i] = *reduction;
      entry.nanoseconds[i] += entry.lastRun[i].nanoseconds;
      continue;
    }
    float milliseconds = 0;
    NSA_RETURN_IF_ERROR(
        driver.check(driver.EventElapsedTime(&milliseconds, entry.events[i],
                                             entry.events[i + 1]),
                     "cuEventElapsedTime"));
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
    if (status.ok() && options.checkFinite)
      status = checkSelections(entry.selections[i]);
    if (status.ok())
      status = issue(entry.commands[i], gpu->stream());
    if (status.ok() && options.checkFinite)
      status = synchronize();
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
  NSA_RETURN_IF_ERROR(
      driver.check(driver.StreamBeginCapture(gpu->stream(), relaxed),
                   "cuStreamBeginCapture"));
  Status issued;
  if (reductions)
    reductions->setCapturing(true);
  for (const Command &command : entry.commands)
    if (issued.ok())
      issued = issue(command, gpu->stream());
  if (reductions)
    reductions->setCapturing(false);
  Status ended = driver.check(driver.StreamEndCapture(gpu->stream(), &graph),
                              "cuStreamEndCapture");
  if (!issued || !ended) {
    if (graph)
      driver.GraphDestroy(graph);
    return issued ? ended : issued;
  }
  Status status = driver.check(driver.GraphInstantiate(&entry.graph, graph, 0),
                               "cuGraphInstantiate");
  driver.GraphDestroy(graph);
  return status;
}

/// Lets what comes on a stream wait for what is on another one.
Status CUDAExecutable::order(Event &event, Stream before, Stream after) {
  const Driver &driver = gpu->driver();
  if (!event)
    NSA_RETURN_IF_ERROR(
        driver.check(driver.EventCreate(&event, kNoTiming), "cuEventCreate"));
  NSA_RETURN_IF_ERROR(
      driver.check(driver.EventRecord(event, before), "cuEventRecord"));
  return driver.check(driver.StreamWaitEvent(after, event, 0),
                      "cuStreamWaitEvent");
}

/// The driver's handle of a stream.
static Stream toStream(uint64_t number) {
  return reinterpret_cast<Stream>(number); // NOLINT(performance-no-int-to-ptr)
}

Status CUDAExecutable::waitFor(uint64_t stream) {
  CurrentGPU current(*gpu);
  Stream callers = toStream(stream);
  int recording = 0;
  NSA_RETURN_IF_ERROR(
      gpu->driver().check(gpu->driver().StreamIsCapturing(callers, &recording),
                          "cuStreamIsCapturing"));
  isRecorded = recording != 0;
  return order(given, callers, gpu->stream());
}

Status CUDAExecutable::release(uint64_t stream) {
  CurrentGPU current(*gpu);
  isRecorded = false;
  return order(done, gpu->stream(), toStream(stream));
}

RunResult CUDAExecutable::start(unsigned index) {
  bound = &entries[index].bindings;
  RunResult result = startBound(entries[index]);
  bound = &none;
  return result;
}

RunResult CUDAExecutable::startBound(ReadyEntry &entry) {
  CurrentGPU current(*gpu);
  if (Status status = entry.transfers.send(); !status)
    return RunFailure{std::nullopt, status.message()};
  if (Status status = poison(entry); !status)
    return RunFailure{std::nullopt, status.message()};
  bool usesGraph = entry.mayCapture && !options.profile &&
                   !options.checkFinite && !isRecorded;
  // Callers' arrays may be others in the next run already.
  constexpr unsigned fewestOfBound = 8;
  unsigned fewest = entry.bindings == none ? 1 : fewestOfBound;
  if (usesGraph && entry.runs >= fewest && !entry.graph)
    if (Status status = capture(entry); !status)
      return RunFailure{std::nullopt, status.message()};
  ++entry.runs;
  if (entry.numReductions != 0)
    reductions->beginRun(entry.firstReduction, entry.numReductions);
  if (!entry.graph || isRecorded)
    return runCommands(entry);
  Status status = gpu->driver().check(
      gpu->driver().GraphLaunch(entry.graph, gpu->stream()), "cuGraphLaunch");
  if (!status)
    return RunFailure{std::nullopt, status.message()};
  return std::monostate();
}

/// The program has no memory that another run could use meanwhile, so that the
/// order of the caller's stream is all there is to keep.
RunResult CUDAExecutable::enqueue(unsigned index, uint64_t stream) {
  CurrentGPU current(*gpu);
  hasEnqueued = true;
  const std::vector<Command> &commands = entries[index].commands;
  for (size_t i = 0; i < commands.size(); ++i)
    if (Status status = issue(commands[i], toStream(stream)); !status)
      return RunFailure{i, status.message()};
  return std::monostate();
}

RunResult CUDAExecutable::finish(unsigned index) {
  ReadyEntry &entry = entries[index];
  CurrentGPU current(*gpu);
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
  CurrentGPU current(*gpu);
  Result<GPUPeaks> peaks = measurePeaks(*gpu, options.blasLibrary);
  if (!peaks)
    return Error{"the GPU cannot be measured: " + peaks.message()};
  return std::optional<GPUPeaks>(std::move(*peaks));
}
