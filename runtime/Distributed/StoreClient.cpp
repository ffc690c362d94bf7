//===- StoreClient.cpp - one rank's connection to the store ---------------===//

#include "lib/Support/Random.h"
#include "runtime/Distributed/SignalBlockedThread.h"
#include "runtime/Distributed/Socket.h"
#include "runtime/Distributed/Store.h"
#include "runtime/Distributed/Token.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace nsa {

using wire::Kind;
using Clock = std::chrono::steady_clock;

/// How much longer a client waits where the store is silent, which may tell
/// what it waits for a little later.
static constexpr Milliseconds grace{2000};

/// How often a client sends a heartbeat, and checks that of the store.
static constexpr Milliseconds lookEvery{500};

/// When the store has ended a connection that had not registered.
static constexpr Milliseconds retryAfter{50};

static Error lost(const std::string &why) {
  return Error{"rank 0, which serves the store, " + why};
}

Result<std::unique_ptr<StoreClient>>
StoreClient::connect(const std::string &address, uint16_t port, int rank,
                     int size, Milliseconds timeout, StoreFailure *failure,
                     const RunIdentity &identity) {
  StoreFailure ignored;
  StoreFailure &kind = failure ? *failure : ignored;
  kind = StoreFailure::Mistake;
  if (Result<std::vector<std::string>> known = resolve(address); !known)
    return known.takeError();
  Clock::time_point end = Clock::now() + timeout;
  auto left = [&] {
    return std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(
                                         end - Clock::now()));
  };
  while (true) {
    kind = StoreFailure::Loss;
    NSA_ASSIGN_OR_RETURN(int fd, connectTo(address, port, left()));
    std::unique_ptr<StoreClient> client(
        new StoreClient(fd, rank, size, timeout));
    Status status = client->introduce(address + ":" + std::to_string(port),
                                      identity, left());
    if (status) {
      client->thread =
          startSignalBlockedThread([store = client.get()] { store->follow(); });
      return client;
    }
    // Where many connect at once, the store ends connections that have not
    // registered yet.
    kind = client->failure;
    if (kind != StoreFailure::Loss || left() == Milliseconds(0))
      return status.takeError();
    std::this_thread::sleep_for(retryAfter);
  }
}

/// Proves that this rank knows the token, asks the store for the same, and
/// registers.
Status StoreClient::introduce(const std::string &at,
                              const RunIdentity &identity,
                              Milliseconds timeout) {
  NSA_ASSIGN_OR_RETURN(wire::Message challenge, receiveFirst(at, timeout));
  failure = StoreFailure::Mistake;
  if (bool hasToken = challenge.number != 0; hasToken == identity.token.empty())
    return Error{std::string(tokenVariable) + " is set for " +
                 (hasToken ? "rank 0, which serves the store at " + at +
                                 ", but not for this rank"
                           : "this rank, but not for rank 0, which serves the "
                             "store at " +
                                 at)};
  NSA_ASSIGN_OR_RETURN(std::string own, randomBytes(nonceBytes));
  // What the store has said counts, also if it takes nothing more.
  (void)send(
      {Kind::Hello, uint64_t(ownRank), uint64_t(numRanks), 0, identity.run,
       own + proveToken(identity.token, Prover::Rank, challenge.text, own)});
  NSA_ASSIGN_OR_RETURN(wire::Message answer, receiveFirst(at, timeout));
  failure = StoreFailure::Mistake;
  if (!equalInConstantTime(
          answer.text,
          proveToken(identity.token, Prover::Store, challenge.text, own)))
    return Error{std::string(tokenVariable) +
                 " of this rank is not that of rank 0, which serves the store "
                 "at " +
                 at};
  return answer.kind == Kind::Welcome ? Status() : Error{answer.name};
}

/// The next message of a connection that has not registered.
Result<wire::Message> StoreClient::receiveFirst(const std::string &at,
                                                Milliseconds timeout) {
  failure = StoreFailure::Loss;
  bool isForeign = false;
  for (auto end = Clock::now() + timeout + grace;;) {
    std::string_view rest = received;
    std::optional<wire::Message> message =
        wire::decode(rest, wire::maxHelloBytes, isForeign);
    if (message) {
      received = rest;
      return std::move(*message);
    }
    if (isForeign) {
      failure = StoreFailure::Mistake;
      return Error{"what listens at " + at +
                   " is no store, or speaks another version of its protocol"};
    }
    NSA_ASSIGN_OR_RETURN(
        size_t count,
        receive(std::chrono::duration_cast<Milliseconds>(end - Clock::now())));
    if (count == 0)
      return lost("does not answer");
  }
}

/// Waits for bytes of the store, and returns how many came.
Result<size_t> StoreClient::receive(Milliseconds timeout) {
  pollfd polled = {fd, POLLIN, 0};
  int ready = ::poll(&polled, 1, int(std::max<int64_t>(timeout.count(), 0)));
  if (ready == 0)
    return size_t(0);
  char buffer[1 << 16];
  ssize_t count = ready < 0 ? ready : ::recv(fd, buffer, sizeof buffer, 0);
  if (count < 0 && errno == EINTR)
    return receive(timeout);
  if (count <= 0)
    return lost("was lost");
  received.append(buffer, size_t(count));
  return size_t(count);
}

Status StoreClient::send(const wire::Message &message) {
  std::string bytes = wire::encode(message);
  std::lock_guard<std::mutex> lock(sending);
  for (size_t sent = 0; sent < bytes.size();) {
    ssize_t count =
        ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return lost("was lost");
    sent += size_t(count);
  }
  return {};
}

/// The body of the thread, until the connection ends.
void StoreClient::follow() {
  // The first messages may have come already.
  Clock::time_point nextLook = Clock::now();
  for (bool isOpen = true; isOpen;) {
    Result<size_t> count = receive(
        std::chrono::duration_cast<Milliseconds>(nextLook - Clock::now()));
    if (count && *count)
      looksSinceHeard = 0;
    if (Clock::now() >= nextLook) {
      nextLook = Clock::now() + lookEvery;
      ++looksSinceHeard;
      (void)send({Kind::Alive});
    }
    bool isForeign = false;
    std::string_view rest = received;
    std::lock_guard<std::mutex> lock(mutex);
    while (std::optional<wire::Message> message =
               wire::decode(rest, wire::maxBytes, isForeign))
      table.apply(*message);
    received.erase(0, received.size() - rest.size());
    if (isForeign)
      count = lost("sent a message that is too long");
    if (!count && table.ending(/*mayFollowStop=*/true).text.empty())
      table.leave(count.message());
    isOpen = count && !(hasLeft && isSilent());
    changed.notify_all();
  }
}

/// Ends the connection, or what this side sends, and waits for the thread.
void StoreClient::end(int how) {
  ::shutdown(fd, how);
  if (thread.joinable())
    thread.join();
}

StoreClient::~StoreClient() {
  end(SHUT_RDWR);
  ::close(fd);
}

/// Waits until something is done. An error says why it is not, and `failure` of
/// what kind that is. `place` says where in the run, if that is an exchange.
Status StoreClient::waitFor(const std::function<bool()> &isDone,
                            const std::string &place, Milliseconds timeout,
                            Milliseconds most, bool mayFollowStop) {
  std::unique_lock<std::mutex> lock(mutex);
  Clock::time_point begin = Clock::now(), deadline = begin + timeout;
  while (!isDone()) {
    Ending why = table.ending(mayFollowStop);
    Clock::time_point now = Clock::now();
    if (why.text.empty() && now >= deadline) {
      bool mayGoOn = now < begin + most && table.areAllAlive();
      if (isSilent())
        why.text =
            now < deadline + grace ? "" : lost("does not answer").message;
      else if (mayGoOn)
        deadline = now + timeout;
      else
        why.text = describeTimeout(place, now - begin);
    }
    if (!why.text.empty()) {
      failure = why.kind;
      return Error{why.text};
    }
    changed.wait_until(lock, std::max(deadline, now + Milliseconds(50)));
  }
  return {};
}

std::string StoreClient::describeTimeout(const std::string &place,
                                         Clock::duration waited) const {
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(waited);
  std::string after = "after " + std::to_string(seconds.count()) + " s: ";
  return place.empty() ? "time-out " + after + table.status()
                       : "time-out at '" + place + "' " + after +
                             table.missingFrom(place);
}

Status StoreClient::set(const std::string &key, const std::string &value) {
  return send({Kind::Set, 0, 0, 0, key, value});
}

Result<std::string> StoreClient::get(const std::string &key) {
  std::optional<std::string> value;
  Status status = waitFor([&] { return (value = table.find(key)).has_value(); },
                          "", allowed);
  if (!status)
    return Error{"waiting for '" + key + "': " + status.message()};
  return std::move(*value);
}

Result<std::vector<std::string>>
StoreClient::exchange(const std::string &name, const std::string &payload,
                      Milliseconds timeout, Milliseconds most,
                      bool mayFollowStop) {
  // The outcome is waited for even if sending fails.
  (void)send({Kind::Exchange, 0, mayFollowStop, 0, name, payload});
  std::optional<Result<std::vector<std::string>>> all;
  Status status =
      waitFor([&] { return (all = table.takeExchanged()).has_value(); }, name,
              timeout, most, mayFollowStop);
  if (status && *all)
    return std::move(*all);
  if (status) {
    failure = StoreFailure::Mistake;
    status = all->takeError();
  }
  // Another rank may have left for the same reason at the same exchange.
  std::string where = "at '" + name + "': ";
  bool hasPlace = status.message().compare(0, where.size(), where) == 0;
  return Error{(hasPlace ? "" : where) + status.message()};
}

void StoreClient::progress(uint64_t number, uint64_t bytes) {
  (void)send({Kind::Progress, 0, number, bytes, "", ""});
}

void StoreClient::stop(const std::string &reason) {
  (void)send({Kind::Stop, 0, 0, 0, "", reason});
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait_for(lock, grace, [&] { return !table.ending().text.empty(); });
  table.stop(reason);
}

std::string StoreClient::stopReason() {
  std::lock_guard<std::mutex> lock(mutex);
  return table.stopReason();
}

std::string StoreClient::peerFailure() {
  std::lock_guard<std::mutex> lock(mutex);
  std::string text = table.ending().text;
  bool isFrozen = looksSinceHeard.load() * lookEvery > allowed + grace;
  return text.empty() && isFrozen ? lost("does not answer").message : text;
}

std::string StoreClient::rankStatus() {
  std::lock_guard<std::mutex> lock(mutex);
  bool isLost = !table.ending().text.empty();
  return isSilent() && !isLost ? lost("does not answer").message
                               : table.status();
}

std::string StoreClient::localAddress() const { return localAddressOf(fd); }

void StoreClient::leave(const std::string &reason) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (std::exchange(hasLeft, true))
      return;
  }
  (void)send({Kind::Leave, 0, 0, 0, "", reason});
  // The store ends the other direction once it has read that.
  end(SHUT_WR);
}

} // namespace nsa
