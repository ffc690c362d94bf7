//===- Store.h - where the ranks of a run meet ------------------*- C++ -*-===//
//
// Rank 0 serves one TCP store at MASTER_ADDR:MASTER_PORT. The other ranks, and
// rank 0 itself, are its clients. What one of them says (a key, a part of an
// exchange, that it leaves or stops the run) the store tells all, in one order,
// and later ones from the beginning; so every client has the same table, waits
// for what it shows, and sends no requests. The store adds clients whose
// connection was lost, and those that are silent for a while: clients and store
// send heartbeats twice a second.
//
// A client registers with a proof that it knows the token of the run (see
// Token.h). Before that a connection may hold a few bytes for a few seconds, a
// bounded number of connections does, and nothing that they send changes what
// the ranks see. Those that have registered are trusted.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DISTRIBUTED_STORE_H
#define NSA_RUNTIME_DISTRIBUTED_STORE_H

#include "nsa/Runtime/Communicator.h"
#include "runtime/Distributed/RankTable.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
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

  /// Waits for the clients to leave, up to 1.5 seconds.
  ~StoreServer();

  uint16_t port() const;

private:
  struct Peer;

  StoreServer(std::vector<int> listeners, int size, RunIdentity identity);
  void serve();
  void accept(int listener);
  void receive(Peer &peer);
  void flush(Peer &peer);
  void drop(Peer &peer);
  void dropStrangers();
  void registerRank(Peer &peer, const wire::Message &hello);
  std::string findMistake(const wire::Message &hello);
  void noteRefusal(const std::string &text, bool endsRun = false);
  void relay(Peer &peer, wire::Message message);
  void tellProgress(Peer &peer);
  void tellHowRanksAre();
  void tellAll(const wire::Message &message);
  bool isComplete() const;

  const std::vector<int> listeners;
  const RunIdentity identity;
  std::vector<bool> hasCome;
  std::vector<std::unique_ptr<Peer>> peers;
  /// What was told to all, for ranks that have not come.
  std::string log;
  /// The last connection that was refused, or the one that ends the run.
  wire::Message refusal{wire::Kind::Refused};
  std::chrono::steady_clock::time_point acceptAfter, nextTelling;
  std::atomic<bool> stopping{false};
  std::thread thread;
};

/// One rank's connection to the store. Threads may share it; one is in an
/// exchange at a time.
class StoreClient final : public ProcessGroup {
public:
  /// Connects, for as long as `timeout`, which is also how long ranks may keep
  /// each other waiting: the server may start later. Fails where the store has
  /// another token or is of another run, where another rank has this number, or
  /// the ranks do not agree on how many there are; `failure` says which kind
  /// that is.
  static Result<std::unique_ptr<StoreClient>>
  connect(const std::string &address, uint16_t port, int rank, int size,
          Milliseconds timeout, StoreFailure *failure = nullptr,
          const RunIdentity &identity = {});

  ~StoreClient() override;

  int rank() const override { return ownRank; }
  int size() const override { return numRanks; }
  Milliseconds timeout() const override { return allowed; }
  Status set(const std::string &key, const std::string &value) override;
  /// An error names the ranks that were lost or are silent.
  Result<std::string> get(const std::string &key) override;
  void progress(uint64_t number, uint64_t bytes) override;
  /// Also why a rank has stopped the run.
  std::string peerFailure() override;
  std::string rankStatus() override;
  void abortRun() override { isAborted = true; }
  bool hasAborted() const override { return isAborted; }

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

  /// Why the run was stopped; empty if it was not.
  std::string stopReason();

  /// What kind the last failure was.
  StoreFailure lastFailure() const { return failure; }

  /// The address of this machine towards the store.
  std::string localAddress() const;

  /// Ends the connection in an orderly way; nothing may follow. With a reason,
  /// which the others are told, nothing more can come of the run.
  void leave(const std::string &reason = "");

private:
  StoreClient(int fd, int rank, int size, Milliseconds allowed)
      : fd(fd), ownRank(rank), numRanks(size), allowed(allowed), table(size) {}
  Status introduce(const std::string &at, const RunIdentity &identity,
                   Milliseconds timeout);
  Result<wire::Message> receiveFirst(const std::string &at,
                                     Milliseconds timeout);
  Result<size_t> receive(Milliseconds timeout);
  Status send(const wire::Message &message);
  void follow();
  void end(int how);
  /// Whether the store has said nothing for half a second, or more.
  bool isSilent() const { return looksSinceHeard > 1; }
  Status waitFor(const std::function<bool()> &isDone, const std::string &place,
                 Milliseconds timeout, Milliseconds most = Milliseconds(0),
                 bool mayFollowStop = false);
  std::string describeTimeout(const std::string &place,
                              std::chrono::steady_clock::duration waited) const;

  const int fd;
  const int ownRank, numRanks;
  const Milliseconds allowed;
  std::mutex sending;
  /// What has come of the next message.
  std::string received;
  /// How often this client has looked since the store was heard.
  std::atomic<int> looksSinceHeard{0};
  std::atomic<StoreFailure> failure{StoreFailure::Loss};
  std::atomic<bool> isAborted{false};
  /// Of the table.
  std::mutex mutex;
  std::condition_variable changed;
  RankTable table;
  bool hasLeft = false;
  /// Follows what the store tells, and tells it that this rank lives.
  std::thread thread;
};

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_STORE_H
