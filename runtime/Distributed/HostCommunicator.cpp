//===- HostCommunicator.cpp - reductions beside the computation -----------===//

#include "runtime/Distributed/HostCommunicator.h"
#include "lib/Support/Float16.h"
#include "runtime/Distributed/SignalBlockedThread.h"

#include <optional>

namespace nsa {

/// How often a rank that waits asks whether another one has stopped the run,
/// which would not come to a reduction.
static constexpr Milliseconds askEvery{200};

/// How long a reduction may go on after another rank was lost. Its connections
/// end with that rank, but Gloo can miss it.
static constexpr Milliseconds mostAfterLoss{1000};

HostCommunicator::HostCommunicator(std::unique_ptr<Reducer> made,
                                   StoreClient &store)
    : reducer(std::move(made)), store(store) {
  thread = startSignalBlockedThread([this] { work(); });
}

HostCommunicator::~HostCommunicator() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  changed.notify_all();
  thread.join();
}

uint64_t HostCommunicator::start(CollectiveKind kind, void *data, int64_t count,
                                 DataType type) {
  std::lock_guard<std::mutex> lock(mutex);
  waiting.push_back({kind, data, count, type});
  changed.notify_all();
  return ++started;
}

Status HostCommunicator::wait(uint64_t number) {
  auto begin = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(mutex);
  auto isOver = [&] { return finished >= number || !failure; };
  std::string stop;
  std::optional<std::chrono::steady_clock::time_point> end;
  while (!changed.wait_for(lock, askEvery, isOver) && stop.empty()) {
    stop = store.stopReason();
    std::string text = store.peerFailure();
    auto now = std::chrono::steady_clock::now();
    if (!text.empty() && !end)
      end = now + mostAfterLoss;
    if (end && now >= *end && stop.empty())
      fail(Error{"rank " + std::to_string(rank()) + " in reduction " +
                 std::to_string(finished + 1) + ": " + text});
  }
  waited +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  if (finished >= number)
    return {};
  return stop.empty() ? failure : Error{stop};
}

void HostCommunicator::fail(Status why) {
  failure = std::move(why);
  store.abortRun();
}

void HostCommunicator::work() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stopping || !waiting.empty(); });
    if (stopping)
      return;
    Job job = waiting.front();
    waiting.pop_front();
    uint64_t number = finished + 1;
    lock.unlock();
    Status status = run(job, number);
    lock.lock();
    if (status)
      finished = number;
    else
      fail(status);
    changed.notify_all();
    if (!status)
      return;
  }
}

Status HostCommunicator::run(const Job &job, uint64_t number) {
  uint64_t bytes = uint64_t(job.count) * elementBytes(job.type);
  store.progress(number, bytes);
  Status status = job.kind == CollectiveKind::AllGather
                      ? reducer->gather(job.data, int64_t(bytes))
                      : reduce(job);
  if (status)
    return {};
  return Error{"rank " + std::to_string(rank()) + " in reduction " +
               std::to_string(number) + " of " + std::to_string(bytes) +
               " bytes: " + status.message() + " [" + findCause() + "]"};
}

/// Why a reduction failed. Its connections may end a little before the store
/// knows which rank was lost.
std::string HostCommunicator::findCause() {
  for (int i = 0; i < 20; ++i) {
    if (std::string loss = store.peerFailure(); !loss.empty())
      return loss;
    std::this_thread::sleep_for(Milliseconds(50));
  }
  return store.rankStatus();
}

/// Of a part, too: the ring algorithm sums all parts before it sends any.
Status HostCommunicator::reduce(const Job &job) {
  NSA_RETURN_IF_ERROR(reducer->sum(job.data, job.count, job.type));
  const float share = 1.0f / float(size());
  if (job.type == DataType::F32) {
    auto *data = static_cast<float *>(job.data);
    for (int64_t i = 0; i < job.count; ++i)
      data[i] *= share;
    return {};
  }
  auto *data = static_cast<uint16_t *>(job.data);
  for (int64_t i = 0; i < job.count; ++i)
    data[i] = floatToBF16(bf16ToFloat(data[i]) * share);
  return {};
}

} // namespace nsa
