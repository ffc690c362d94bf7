//===- StoreServer.cpp - the store that rank 0 serves ---------------------===//

#include "lib/Support/Random.h"
#include "runtime/Distributed/RankTable.h"
#include "runtime/Distributed/Socket.h"
#include "runtime/Distributed/Store.h"
#include "runtime/Distributed/Token.h"
#include "runtime/Distributed/Wire.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <map>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace nsa {

using wire::Kind;
using Clock = std::chrono::steady_clock;

/// How long clients may take to leave at the end. A launcher that kills what is
/// left after a failure must leave more time than that.
static constexpr Milliseconds linger{1500};

/// How long a connection may take to register.
static constexpr Milliseconds registerWithin{10000};

/// How many connections that have not registered are kept beyond one for each
/// rank.
static constexpr size_t spareConnections = 128;

/// The length of Proof, which is all that is read before it is checked.
static constexpr uint32_t proofMessageBytes =
    1 + 8 + nonceBytes + 8 + proofBytes;

/// What is read of one connection before the others have their turn.
static constexpr size_t bytesPerTurn = 1 << 20;

/// The longest time that a client may ask for: no sum of it and a time
/// overflows.
static constexpr uint64_t mostMilliseconds = 1ull << 32;

/// How long nothing is accepted after there was no descriptor left.
static constexpr Milliseconds pauseWithoutDescriptors{200};

namespace {

/// A connection. Its rank is -1 until it has registered.
struct Peer {
  Peer(int fd, std::string nonce)
      : fd(fd), nonce(std::move(nonce)), since(Clock::now()) {}
  Peer(const Peer &) = delete;
  Peer &operator=(const Peer &) = delete;
  ~Peer() { ::close(fd); }

  int fd;
  int rank = -1;
  /// What it was sent to prove that it knows the token, and whether it did.
  std::string nonce;
  bool isAuthenticated = false;
  bool closed = false;
  wire::ByteQueue in, out;
  /// What it waits for.
  std::string wantedKey;
  bool inExchange = false, mayFollowStop = false;
  std::string exchangeName, payload;
  Clock::time_point since, deadline;
  /// How long it is asked to wait each time, and in all.
  Milliseconds allowed{0}, most{0};

  bool isRegistered() const { return rank >= 0; }
  /// The longest message that is taken from it.
  uint32_t messageLimit() const {
    return isRegistered()    ? wire::maxBytes
           : isAuthenticated ? wire::maxHelloBytes
                             : proofMessageBytes;
  }
  bool isWaiting() const { return inExchange || !wantedKey.empty(); }
  bool isAtTheEnd() const { return inExchange && mayFollowStop; }
  void waitFor(Milliseconds time, Milliseconds inAll = Milliseconds(0)) {
    since = Clock::now();
    deadline = since + time;
    allowed = time;
    most = inAll;
  }
};

} // namespace

class StoreServer::Impl {
public:
  Impl(std::vector<int> listeners, int size, RunIdentity identity)
      : listeners(std::move(listeners)), identity(std::move(identity)),
        ranks(size) {}
  ~Impl();

  Status startThread();
  uint16_t port() const { return boundPortOf(listeners.front()); }

private:
  void serve();
  void accept(int listener);
  void receive(Peer &peer);
  void handleReceived(Peer &peer);
  void flush(Peer &peer);
  void drop(Peer &peer);
  void dropStrangers();
  void authenticate(Peer &peer, wire::Reader &message);
  void registerRank(Peer &peer, wire::Reader &message);
  void handle(Peer &peer, const std::string &body);
  void setKey(const std::string &key, const std::string &value);
  void waitForKey(Peer &peer, wire::Reader &message);
  void enterExchange(Peer &peer, wire::Reader &message);
  void finishExchange();
  bool mayGoOnWaiting(const Peer &peer) const;
  void expire();
  void answer(Peer &peer, const std::string &message);
  void fail(Peer &peer, const Ending &why);
  void refuse(Peer &peer, const std::string &text);
  void turnAway(Peer &peer, const std::string &text);
  void refuseAll(const std::string &text);
  void failAllWaiting();
  void sayGoodbye();

  std::vector<int> listeners;
  RunIdentity identity;
  RankTable ranks;
  std::vector<std::unique_ptr<Peer>> peers;
  std::map<std::string, std::string> values;
  /// A mistake because of which there will be no run.
  std::string refusal;
  int wake[2] = {-1, -1};
  Clock::time_point acceptAfter;
  std::atomic<bool> stopping{false};
  std::thread thread;
};

StoreServer::StoreServer(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
StoreServer::~StoreServer() = default;
uint16_t StoreServer::port() const { return impl->port(); }

Result<std::unique_ptr<StoreServer>>
StoreServer::start(const std::string &address, uint16_t port, int size,
                   const RunIdentity &identity) {
  NSA_ASSIGN_OR_RETURN(std::vector<int> listeners, listenAt(address, port));
  auto impl = std::make_unique<Impl>(std::move(listeners), size, identity);
  NSA_RETURN_IF_ERROR(impl->startThread());
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(impl)));
}

Status StoreServer::Impl::startThread() {
  if (::pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0)
    return socketError("cannot make a pipe");
  thread = std::thread([this] { serve(); });
  return {};
}

StoreServer::Impl::~Impl() {
  stopping = true;
  if (thread.joinable()) {
    (void)!::write(wake[1], "x", 1);
    thread.join();
  }
  for (int listener : listeners)
    ::close(listener);
  for (int end : wake)
    if (end >= 0)
      ::close(end);
}

//===----------------------------------------------------------------------===//
// Connections
//===----------------------------------------------------------------------===//

void StoreServer::Impl::serve() {
  std::optional<Clock::time_point> end;
  while (true) {
    if (stopping && !end)
      end = Clock::now() + linger;
    bool hasRanks =
        std::any_of(peers.begin(), peers.end(),
                    [](const auto &peer) { return peer->isRegistered(); });
    if (end && (!hasRanks || Clock::now() >= *end))
      return sayGoodbye();
    std::vector<pollfd> polled = {{stopping ? -1 : wake[0], POLLIN, 0}};
    for (const std::unique_ptr<Peer> &peer : peers)
      polled.push_back(
          {peer->fd, short(POLLIN | (peer->out.empty() ? 0 : POLLOUT)), 0});
    size_t known = peers.size();
    for (int listener : listeners)
      polled.push_back({Clock::now() < acceptAfter ? -1 : listener, POLLIN, 0});
    ::poll(polled.data(), polled.size(), 100);
    for (size_t i = 0; i < listeners.size(); ++i)
      if (polled[1 + known + i].revents)
        accept(listeners[i]);
    for (size_t i = 0; i < known; ++i) {
      if (polled[1 + i].revents & POLLOUT)
        flush(*peers[i]);
      if (polled[1 + i].revents & (POLLIN | POLLHUP | POLLERR))
        receive(*peers[i]);
    }
    expire();
    dropStrangers();
    peers.erase(std::remove_if(peers.begin(), peers.end(),
                               [](auto &peer) { return peer->closed; }),
                peers.end());
  }
}

/// Accepts one connection and asks it for a proof.
void StoreServer::Impl::accept(int listener) {
  int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
        errno == ENOBUFS)
      acceptAfter = Clock::now() + pauseWithoutDescriptors;
    return;
  }
  Result<std::string> nonce = randomBytes(nonceBytes);
  if (!nonce) {
    ::close(fd);
    return;
  }
  sendAtOnce(fd);
  Peer &peer = *peers.emplace_back(std::make_unique<Peer>(fd, *nonce));
  answer(peer, wire::Writer(Kind::Challenge)
                   .number(wire::protocol)
                   .number(!identity.token.empty())
                   .text(peer.nonce)
                   .finish());
}

/// Reads what has come, but no more than the limit of a message and one turn.
void StoreServer::Impl::receive(Peer &peer) {
  char buffer[1 << 16];
  for (size_t turn = 0; turn < bytesPerTurn && !peer.closed;) {
    size_t room = std::min(sizeof buffer,
                           4 + size_t(peer.messageLimit()) - peer.in.size());
    ssize_t count = ::recv(peer.fd, buffer, room, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    // What a rank said last counts, also when it has gone.
    if (count <= 0)
      return drop(peer);
    turn += size_t(count);
    peer.in.append({buffer, size_t(count)});
    handleReceived(peer);
  }
}

void StoreServer::Impl::handleReceived(Peer &peer) {
  while (!peer.closed) {
    bool tooLong = false;
    std::optional<std::string> body =
        wire::takeMessage(peer.in, peer.messageLimit(), tooLong);
    if (tooLong)
      return drop(peer);
    if (!body)
      return;
    handle(peer, *body);
  }
}

void StoreServer::Impl::flush(Peer &peer) {
  while (!peer.out.empty()) {
    std::string_view out = peer.out.view();
    ssize_t count = ::send(peer.fd, out.data(), out.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    if (count <= 0)
      return drop(peer);
    peer.out.pop(size_t(count));
  }
}

/// Ends connections that do not register: the oldest, of too many.
void StoreServer::Impl::dropStrangers() {
  Clock::time_point now = Clock::now();
  size_t strangers = 0;
  for (auto peer = peers.rbegin(); peer != peers.rend(); ++peer)
    if (!(*peer)->isRegistered() && !(*peer)->closed &&
        (++strangers > ranks.size() + spareConnections ||
         now - (*peer)->since > registerWithin))
      drop(**peer);
}

/// A connection has ended. Without a word before that is a loss.
void StoreServer::Impl::drop(Peer &peer) {
  if (peer.closed)
    return;
  peer.closed = true;
  if (!peer.isRegistered())
    return;
  RankState &state = ranks[size_t(peer.rank)];
  if (state.presence == RankState::Present)
    state.presence = RankState::Lost;
  failAllWaiting();
}

void StoreServer::Impl::answer(Peer &peer, const std::string &message) {
  peer.out.append(message);
  flush(peer);
}

void StoreServer::Impl::fail(Peer &peer, const Ending &why) {
  peer.inExchange = false;
  peer.wantedKey.clear();
  answer(peer, wire::Writer(Kind::Failed)
                   .text(why.text)
                   .number(uint64_t(why.kind))
                   .finish());
}

void StoreServer::Impl::refuse(Peer &peer, const std::string &text) {
  fail(peer, {text, StoreFailure::Mistake});
}

/// Refuses a connection that has not registered. It is told why and then ended:
/// one that does not read would have answers pile up here.
void StoreServer::Impl::turnAway(Peer &peer, const std::string &text) {
  refuse(peer, text);
  drop(peer);
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

void StoreServer::Impl::handle(Peer &peer, const std::string &body) {
  wire::Reader message(body);
  if (!peer.isAuthenticated)
    return authenticate(peer, message);
  if (!peer.isRegistered())
    return registerRank(peer, message);
  RankState &state = ranks[size_t(peer.rank)];
  state.heard = Clock::now();
  switch (message.kind()) {
  case Kind::Set: {
    std::string key = message.text();
    return setKey(key, message.text());
  }
  case Kind::Get:
    return waitForKey(peer, message);
  case Kind::Exchange:
    return enterExchange(peer, message);
  case Kind::Progress:
    state.reduction = message.number();
    state.bytes = message.number();
    return;
  case Kind::Where:
    return answer(peer, wire::Writer(Kind::Done).text(ranks.status()).finish());
  case Kind::Loss: {
    Ending why = ranks.ending();
    return answer(peer, wire::Writer(Kind::Done)
                            .text(why.text)
                            .number(uint64_t(why.kind))
                            .finish());
  }
  case Kind::Leave:
    ranks.leave(size_t(peer.rank), message.text());
    return failAllWaiting();
  case Kind::Stop:
    ranks.stop(message.text());
    return failAllWaiting();
  case Kind::Heartbeat:
    return;
  case Kind::Challenge:
  case Kind::Proof:
  case Kind::Hello:
  case Kind::Wait:
  case Kind::Done:
  case Kind::Failed:
    break;
  }
  drop(peer);
}

/// Checks the first message of a connection, and proves in turn that this is
/// the store.
void StoreServer::Impl::authenticate(Peer &peer, wire::Reader &message) {
  std::string nonce = message.text(), proof = message.text();
  if (message.kind() != Kind::Proof || !message.good() ||
      nonce.size() != nonceBytes)
    return drop(peer);
  const std::string &token = identity.token;
  if (!equalInConstantTime(
          proof, proveToken(token, Prover::Rank, peer.nonce, nonce))) {
    ranks.noteRefusal(std::string("its token was not that of rank 0 in ") +
                      tokenVariable);
    return turnAway(peer, "the token is another one");
  }
  peer.isAuthenticated = true;
  answer(peer, wire::Writer(Kind::Done)
                   .text(proveToken(token, Prover::Store, peer.nonce, nonce))
                   .finish());
}

void StoreServer::Impl::registerRank(Peer &peer, wire::Reader &message) {
  uint64_t rank = message.number(), size = message.number();
  std::string run = message.text();
  if (message.kind() != Kind::Hello || !message.good())
    return drop(peer);
  if (!refusal.empty())
    return turnAway(peer, refusal);
  if (run != identity.run)
    return turnAway(peer, "the store there is that of another run: '" +
                              identity.run + "', this is '" + run +
                              "'; MASTER_PORT says where it is");
  if (size != ranks.size()) {
    std::string text = "rank " + std::to_string(rank) + " counts " +
                       std::to_string(size) + " ranks, rank 0 counts " +
                       std::to_string(ranks.size());
    turnAway(peer, text);
    ranks.noteRefusal(text);
    // Nobody waits for a rank that was told to belong to another run. Without a
    // token it may be a stranger, which ends nothing.
    if (!identity.token.empty() && !ranks.isComplete())
      refuseAll(text);
    return;
  }
  if (rank >= size || ranks[rank].presence != RankState::Absent)
    return turnAway(peer,
                    "there is a rank " + std::to_string(rank) + " already");
  peer.rank = int(rank);
  ranks[rank].presence = RankState::Present;
  ranks[rank].heard = Clock::now();
  answer(peer, wire::Writer(Kind::Done).finish());
}

void StoreServer::Impl::refuseAll(const std::string &text) {
  refusal = text;
  for (const std::unique_ptr<Peer> &peer : peers)
    if (!peer->closed && peer->isWaiting())
      refuse(*peer, text);
}

/// Sets a key and answers those who wait for it.
void StoreServer::Impl::setKey(const std::string &key,
                               const std::string &value) {
  std::string message = wire::Writer(Kind::Done).text(value).finish();
  values[key] = value;
  for (const std::unique_ptr<Peer> &peer : peers)
    if (!peer->closed && peer->wantedKey == key) {
      peer->wantedKey.clear();
      answer(*peer, message);
    }
}

/// A time that a client asks for.
static Milliseconds readTime(wire::Reader &message) {
  return Milliseconds(std::min(message.number(), mostMilliseconds));
}

void StoreServer::Impl::waitForKey(Peer &peer, wire::Reader &message) {
  std::string key = message.text();
  Milliseconds allowed = readTime(message);
  if (!message.good() || key.empty())
    return drop(peer);
  if (!refusal.empty())
    return refuse(peer, refusal);
  if (Ending why = ranks.ending(); !why.text.empty())
    return fail(peer, why);
  peer.wantedKey = key;
  peer.waitFor(allowed);
  if (auto found = values.find(key); found != values.end())
    setKey(key, found->second);
}

void StoreServer::Impl::enterExchange(Peer &peer, wire::Reader &message) {
  peer.exchangeName = message.text();
  Milliseconds allowed = readTime(message), most = readTime(message);
  peer.mayFollowStop = message.number() != 0;
  peer.payload = message.text();
  if (!message.good())
    return drop(peer);
  if (!refusal.empty())
    return refuse(peer, refusal);
  if (Ending why = ranks.ending(peer.mayFollowStop); !why.text.empty())
    return fail(peer, why);
  peer.inExchange = true;
  peer.waitFor(allowed, most);
  ranks[size_t(peer.rank)].lastExchange = peer.exchangeName;
  finishExchange();
}

/// Answers all, if all are there.
void StoreServer::Impl::finishExchange() {
  std::vector<Peer *> byRank(ranks.size());
  for (const std::unique_ptr<Peer> &peer : peers)
    if (peer->inExchange && !peer->closed)
      byRank[size_t(peer->rank)] = peer.get();
  wire::Writer all(Kind::Done);
  std::string difference;
  for (Peer *peer : byRank) {
    if (!peer)
      return;
    all.text(peer->payload);
    if (peer->exchangeName != byRank[0]->exchangeName)
      difference = "rank 0 is at '" + byRank[0]->exchangeName + "', rank " +
                   std::to_string(peer->rank) + " at '" + peer->exchangeName +
                   "'";
  }
  std::string message = all.finish();
  // Before any answer: one that cannot be sent would fail those that wait.
  for (Peer *peer : byRank)
    peer->inExchange = false;
  for (Peer *peer : byRank) {
    if (difference.empty())
      answer(*peer, message);
    else
      refuse(*peer, "the ranks do not do the same: " + difference);
  }
}

/// Whether those that a client waits for are at work still, and it allows that.
bool StoreServer::Impl::mayGoOnWaiting(const Peer &peer) const {
  return peer.inExchange && Clock::now() < peer.since + peer.most &&
         ranks.areAllAlive();
}

void StoreServer::Impl::expire() {
  Clock::time_point now = Clock::now();
  for (const std::unique_ptr<Peer> &peer : peers)
    if (peer->isWaiting() && !peer->closed && now >= peer->deadline) {
      if (mayGoOnWaiting(*peer)) {
        peer->deadline = now + peer->allowed;
        answer(*peer, wire::Writer(Kind::Wait).finish());
        continue;
      }
      auto waited =
          std::chrono::duration_cast<std::chrono::seconds>(now - peer->since);
      std::string after = "after " + std::to_string(waited.count()) + " s: ";
      fail(*peer,
           {peer->inExchange ? "time-out at '" + peer->exchangeName + "' " +
                                   after + ranks.missingFrom(peer->exchangeName)
                             : "time-out " + after + ranks.status(),
            StoreFailure::Loss});
    }
}

void StoreServer::Impl::failAllWaiting() {
  for (const std::unique_ptr<Peer> &peer : peers)
    if (!peer->closed && peer->isWaiting())
      if (Ending why = ranks.ending(peer->isAtTheEnd()); !why.text.empty())
        fail(*peer, why);
}

/// Leaves the reason for clients that ask when there is no server any more.
void StoreServer::Impl::sayGoodbye() {
  Ending why = ranks.ending();
  for (const std::unique_ptr<Peer> &peer : peers)
    if (!peer->closed && peer->isRegistered() && !why.text.empty())
      fail(*peer, why);
}

} // namespace nsa
