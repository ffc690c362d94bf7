//===- HostCommunicator.cpp - reductions beside the computation -----------===//

#include "runtime/Distributed/HostCommunicator.h"
#include "lib/Support/Float16.h"
#include "runtime/Distributed/SignalBlockedThread.h"

#include <cstring>
#include <optional>
#include <vector>

namespace nsa {

/// How often a rank that waits asks whether another one has stopped the run,
/// which would not come to a reduction.
static constexpr Milliseconds askEvery{200};

/// How long a reduction may go on after another rank was lost. Its connections
/// end with that rank, but Gloo can miss it.
static constexpr Milliseconds mostAfterLoss{1000};

HostCommunicator::HostCommunicator(std::unique_ptr<Reducer> made,
                                   StoreClient &store,
                                   std::unique_ptr<Reducer> sharers,
                                   int sequenceRanks)
    : reducer(std::move(made)), sharers(std::move(sharers)),
      sequenceRanks(sequenceRanks), store(store) {
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
                                 DataType type, const SequenceRows &rows) {
  std::lock_guard<std::mutex> lock(mutex);
  waiting.push_back({kind, data, count, type, rows});
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
  uint64_t bytes = job.bytes();
  store.progress(number, bytes);
  Status status = communicate(job);
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

/// Sums of parts are those of all, too: the ring algorithm sums all parts
/// before it sends any.
Status HostCommunicator::communicate(const Job &job) {
  switch (job.kind) {
  case CollectiveKind::AllReduce:
  case CollectiveKind::ReduceScatter:
    return reduce(job);
  case CollectiveKind::AllGather:
    return reducer->gather(job.data, int64_t(job.bytes()));
  case CollectiveKind::GatherSequence:
  case CollectiveKind::ReduceScatterSequence:
    return communicateSequences(job);
  }
  return Error{"a collective of another kind"};
}

/// The chunks of a rank are gathered together. Sums are made in place, but not
/// of what the program has.
Status HostCommunicator::communicateSequences(const Job &job) {
  auto *data = static_cast<char *>(job.data);
  uint64_t ranks = uint64_t(sequenceRanks), own = uint64_t(rank()) % ranks;
  uint64_t rows = 2 * uint64_t(job.rows.sequences);
  uint64_t bytes = job.bytes() / (ranks * rows);
  auto offset = [&](uint64_t of, uint64_t row) {
    return (row / 2 * 2 * ranks + chunkOf(row, of, ranks)) * bytes;
  };
  auto rowEnd = [&](uint64_t row) {
    return static_cast<char *>(job.rows.data) +
           (row + 1) * uint64_t(job.rows.bytes) - bytes;
  };
  std::vector<char> all(data, data + job.bytes());
  if (job.kind == CollectiveKind::ReduceScatterSequence) {
    NSA_RETURN_IF_ERROR(sharers->sum(all.data(), job.count, job.type));
    for (uint64_t row = 0; row < rows; ++row)
      std::memcpy(rowEnd(row), &all[offset(own, row)], bytes);
    return {};
  }
  for (uint64_t row = 0; row < rows; ++row)
    std::memcpy(&all[(own * rows + row) * bytes], rowEnd(row), bytes);
  NSA_RETURN_IF_ERROR(sharers->gather(all.data(), int64_t(all.size())));
  for (uint64_t other = 0; other < ranks; ++other)
    for (uint64_t row = 0; row < rows; ++row)
      std::memcpy(data + offset(other, row), &all[(other * rows + row) * bytes],
                  bytes);
  return {};
}

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
