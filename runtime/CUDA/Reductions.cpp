//===- Reductions.cpp - averages over the GPUs of a run -------------------===//

#include "runtime/CUDA/Reductions.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <utility>

using namespace nsa;
using namespace nsa::cuda;

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// How often the host looks how far the GPU is, and asks for the other ranks.
static constexpr milliseconds lookEvery{100}, askEvery{1000};

/// How long the ranks may take to connect, if a reduction may not take longer.
static constexpr milliseconds leastToConnect{120000};

Result<std::unique_ptr<Reductions>>
Reductions::open(const GPU &gpu, ProcessGroup &group,
                 const std::string &library) {
  NSA_ASSIGN_OR_RETURN(std::unique_ptr<Nccl> nccl, Nccl::open(library));
  NSA_ASSIGN_OR_RETURN(PinnedMemory words,
                       PinnedMemory::allocate(gpu, sizeof(Progress)));
  std::unique_ptr<Reductions> made(new Reductions(gpu, group));
  made->nccl = std::move(nccl);
  made->words = std::move(words);
  made->progress = reinterpret_cast<Progress *>(made->words.data());
  made->beginRun(0, 0);
  NSA_RETURN_IF_ERROR(made->makeStream());
  return made;
}

Status Reductions::makeStream() {
  const Driver &driver = gpu->driver();
  // The few thread blocks of a collective take the next free multiprocessors:
  // after those of a launch they would wait for its last wave.
  int greatest = 0;
  NSA_RETURN_IF_ERROR(
      driver.check(driver.CtxGetStreamPriorityRange(nullptr, &greatest),
                   "cuCtxGetStreamPriorityRange"));
  return driver.check(
      driver.StreamCreateWithPriority(&stream, kNonBlocking, greatest),
      "cuStreamCreateWithPriority");
}

Result<Event> Reductions::makeEvent(bool timed) {
  Event event = nullptr;
  NSA_RETURN_IF_ERROR(gpu->driver().check(
      gpu->driver().EventCreate(&event, timed ? 0 : kNoTiming),
      "cuEventCreate"));
  return event;
}

Reductions::~Reductions() {
  const Driver &driver = gpu->driver();
  nccl.reset();
  auto destroy = [&](Event event) {
    if (event)
      driver.EventDestroy(event);
  };
  for (const Reduction &reduction : reductions)
    for (Event event : {reduction.ready, reduction.begun, reduction.done,
                        reduction.waitBegin, reduction.waitEnd})
      destroy(event);
  if (numbers)
    driver.MemFree(numbers);
  if (stream)
    driver.StreamDestroy(stream);
}

Result<unsigned> Reductions::add(const Collective &collective, bool grouped,
                                 bool measure) {
  if (!std::exchange(isOpen, grouped)) {
    Reduction &made = reductions.emplace_back();
    for (Event *event : {&made.ready, &made.begun, &made.done}) {
      NSA_ASSIGN_OR_RETURN(*event, makeEvent(measure && event != &made.ready));
    }
  }
  reductions.back().group.push_back(collective);
  reductions.back().bytes += collective.bytes();
  return unsigned(reductions.size() - 1);
}

//===----------------------------------------------------------------------===//
// Connecting
//===----------------------------------------------------------------------===//

/// Puts the numbers that `tell` shows on the GPU.
Status Reductions::shareNumbers() {
  const Driver &driver = gpu->driver();
  std::vector<uint32_t> values(reductions.size() + 1);
  std::iota(values.begin(), values.end(), 0);
  uint64_t bytes = values.size() * sizeof(uint32_t);
  NSA_RETURN_IF_ERROR(
      driver.check(driver.MemAlloc(&numbers, bytes), "cuMemAlloc"));
  NSA_RETURN_IF_ERROR(driver.check(
      driver.MemcpyHtoDAsync(numbers, values.data(), bytes, gpu->stream()),
      "cuMemcpyHtoDAsync"));
  return gpu->wait();
}

/// The name of the run, which the first rank makes.
Result<std::string> Reductions::shareId() {
  if (group->rank() != 0)
    return group->get("nccl");
  Result<std::string> id = nccl->makeId();
  if (!id)
    return id;
  NSA_RETURN_IF_ERROR(group->set("nccl", *id));
  return id;
}

Status Reductions::connect(int sequenceRanks) {
  NSA_RETURN_IF_ERROR(shareNumbers());
  NSA_ASSIGN_OR_RETURN(std::string id, shareId());
  // NCCL waits without end for ranks that never join.
  struct Attempt {
    std::atomic<bool> hasEnded{false};
    Status status;
  };
  auto attempt = std::make_shared<Attempt>();
  std::thread thread([this, attempt, id, sequenceRanks] {
    gpu->makeCurrent();
    attempt->status =
        nccl->connect(id, group->rank(), group->size(), sequenceRanks);
    if (attempt->status)
      attempt->status = warmUp();
    attempt->hasEnded = true;
  });
  Clock::time_point begin = Clock::now(), nextQuestion = begin + askEvery;
  std::string why;
  while (!attempt->hasEnded && why.empty()) {
    std::this_thread::sleep_for(milliseconds(1));
    Clock::time_point now = Clock::now();
    if (now < nextQuestion)
      continue;
    nextQuestion = now + askEvery;
    why = group->peerFailure();
    if (why.empty() && now - begin > std::max(group->timeout(), leastToConnect))
      why = "the ranks did not connect in time";
  }
  if (!attempt->hasEnded) {
    thread.detach();
    return fail(why);
  }
  thread.join();
  return attempt->status;
}

Status Reductions::warmUp() {
  for (const Reduction &reduction : reductions)
    NSA_RETURN_IF_ERROR(nccl->run(reduction.group, stream));
  return gpu->driver().check(gpu->driver().StreamSynchronize(stream),
                             "cuStreamSynchronize");
}

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

/// Shows the host a number.
Status Reductions::tell(volatile uint32_t &word, uint32_t value) {
  return gpu->driver().check(
      gpu->driver().MemcpyDtoHAsync(const_cast<uint32_t *>(&word),
                                    numbers + value * sizeof(uint32_t),
                                    sizeof(uint32_t), stream),
      "cuMemcpyDtoHAsync");
}

Status Reductions::start(unsigned number) {
  const Driver &driver = gpu->driver();
  const Reduction &reduction = reductions[number];
  NSA_RETURN_IF_ERROR(driver.check(
      driver.EventRecord(reduction.ready, gpu->stream()), "cuEventRecord"));
  NSA_RETURN_IF_ERROR(driver.check(
      driver.StreamWaitEvent(stream, reduction.ready, 0), "cuStreamWaitEvent"));
  NSA_RETURN_IF_ERROR(tell(progress->begun, number + 1));
  NSA_RETURN_IF_ERROR(driver.check(driver.EventRecord(reduction.begun, stream),
                                   "cuEventRecord"));
  NSA_RETURN_IF_ERROR(nccl->run(reduction.group, stream));
  NSA_RETURN_IF_ERROR(tell(progress->ended, number + 1));
  return driver.check(driver.EventRecord(reduction.done, stream),
                      "cuEventRecord");
}

Status Reductions::finish(unsigned number, unsigned first, bool isLast) {
  const Driver &driver = gpu->driver();
  auto mark = [&](Event &event) -> Status {
    if (!event) {
      NSA_ASSIGN_OR_RETURN(event, makeEvent(/*timed=*/true));
    }
    return driver.check(driver.EventRecordWithFlags(event, gpu->stream(),
                                                    capturing ? kExternal : 0),
                        "cuEventRecordWithFlags");
  };
  if (number == first)
    NSA_RETURN_IF_ERROR(mark(reductions[first].waitBegin));
  NSA_RETURN_IF_ERROR(driver.check(
      driver.StreamWaitEvent(gpu->stream(), reductions[number].done, 0),
      "cuStreamWaitEvent"));
  return isLast ? mark(reductions[first].waitEnd) : Status();
}

//===----------------------------------------------------------------------===//
// Watching
//===----------------------------------------------------------------------===//

/// Tells the other ranks how far this one is.
void Reductions::report(uint32_t begun) {
  if (begun > run.first)
    group->progress(total + begun - run.first, reductions[begun - 1].bytes);
}

Status Reductions::fail(const std::string &why) {
  group->abortRun();
  std::string where;
  if (uint32_t begun = progress->begun; begun != progress->ended) {
    report(begun);
    where = " in reduction " + std::to_string(total + begun - run.first) +
            " of " + std::to_string(reductions[begun - 1].bytes) + " bytes";
  }
  return Error{"rank " + std::to_string(group->rank()) + where + ": " + why};
}

/// Why waiting must stop; empty to go on.
std::string Reductions::findFailure(Clock::duration sinceProgress) {
  if (sinceProgress > group->timeout())
    return "time-out after " +
           std::to_string(
               std::chrono::duration_cast<std::chrono::seconds>(sinceProgress)
                   .count()) +
           " s [" + group->rankStatus() + "]";
  if (Status status = nccl->health(); !status)
    return status.message() + " [" + group->rankStatus() + "]";
  return group->peerFailure();
}

Status Reductions::wait() {
  const Driver &driver = gpu->driver();
  Clock::time_point lastProgress = Clock::now(),
                    nextLook = lastProgress + lookEvery,
                    nextQuestion = lastProgress + askEvery;
  uint32_t begun = 0, ended = 0;
  int code = 0;
  while ((code = driver.StreamQuery(gpu->stream())) == kNotReady) {
    Clock::time_point now = Clock::now();
    if (now < nextLook) {
      // A rank that waits for another one leaves it the processor.
      if (now - lastProgress < std::chrono::seconds(1))
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      continue;
    }
    nextLook = now + lookEvery;
    bool hasMoved = progress->begun != begun || progress->ended != ended;
    begun = progress->begun;
    ended = progress->ended;
    if (hasMoved)
      report(begun);
    // Time passes in computations, too.
    if (hasMoved || begun == ended)
      lastProgress = now;
    // This rank has given up meanwhile: what another one misses never ends.
    if (hasFailed())
      return fail("the run was ended");
    if (now < nextQuestion)
      continue;
    nextQuestion = now + askEvery;
    if (std::string why = findFailure(now - lastProgress); !why.empty())
      return fail(why);
  }
  return driver.check(code, "cuStreamQuery");
}

void Reductions::beginRun(unsigned first, unsigned count) {
  run = {first, count};
  if (count != 0)
    runs.push_back(run);
  // Nothing is on the stream, and what a run before has told is no progress.
  progress->begun = progress->ended = 0;
}

Status Reductions::endRun() {
  if (run.count == 0)
    return {};
  report(run.first + run.count);
  total += run.count;
  beginRun(0, 0);
  for (auto [first, count] : std::exchange(runs, {}))
    for (unsigned number = first; number < first + count; ++number) {
      const Reduction &reduction = reductions[number];
      if (!reduction.waitEnd)
        continue;
      float milliseconds = 0;
      NSA_RETURN_IF_ERROR(gpu->driver().check(
          gpu->driver().EventElapsedTime(&milliseconds, reduction.waitBegin,
                                         reduction.waitEnd),
          "cuEventElapsedTime"));
      waited += double(milliseconds) / 1e3;
    }
  return {};
}

Result<std::pair<double, double>> Reductions::measured(unsigned number,
                                                       Event origin) {
  float begin = 0, end = 0;
  const Driver &driver = gpu->driver();
  for (auto [event, milliseconds] :
       {std::pair{reductions[number].begun, &begin},
        std::pair{reductions[number].done, &end}})
    NSA_RETURN_IF_ERROR(
        driver.check(driver.EventElapsedTime(milliseconds, origin, event),
                     "cuEventElapsedTime"));
  return std::pair{double(begin), double(end)};
}
