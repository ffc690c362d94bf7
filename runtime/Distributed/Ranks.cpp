//===- Ranks.cpp - the ranks of a run -------------------------------------===//

#include "runtime/Distributed/Ranks.h"
#include "runtime/Distributed/SignalBlockedThread.h"
#include "runtime/Distributed/Socket.h"
#include "runtime/Distributed/Token.h"

#include <algorithm>
#include <future>

namespace nsa {

using Clock = std::chrono::steady_clock;

/// How often a rank asks for the others while they connect.
static constexpr Milliseconds askEvery{500};

namespace {
/// Of all ranks, those that share sequences with this one.
class SequenceGroup final : public ProcessGroup {
public:
  SequenceGroup(std::shared_ptr<StoreClient> all, int ranks)
      : all(std::move(all)), ranks(ranks) {}

  int rank() const override { return all->rank() % ranks; }
  int size() const override { return ranks; }
  Milliseconds timeout() const override { return all->timeout(); }
  Status set(const std::string &key, const std::string &value) override {
    return all->set(prefix() + key, value);
  }
  Result<std::string> get(const std::string &key) override {
    return all->get(prefix() + key);
  }
  void progress(uint64_t number, uint64_t bytes) override {
    all->progress(number, bytes);
  }
  std::string peerFailure() override { return all->peerFailure(); }
  std::string rankStatus() override { return all->rankStatus(); }
  void abortRun() override { all->abortRun(); }
  bool hasAborted() const override { return all->hasAborted(); }

private:
  std::string prefix() const {
    return "sequences " + std::to_string(all->rank() / ranks) + "/";
  }

  std::shared_ptr<StoreClient> all;
  int ranks;
};
} // namespace

/// Opens the plug-in and connects the ranks of `group`, as long as none is lost
/// and the time-out of the options allows. On a thread of its own: a library
/// may wait for ranks that never join.
static Result<std::unique_ptr<Reducer>>
connectReducer(const std::shared_ptr<StoreClient> &store,
               const std::shared_ptr<ProcessGroup> &group,
               const std::string &plugin) {
  std::promise<Result<std::unique_ptr<Reducer>>> promise;
  auto opened = promise.get_future();
  Clock::time_point end = Clock::now() + store->timeout();
  std::thread thread = startSignalBlockedThread(
      [store, group, plugin, promise = std::move(promise)]() mutable {
        promise.set_value(
            openReducer(plugin, {group.get(), store->localAddress()}));
      });
  std::string why;
  while (why.empty() &&
         opened.wait_for(askEvery) != std::future_status::ready) {
    why = store->peerFailure();
    if (why.empty() && Clock::now() >= end)
      why = "time-out [" + store->rankStatus() + "]";
  }
  if (!why.empty()) {
    thread.detach();
    return Error{"cannot connect the ranks: " + why};
  }
  thread.join();
  Result<std::unique_ptr<Reducer>> reducer = opened.get();
  if (reducer)
    return reducer;
  return Error{reducer.message() + " [" + store->rankStatus() + "]"};
}

Ranks::Ranks() = default;

Result<std::unique_ptr<Ranks>> Ranks::join(const RankEnvironment &environment,
                                           const RanksOptions &options,
                                           StoreFailure *failure) {
  auto ranks = std::make_unique<Ranks>();
  ranks->environment = environment;
  if (environment.size == 1)
    return ranks;
  StoreFailure ignored;
  StoreFailure &kind = failure ? *failure : ignored;
  kind = StoreFailure::Mistake;
  Status status =
      options.plugin.empty() ? Status() : checkReducer(options.plugin);
  if (status)
    status = ranks->meet(options, kind);
  if (status && !options.plugin.empty())
    status = ranks->connect(options, kind);
  if (status)
    return ranks;
  if (kind == StoreFailure::Loss && ranks->store)
    ranks->store->abortRun();
  ranks->fail(status.message());
  return Error{status.message()};
}

/// Whether the ranks may meet at these addresses: any process that reaches them
/// could join a run without a token.
static Status checkTrust(const RankEnvironment &environment,
                         const std::vector<std::string> &addresses,
                         const RanksOptions &options) {
  if (!options.identity.token.empty())
    return checkToken(options.identity.token);
  if (options.trustNetwork ||
      std::all_of(addresses.begin(), addresses.end(), isLoopback))
    return {};
  return Error{"other machines could join the run at MASTER_ADDR '" +
               environment.address + "' (" + addressList(addresses) +
               "): export one random " + tokenVariable +
               " on all nodes, as openssl rand -hex 32 makes it, or give "
               "--trust-network"};
}

Status Ranks::meet(const RanksOptions &options, StoreFailure &failure) {
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> addresses,
                       resolve(environment.address));
  NSA_RETURN_IF_ERROR(checkTrust(environment, addresses, options));
  if (environment.rank == 0) {
    NSA_ASSIGN_OR_RETURN(
        server, StoreServer::start(environment.address, environment.port,
                                   environment.size, options.identity));
  }
  NSA_ASSIGN_OR_RETURN(
      store, StoreClient::connect(environment.address, environment.port,
                                  environment.rank, environment.size,
                                  options.timeout, &failure, options.identity));
  // All are there before a library waits for them in its own way.
  Result<std::vector<std::string>> all = exchange("start", "");
  failure = store->lastFailure();
  if (all)
    return {};
  // A machine may know its own name as such an address only.
  bool isUnreachable =
      environment.localSize < environment.size &&
      std::all_of(addresses.begin(), addresses.end(), isLoopback);
  return Error{all.message() +
               (isUnreachable ? "; MASTER_ADDR '" + environment.address +
                                    "' is " + addressList(addresses) +
                                    " here, which other machines cannot reach"
                              : "")};
}

Status Ranks::connect(const RanksOptions &options, StoreFailure &failure) {
  failure = StoreFailure::Loss;
  NSA_ASSIGN_OR_RETURN(std::unique_ptr<Reducer> reducer,
                       connectReducer(store, store, options.plugin));
  std::unique_ptr<Reducer> sharers;
  if (options.sequenceRanks > 1) {
    NSA_ASSIGN_OR_RETURN(sharers,
                         connectReducer(store,
                                        std::make_shared<SequenceGroup>(
                                            store, options.sequenceRanks),
                                        options.plugin));
  }
  reductions = std::make_unique<HostCommunicator>(
      std::move(reducer), *store, std::move(sharers), options.sequenceRanks);
  return {};
}

Ranks::~Ranks() {
  reductions.reset();
  leave();
}

Result<std::vector<std::string>> Ranks::exchange(const std::string &name,
                                                 const std::string &payload,
                                                 Milliseconds most) {
  if (environment.size == 1)
    return std::vector<std::string>{payload};
  Result<std::vector<std::string>> all =
      store->exchange(name, payload, store->timeout(), most);
  if (!all && store->lastFailure() != StoreFailure::Mistake)
    store->abortRun();
  return all;
}

void Ranks::stop(const std::string &reason) {
  if (!store)
    return;
  store->stop(reason);
  store->abortRun();
}

std::string Ranks::stopReason() const {
  return store ? store->stopReason() : "";
}

void Ranks::awaitEnd() {
  // A rank that does not come changes nothing.
  if (store)
    (void)store->exchange("the end", "", store->timeout(), Milliseconds(0),
                          /*mayFollowStop=*/true);
}

Status Ranks::synchronizeStatus(const std::string &name, const Status &own,
                                Milliseconds most) {
  if (environment.size == 1)
    return own;
  Result<std::vector<std::string>> all =
      exchange(name, own ? "" : own.message(), most);
  if (!own)
    return own;
  if (!all)
    return Error{all.message()};
  for (int rank = 0; rank < environment.size; ++rank)
    if (const std::string &message = (*all)[size_t(rank)]; !message.empty())
      return Error{"rank " + std::to_string(rank) + ": " + message};
  return {};
}

Status Ranks::checkSame(const std::string &what, const std::string &text) {
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> all, exchange(what, text));
  for (int rank = 1; rank < environment.size; ++rank)
    if (const std::string &other = all[size_t(rank)]; other != all[0])
      return Error{"rank " + std::to_string(rank) + " has " + what + " " +
                   other + ", rank 0 has " + all[0]};
  return {};
}

bool Ranks::lostSomeone() const { return store && store->hasAborted(); }

void Ranks::fail(const std::string &message) {
  if (store)
    store->leave(lostSomeone() ? message
                               : "rank " + std::to_string(environment.rank) +
                                     " failed: " + message);
  server.reset();
}

void Ranks::leave() {
  if (store)
    store->leave();
}

} // namespace nsa
