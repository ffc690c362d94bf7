//===- StoreClient.cpp - one rank's connection to the store ---------------===//

#include "lib/Support/Random.h"
#include "runtime/Distributed/Socket.h"
#include "runtime/Distributed/Store.h"
#include "runtime/Distributed/Token.h"
#include "runtime/Distributed/Wire.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace nsa {

using wire::Kind;
using Clock = std::chrono::steady_clock;

/// How much longer than the store a client waits for an answer that the store
/// gives in time unless it is frozen or lost.
static constexpr Milliseconds grace{2000};

static constexpr Milliseconds beatEvery{1000};

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
  if (Result<std::vector<ResolvedAddress>> known = resolve(address); !known)
    return known.takeError();
  Clock::time_point end = Clock::now() + timeout;
  auto left = [&] {
    return std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(
                                         end - Clock::now()));
  };
  while (true) {
    kind = StoreFailure::Loss;
    NSA_ASSIGN_OR_RETURN(int fd, connectTo(address, port, left()));
    sendAtOnce(fd);
    std::unique_ptr<StoreClient> client(new StoreClient(fd, rank, size));
    Status status = client->introduce(address, port, identity, left());
    if (status) {
      client->heart =
          std::thread([&store = *client] { store.sendHeartbeats(); });
      return client;
    }
    kind = client->failure;
    // Where many connect at once, the store ends connections that have not
    // registered yet.
    if (client->fd >= 0 || left() == Milliseconds(0))
      return Error{status.message()};
    std::this_thread::sleep_for(retryAfter);
  }
}

/// Proves that this rank knows the token, asks the store for the same, and
/// registers. The connection has ended where trying again makes sense.
Status StoreClient::introduce(const std::string &address, uint16_t port,
                              const RunIdentity &identity,
                              Milliseconds timeout) {
  std::string at = address + ":" + std::to_string(port);
  NSA_RETURN_IF_ERROR(authenticate(at, identity.token, timeout));
  limit = wire::maxBytes;
  Result<std::string> answer = ask(wire::Writer(Kind::Hello)
                                       .number(uint64_t(ownRank))
                                       .number(uint64_t(numRanks))
                                       .text(identity.run)
                                       .finish(),
                                   timeout);
  return answer ? Status() : answer.takeError();
}

Status StoreClient::authenticate(const std::string &at,
                                 const std::string &token,
                                 Milliseconds timeout) {
  failure = StoreFailure::Loss;
  std::string body;
  if (Status status = receive(body, timeout + grace); !status) {
    close();
    return status;
  }
  failure = StoreFailure::Mistake;
  wire::Reader challenge(body);
  uint64_t protocol = challenge.number();
  bool hasToken = challenge.number() != 0;
  std::string nonce = challenge.text();
  if (challenge.kind() != Kind::Challenge || !challenge.good() ||
      protocol != wire::protocol || nonce.size() != nonceBytes)
    return Error{"what listens at " + at +
                 " is no store, or speaks another version of its protocol"};
  if (hasToken == token.empty())
    return Error{hasToken ? std::string(tokenVariable) +
                                " is set for rank 0, which serves the store "
                                "at " +
                                at + ", but not for this rank"
                          : std::string(tokenVariable) +
                                " is set for this rank, but not for rank 0, "
                                "which serves the store at " +
                                at};
  NSA_ASSIGN_OR_RETURN(std::string own, randomBytes(nonceBytes));
  Result<std::string> answer =
      ask(wire::Writer(Kind::Proof)
              .text(own)
              .text(proveToken(token, Prover::Rank, nonce, own))
              .finish(),
          timeout);
  std::string expected = proveToken(token, Prover::Store, nonce, own);
  if (answer && equalInConstantTime(wire::Reader(*answer).text(), expected))
    return {};
  if (!answer && fd < 0)
    return answer.takeError();
  failure = StoreFailure::Mistake;
  return Error{std::string(tokenVariable) +
               " of this rank is not that of rank 0, which serves the store "
               "at " +
               at};
}

void StoreClient::close() {
  std::lock_guard<std::mutex> lock(sending);
  ::close(fd);
  fd = -1;
}

StoreClient::~StoreClient() {
  stopHeart();
  if (fd >= 0)
    ::close(fd);
}

void StoreClient::sendHeartbeats() {
  std::string message = wire::Writer(Kind::Heartbeat).finish();
  std::unique_lock<std::mutex> lock(sending);
  while (!heartStops.wait_for(lock, beatEvery, [&] { return isOver; }))
    if (!sendLocked(message))
      return;
}

void StoreClient::stopHeart() {
  {
    std::lock_guard<std::mutex> lock(sending);
    isOver = true;
  }
  heartStops.notify_all();
  if (heart.joinable())
    heart.join();
}

Status StoreClient::send(const std::string &message) {
  std::lock_guard<std::mutex> lock(sending);
  return sendLocked(message);
}

Status StoreClient::sendLocked(const std::string &message) {
  if (fd < 0)
    return Error{"the connection to the store has ended"};
  size_t sent = 0;
  while (sent < message.size()) {
    ssize_t count =
        ::send(fd, message.data() + sent, message.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return lost("was lost");
    sent += size_t(count);
  }
  return {};
}

/// The next message of the store, without its length.
Status StoreClient::receive(std::string &body, Milliseconds timeout) {
  auto end = Clock::now() + timeout;
  bool tooLong = false;
  while (true) {
    if (std::optional<std::string> whole =
            wire::takeMessage(received, limit, tooLong)) {
      body = std::move(*whole);
      return {};
    }
    if (tooLong)
      return lost("sent a message that is too long");
    auto left =
        std::chrono::duration_cast<Milliseconds>(end - Clock::now()).count();
    pollfd polled = {fd, POLLIN, 0};
    int ready = ::poll(&polled, 1, int(std::max<int64_t>(left, 0)));
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready == 0)
      return lost("does not answer");
    char buffer[1 << 16];
    ssize_t count = ::recv(fd, buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return lost("was lost");
    received.append({buffer, size_t(count)});
  }
}

/// Sends a message and waits for its answer.
Result<std::string> StoreClient::ask(const std::string &message,
                                     Milliseconds timeout) {
  std::lock_guard<std::mutex> lock(mutex);
  failure = StoreFailure::Loss;
  // What the store said before it ended counts, also if it takes nothing more.
  if (!send(message))
    timeout = -grace;
  std::string body;
  do {
    if (Status status = receive(body, timeout + grace); !status) {
      // A late answer would be taken for that to another question.
      close();
      return Error{status.message()};
    }
  } while (wire::Reader(body).kind() == Kind::Wait);
  wire::Reader answer(body);
  if (answer.kind() == Kind::Done)
    return body;
  std::string text = answer.text();
  failure = StoreFailure(answer.number());
  if (failure == StoreFailure::Stop)
    stopText = text;
  return Error{text};
}

Status StoreClient::set(const std::string &key, const std::string &value) {
  return send(wire::Writer(Kind::Set).text(key).text(value).finish());
}

Result<std::string> StoreClient::get(const std::string &key,
                                     Milliseconds timeout) {
  Result<std::string> body = ask(wire::Writer(Kind::Get)
                                     .text(key)
                                     .number(uint64_t(timeout.count()))
                                     .finish(),
                                 timeout);
  if (!body)
    return Error{"waiting for '" + key + "': " + body.message()};
  return wire::Reader(*body).text();
}

Result<std::vector<std::string>>
StoreClient::exchange(const std::string &name, const std::string &payload,
                      Milliseconds timeout, Milliseconds most,
                      bool mayFollowStop) {
  Result<std::string> body = ask(wire::Writer(Kind::Exchange)
                                     .text(name)
                                     .number(uint64_t(timeout.count()))
                                     .number(uint64_t(most.count()))
                                     .number(mayFollowStop)
                                     .text(payload)
                                     .finish(),
                                 timeout);
  if (!body) {
    std::string place = "at '" + name + "': ";
    bool hasPlace = body.message().compare(0, place.size(), place) == 0;
    return Error{(hasPlace ? "" : place) + body.message()};
  }
  wire::Reader answer(*body);
  std::vector<std::string> all;
  all.reserve(size_t(numRanks));
  for (int rank = 0; rank < numRanks; ++rank)
    all.push_back(answer.text());
  return all;
}

void StoreClient::progress(uint64_t number, uint64_t bytes) {
  (void)send(
      wire::Writer(Kind::Progress).number(number).number(bytes).finish());
}

Result<std::string> StoreClient::loss(Milliseconds timeout) {
  Result<std::string> body = ask(wire::Writer(Kind::Loss).finish(), timeout);
  if (!body)
    return body;
  wire::Reader answer(*body);
  std::string text = answer.text();
  if (StoreFailure(answer.number()) == StoreFailure::Stop) {
    std::lock_guard<std::mutex> lock(mutex);
    stopText = text;
  }
  return text;
}

void StoreClient::stop(const std::string &reason) {
  (void)send(wire::Writer(Kind::Stop).text(reason).finish());
  std::lock_guard<std::mutex> lock(mutex);
  if (stopText.empty())
    stopText = reason;
}

std::string StoreClient::stopReason() {
  std::lock_guard<std::mutex> lock(mutex);
  return stopText;
}

std::string StoreClient::rankStatus() {
  Result<std::string> body =
      ask(wire::Writer(Kind::Where).finish(), Milliseconds(0));
  return body ? wire::Reader(*body).text() : body.message();
}

std::string StoreClient::localAddress() const { return localAddressOf(fd); }

void StoreClient::leave(const std::string &reason) {
  stopHeart();
  std::lock_guard<std::mutex> lock(mutex), both(sending);
  if (fd < 0)
    return;
  (void)sendLocked(wire::Writer(Kind::Leave).text(reason).finish());
  ::close(fd);
  fd = -1;
}

} // namespace nsa
