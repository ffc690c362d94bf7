//===- HostCommunicator.h - reductions beside the computation ---*- C++ -*-===//

#ifndef NSA_RUNTIME_DISTRIBUTED_HOSTCOMMUNICATOR_H
#define NSA_RUNTIME_DISTRIBUTED_HOSTCOMMUNICATOR_H

#include "nsa/Runtime/Communicator.h"
#include "runtime/Distributed/Reducer.h"
#include "runtime/Distributed/Store.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace nsa {

/// Runs the reductions of a rank one after the other on a thread of its own.
/// After one has failed, all fail, and the run is over.
class HostCommunicator final : public Communicator {
public:
  /// `store` outlives it. `sharers` connects the `sequenceRanks` ranks that
  /// share sequences with this one; null where none do.
  HostCommunicator(std::unique_ptr<Reducer> reducer, StoreClient &store,
                   std::unique_ptr<Reducer> sharers = nullptr,
                   int sequenceRanks = 1);

  /// Waits for the reduction that is running.
  ~HostCommunicator() override;

  int rank() const override { return store.rank(); }
  int size() const override { return store.size(); }
  uint64_t start(CollectiveKind kind, void *data, int64_t count, DataType type,
                 const SequenceRows &rows) override;
  /// Fails also when a rank has stopped the run or was lost; the reduction may
  /// go on then.
  Status wait(uint64_t number) override;

  /// Seconds spent in `wait` so far.
  double waitedSeconds() const { return waited; }

private:
  struct Job {
    CollectiveKind kind;
    void *data;
    int64_t count;
    DataType type;
    SequenceRows rows;

    uint64_t bytes() const { return uint64_t(count) * elementBytes(type); }
  };

  void work();
  void fail(Status why);
  Status run(const Job &job, uint64_t number);
  Status communicate(const Job &job);
  Status reduce(const Job &job);
  Status communicateSequences(const Job &job);
  std::string findCause();

  std::unique_ptr<Reducer> reducer, sharers;
  int sequenceRanks;
  StoreClient &store;

  std::mutex mutex;
  std::condition_variable changed;
  /// Those that have not begun.
  std::deque<Job> waiting;
  uint64_t started = 0, finished = 0;
  Status failure;
  bool stopping = false;
  /// Of the thread that waits.
  double waited = 0;
  std::thread thread;
};

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_HOSTCOMMUNICATOR_H
