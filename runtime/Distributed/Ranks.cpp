//===- Ranks.cpp - the ranks of a run -------------------------------------===//

#include "runtime/Distributed/Ranks.h"

namespace nsa {

/// The store, which waits for each key as long as a rank may take.
class Ranks::StoreLink final : public RankLink {
public:
  StoreLink(StoreClient &store, Milliseconds allowed)
      : store(store), allowed(allowed) {}

  int rank() const override { return store.rank(); }
  int size() const override { return store.size(); }
  Milliseconds timeout() const override { return allowed; }
  Status set(const std::string &key, const std::string &value) override {
    return store.set(key, value);
  }
  Result<std::string> get(const std::string &key) override {
    return store.get(key, allowed);
  }
  void progress(uint64_t number, uint64_t bytes) override {
    store.progress(number, bytes);
  }
  std::string loss() override {
    Result<std::string> text = store.loss(allowed);
    return text ? *text : text.message();
  }
  std::string whereabouts() override { return store.whereabouts(); }
  void giveUp() override { isOver = true; }
  bool hasGivenUp() const override { return isOver; }

private:
  bool isOver = false;
  StoreClient &store;
  Milliseconds allowed;
};

Ranks::Ranks() = default;

Result<std::unique_ptr<Ranks>> Ranks::join(const RankPlace &place,
                                           const RanksOptions &options) {
  auto ranks = std::make_unique<Ranks>();
  ranks->place = place;
  ranks->timeout = options.timeout;
  if (place.size == 1)
    return ranks;
  if (place.rank == 0) {
    Result<std::unique_ptr<StoreServer>> server =
        StoreServer::start(place.address, place.port, place.size);
    if (!server)
      return server.takeError();
    ranks->server = std::move(*server);
  }
  Result<std::unique_ptr<StoreClient>> store = StoreClient::connect(
      place.address, place.port, place.rank, place.size, options.timeout);
  if (!store)
    return store.takeError();
  ranks->store = std::move(*store);
  ranks->ownLink = std::make_unique<StoreLink>(*ranks->store, options.timeout);
  // All are there before a library waits for them in its own way.
  if (Result<std::vector<std::string>> all = ranks->exchange("start", ""); !all)
    return all.takeError();
  if (options.plugin.empty())
    return ranks;
  ReducerOptions reducer;
  reducer.rank = place.rank;
  reducer.size = place.size;
  reducer.address = ranks->store->localAddress();
  reducer.timeout = options.timeout;
  reducer.keys = ranks->ownLink.get();
  Result<std::unique_ptr<Reducer>> opened =
      openReducer(options.plugin, reducer);
  if (!opened)
    return opened.takeError();
  ranks->reductions =
      std::make_unique<HostCommunicator>(std::move(*opened), *ranks->store);
  return ranks;
}

Ranks::~Ranks() {
  reductions.reset();
  leave();
}

Result<std::vector<std::string>> Ranks::exchange(const std::string &name,
                                                 const std::string &payload) {
  if (place.size == 1)
    return std::vector<std::string>{payload};
  Result<std::vector<std::string>> all =
      store->exchange(name, payload, timeout);
  if (!all)
    ownLink->giveUp();
  return all;
}

Status Ranks::agree(const std::string &name, const Status &own) {
  if (place.size == 1)
    return own;
  Result<std::vector<std::string>> all =
      exchange(name, own ? "" : own.message());
  if (!own)
    return own;
  if (!all)
    return Error{all.message()};
  for (int rank = 0; rank < place.size; ++rank)
    if (const std::string &message = (*all)[size_t(rank)]; !message.empty())
      return Error{"rank " + std::to_string(rank) + ": " + message};
  return {};
}

Status Ranks::checkSame(const std::string &what, const std::string &text) {
  Result<std::vector<std::string>> all = exchange(what, text);
  if (!all)
    return Error{all.message()};
  for (int rank = 1; rank < place.size; ++rank)
    if (const std::string &other = (*all)[size_t(rank)]; other != (*all)[0])
      return Error{"rank " + std::to_string(rank) + " has " + what + " " +
                   other + ", rank 0 has " + (*all)[0]};
  return {};
}

RankLink *Ranks::link() const { return ownLink.get(); }

bool Ranks::lostSomeone() const {
  return (ownLink && ownLink->hasGivenUp()) ||
         (reductions && reductions->failed());
}

void Ranks::leave() {
  if (store)
    store->leave();
}

} // namespace nsa
