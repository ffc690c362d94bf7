//===- Store.h - where the ranks of a run meet ------------------*- C++ -*-===//
//
// Rank 0 serves one TCP store at MASTER_ADDR:MASTER_PORT. The other ranks, and
// rank 0 itself, are its clients: they leave keys for each other (addresses of
// a communication library), exchange small messages, and say which reduction
// they begin, so that a rank that does not come can be named. When a connection
// ends without a word, all others are told at once. Every client says once a
// second that it lives, so that a rank that is frozen can be named.
//
// A client registers once it has proved that it knows the token of the run (see
// Token.h). Before that a connection may hold a few bytes for a few seconds, a
// bounded number of connections does, and nothing that they send changes what
// the ranks see. Those that have registered are trusted.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DISTRIBUTED_STORE_H
#define NSA_RUNTIME_DISTRIBUTED_STORE_H

#include "nsa/Support/Result.h"
#include "runtime/Distributed/Wire.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace nsa {

using Milliseconds = std::chrono::milliseconds;

/// What the ranks of a run have in common, and others do not.
struct RunIdentity {
  /// The name of the run, which is no secret; empty if nothing gives it one.
  std::string run;
  /// The secret of the run; empty where every client is trusted.
  std::string token;
};

/// Serves until it is destroyed. Has one thread.
class StoreServer {
public:
  /// Listens at `port`, of what `address` stands for and nowhere else, for
  /// `size` ranks; 0 takes a free port. Clients of another run are refused. One
  /// that counts other ranks is refused too, and where there is a token all are
  /// told so.
  static Result<std::unique_ptr<StoreServer>>
  start(const std::string &address, uint16_t port, int size,
        const RunIdentity &identity = {});

  /// Waits for the clients to leave, up to 1.5 seconds, and tells those that
  /// remain why nothing more can come of the run.
  ~StoreServer();

  uint16_t port() const;

private:
  class Impl;
  explicit StoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

/// Why something failed at the store: because a rank was lost or did not come
/// in time, by a mistake that another start would repeat, or because a rank has
/// stopped the run.
enum class StoreFailure { Loss, Mistake, Stop };

/// One rank's connection to the store. Threads may share it; one waits for an
/// answer at a time.
class StoreClient {
public:
  /// Connects, for as long as `timeout`: the server may start later. Fails
  /// where the store has another token or is of another run, where another rank
  /// has this number, or the ranks do not agree on how many there are;
  /// `failure` says which kind that is.
  static Result<std::unique_ptr<StoreClient>>
  connect(const std::string &address, uint16_t port, int rank, int size,
          Milliseconds timeout, StoreFailure *failure = nullptr,
          const RunIdentity &identity = {});

  ~StoreClient();

  int rank() const { return ownRank; }
  int size() const { return numRanks; }

  /// Leaves a value, and waits for one that some rank leaves. An error names
  /// the ranks that were lost or are silent.
  Status set(const std::string &key, const std::string &value);
  Result<std::string> get(const std::string &key, Milliseconds timeout);

  /// Waits until every rank has called it, and returns what they gave, by rank.
  /// `name` says where in the run that is; it must be the same for all. An
  /// error names the ranks that were lost or did not come. Ranks that show that
  /// they live are waited for until `most`, if that is more. Fails once a rank
  /// has stopped the run, unless it `mayFollowStop`.
  Result<std::vector<std::string>> exchange(const std::string &name,
                                            const std::string &payload,
                                            Milliseconds timeout,
                                            Milliseconds most = Milliseconds(0),
                                            bool mayFollowStop = false);

  /// Stops the run in a planned way: ranks that wait for others, or begin to,
  /// are told why. The first reason counts.
  void stop(const std::string &reason);

  /// Why the run was stopped, as far as this client was told; empty if it was
  /// not.
  std::string stopReason();

  /// Tells the store that this rank begins a reduction.
  void progress(uint64_t number, uint64_t bytes);

  /// The ranks that were lost or left, or why one stopped the run; empty if all
  /// are there. Fails where the store does not answer in time.
  Result<std::string> loss(Milliseconds timeout);

  /// Where every rank is: "rank 1 began reduction 17 (4096 bytes), ...", or why
  /// that is not known.
  std::string rankStatus();

  /// What kind the last failure was.
  StoreFailure lastFailure() const { return failure; }

  /// The address of this machine towards the store.
  std::string localAddress() const;

  /// Ends the connection in an orderly way; nothing may follow. With a reason,
  /// which the others are told, nothing more can come of the run.
  void leave(const std::string &reason = "");

private:
  StoreClient(int fd, int rank, int size)
      : fd(fd), ownRank(rank), numRanks(size) {}
  Status introduce(const std::string &address, uint16_t port,
                   const RunIdentity &identity, Milliseconds timeout);
  Status authenticate(const std::string &at, const std::string &token,
                      Milliseconds timeout);
  void close();
  Status send(const std::string &message);
  Status sendLocked(const std::string &message);
  void sendHeartbeats();
  void stopHeart();
  Result<std::string> ask(const std::string &message, Milliseconds timeout);
  Status receive(std::string &body, Milliseconds timeout);

  /// Of the one question that waits for an answer, and of what is sent.
  std::mutex mutex, sending;
  int fd;
  int ownRank;
  int numRanks;
  wire::ByteQueue received;
  /// The longest message that is taken from the store.
  uint32_t limit = wire::maxHelloBytes;
  std::string stopText;
  std::atomic<StoreFailure> failure{StoreFailure::Loss};
  /// Tells the store about once a second that this rank lives.
  std::thread heart;
  std::condition_variable heartStops;
  bool isOver = false;
};

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_STORE_H
