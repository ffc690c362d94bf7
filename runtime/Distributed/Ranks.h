//===- Ranks.h - the ranks of a run -----------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DISTRIBUTED_RANKS_H
#define NSA_RUNTIME_DISTRIBUTED_RANKS_H

#include "runtime/Distributed/HostCommunicator.h"
#include "runtime/Distributed/RankEnvironment.h"

#include <memory>
#include <string>
#include <vector>

namespace nsa {

struct RanksOptions {
  /// How long a rank may keep the others waiting.
  Milliseconds timeout{300000};
  /// The plug-in that reduces in memory of the host; empty for ranks that
  /// reduce on their GPUs.
  std::string plugin;
  /// What tells this run from others that may use the same port, and the token
  /// that its ranks know.
  RunIdentity identity;
  /// Whether the store may be served without a token where other machines reach
  /// it.
  bool trustNetwork = false;
  /// Ranks that share sequences: neighbours, of which there are as many.
  int sequenceRanks = 1;
};

/// What a rank sees of all ranks of its run.
class Ranks {
public:
  /// One rank alone.
  Ranks();

  /// Meets the other ranks, and connects to all of them. `failure` says what
  /// kind a failure is.
  static Result<std::unique_ptr<Ranks>> join(const RankEnvironment &environment,
                                             const RanksOptions &options,
                                             StoreFailure *failure = nullptr);

  /// Ends the communication; see `leave`.
  ~Ranks();

  int rank() const { return environment.rank; }
  int size() const { return environment.size; }
  bool isFirst() const { return environment.rank == 0; }
  /// Ranks on this machine, and this one's number among them.
  int localSize() const { return environment.localSize; }
  int localRank() const { return environment.localRank; }

  /// What reduces in memory of the host; null where there is one rank, and for
  /// ranks that reduce on their GPUs.
  Communicator *communicator() const { return reductions.get(); }

  /// The process group; null where there is one rank.
  ProcessGroup *processGroup() const { return store.get(); }

  /// Waits for all ranks at a point `name` of the run, and returns what each
  /// gave, by rank. Ranks that are at work are waited for until `most`, if that
  /// is more than the time-out.
  Result<std::vector<std::string>>
  exchange(const std::string &name, const std::string &payload,
           Milliseconds most = Milliseconds(0));

  /// The same where only some ranks may have failed: the error names the first
  /// of them and what it says.
  Status synchronizeStatus(const std::string &name, const Status &own,
                           Milliseconds most = Milliseconds(0));

  /// Checks that all ranks have the same text; `what` says what it is.
  Status checkSame(const std::string &what, const std::string &text);

  /// Stops the run in a planned way, wherever the others are: what they wait
  /// for fails, and `stopReason` tells them why. Only `awaitEnd` may follow.
  void stop(const std::string &reason);

  /// Why a rank has stopped the run; empty if none has.
  std::string stopReason() const;

  /// Once the run is stopped: waits for the others to know, as long as a rank
  /// may take.
  void awaitEnd();

  /// Tells the others that this rank will take part in nothing more.
  void leave();

  /// The same for a rank that failed, with what it says, or after the run was
  /// stopped. Reductions may be running still; only the end of the process may
  /// follow.
  void fail(const std::string &message);

  /// Whether another rank was lost or did not come in time.
  bool lostSomeone() const;

  /// Seconds that this rank has waited for reductions in memory of the host.
  double waitedSeconds() const {
    return reductions ? reductions->waitedSeconds() : 0;
  }

private:
  Status meet(const RanksOptions &options, StoreFailure &failure);
  Status connect(const RanksOptions &options, StoreFailure &failure);

  RankEnvironment environment;
  std::unique_ptr<StoreServer> server;
  /// A thread that still connects ranks may outlive them.
  std::shared_ptr<StoreClient> store;
  std::unique_ptr<HostCommunicator> reductions;
};

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_RANKS_H
