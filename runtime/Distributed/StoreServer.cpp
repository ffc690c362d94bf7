//===- StoreServer.cpp - the store that rank 0 serves ---------------------===//

#include "lib/Support/Random.h"
#include "runtime/Distributed/SignalBlockedThread.h"
#include "runtime/Distributed/Socket.h"
#include "runtime/Distributed/Store.h"
#include "runtime/Distributed/Token.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace nsa {

using wire::Kind;
using wire::Message;
using Clock = std::chrono::steady_clock;

/// How long clients may take to leave at the end. A launcher that kills what is
/// left after a failure must leave more time than that.
static constexpr Milliseconds linger{1500};

/// How long a connection may take to register.
static constexpr Milliseconds registerWithin{10000};

/// How many connections that have not registered are kept beyond one for each
/// rank.
static constexpr size_t spareConnections = 128;

/// How often clients are told how the ranks are, and from when on one is
/// silent: ranks send heartbeats twice a second.
static constexpr Milliseconds tellEvery{200}, silentAfter{1300};

/// How long nothing is accepted after there was no descriptor left.
static constexpr Milliseconds pauseWithoutDescriptors{20};

/// A connection. Its rank is -1 until it has registered.
struct StoreServer::Peer {
  Peer(int fd, std::string nonce) : fd(fd), nonce(std::move(nonce)) {}
  Peer(const Peer &) = delete;
  Peer &operator=(const Peer &) = delete;
  ~Peer() { ::close(fd); }

  bool isRegistered() const { return rank >= 0; }

  const int fd;
  /// What it was sent to prove that it knows the token.
  const std::string nonce;
  int rank = -1;
  bool isClosed = false, hasLeft = false, isSilent = false;
  std::string in, out;
  /// When it was accepted or last said something.
  Clock::time_point heard = Clock::now();
  /// The reduction that it has begun, if the others were not told yet.
  std::optional<Message> progress;
};

StoreServer::StoreServer(std::vector<int> listeners, int size,
                         RunIdentity identity)
    : listeners(std::move(listeners)), identity(std::move(identity)),
      hasCome(size_t(size)) {
  thread = startSignalBlockedThread([this] { serve(); });
}

Result<std::unique_ptr<StoreServer>>
StoreServer::start(const std::string &address, uint16_t port, int size,
                   const RunIdentity &identity) {
  NSA_ASSIGN_OR_RETURN(std::vector<int> listeners, listenAt(address, port));
  return std::unique_ptr<StoreServer>(
      new StoreServer(std::move(listeners), size, identity));
}

uint16_t StoreServer::port() const { return boundPortOf(listeners.front()); }

StoreServer::~StoreServer() {
  stopping = true;
  // Which the thread notices.
  for (int listener : listeners)
    ::shutdown(listener, SHUT_RDWR);
  thread.join();
  for (int listener : listeners)
    ::close(listener);
}

//===----------------------------------------------------------------------===//
// Connections
//===----------------------------------------------------------------------===//

void StoreServer::serve() {
  std::optional<Clock::time_point> end;
  while (true) {
    Clock::time_point now = Clock::now();
    if (stopping && !end)
      end = now + linger;
    bool hasRanks =
        std::any_of(peers.begin(), peers.end(),
                    [](const auto &peer) { return peer->isRegistered(); });
    if (end && (!hasRanks || now >= *end))
      return;
    std::vector<pollfd> polled;
    polled.reserve(peers.size() + listeners.size());
    for (const std::unique_ptr<Peer> &peer : peers)
      polled.push_back(
          {peer->fd, short(POLLIN | (peer->out.empty() ? 0 : POLLOUT)), 0});
    size_t known = peers.size();
    for (int listener : listeners)
      polled.push_back({end || now < acceptAfter ? -1 : listener, POLLIN, 0});
    ::poll(polled.data(), polled.size(), 100);
    for (size_t i = 0; i < listeners.size(); ++i)
      if (polled[known + i].revents)
        accept(listeners[i]);
    for (size_t i = 0; i < known; ++i)
      if (polled[i].revents & (POLLIN | POLLHUP | POLLERR))
        receive(*peers[i]);
    tellHowRanksAre();
    dropStrangers();
    for (const std::unique_ptr<Peer> &peer : peers)
      flush(*peer);
    peers.erase(std::remove_if(peers.begin(), peers.end(),
                               [](auto &peer) { return peer->isClosed; }),
                peers.end());
  }
}

/// Accepts one connection and asks it for a proof.
void StoreServer::accept(int listener) {
  int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    acceptAfter = Clock::now() + pauseWithoutDescriptors;
    return;
  }
  Result<std::string> nonce = randomBytes(nonceBytes);
  if (!nonce) {
    ::close(fd);
    return;
  }
  peers.push_back(std::make_unique<Peer>(fd, *nonce));
  peers.back()->out = wire::encode(
      {Kind::Challenge, 0, !identity.token.empty(), 0, "", *nonce});
}

/// Reads a part of what has come, so that all have their turn.
void StoreServer::receive(Peer &peer) {
  char buffer[1 << 16];
  ssize_t count = ::recv(peer.fd, buffer, sizeof buffer, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  // The last message of a rank counts even after it has gone.
  if (count <= 0)
    return drop(peer);
  peer.in.append(buffer, size_t(count));
  std::string_view rest = peer.in;
  while (!peer.isClosed) {
    bool isForeign = false;
    std::optional<Message> message = wire::decode(
        rest, peer.isRegistered() ? wire::maxBytes : wire::maxHelloBytes,
        isForeign);
    if (isForeign)
      return drop(peer);
    if (!message)
      break;
    if (peer.isRegistered())
      relay(peer, std::move(*message));
    else
      registerRank(peer, *message);
  }
  peer.in.erase(0, peer.in.size() - rest.size());
}

void StoreServer::flush(Peer &peer) {
  while (!peer.out.empty() && !peer.isClosed) {
    ssize_t count =
        ::send(peer.fd, peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    if (count <= 0)
      return drop(peer);
    peer.out.erase(0, size_t(count));
  }
}

/// Ends connections that do not register: the oldest, of too many.
void StoreServer::dropStrangers() {
  size_t strangers = 0;
  for (auto peer = peers.rbegin(); peer != peers.rend(); ++peer)
    if (!(*peer)->isRegistered() && !(*peer)->isClosed &&
        (++strangers > hasCome.size() + spareConnections ||
         Clock::now() - (*peer)->heard > registerWithin))
      drop(**peer);
}

/// A connection has ended. Without a word before that is a loss.
void StoreServer::drop(Peer &peer) {
  if (std::exchange(peer.isClosed, true) || !peer.isRegistered() ||
      peer.hasLeft)
    return;
  tellProgress(peer);
  tellAll({Kind::Lost, uint64_t(peer.rank)});
}

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

/// Registers a connection if it proves that it may be, or says why not and ends
/// it.
void StoreServer::registerRank(Peer &peer, const Message &hello) {
  if (hello.kind != Kind::Hello || hello.text.size() != nonceBytes + proofBytes)
    return drop(peer);
  const std::string nonce = hello.text.substr(0, nonceBytes);
  Message answer{Kind::Welcome};
  if (equalInConstantTime(
          hello.text.substr(nonceBytes),
          proveToken(identity.token, Prover::Rank, peer.nonce, nonce))) {
    answer.name = findMistake(hello);
    answer.text = proveToken(identity.token, Prover::Store, peer.nonce, nonce);
  } else {
    answer.name =
        std::string("its token was not that of rank 0 in ") + tokenVariable;
    noteRefusal(answer.name);
  }
  if (!answer.name.empty())
    answer.kind = Kind::Refused;
  peer.out += wire::encode(answer);
  if (answer.kind == Kind::Refused) {
    flush(peer);
    return drop(peer);
  }
  peer.rank = int(hello.rank);
  hasCome[hello.rank] = true;
  peer.heard = Clock::now();
  peer.out += log + wire::encode(refusal);
  tellAll({Kind::Joined, hello.rank});
}

/// Why a client that knows the token may not register; empty if it may.
std::string StoreServer::findMistake(const Message &hello) {
  if (hello.name != identity.run)
    return "the store there is that of another run: '" + identity.run +
           "', this is '" + hello.name + "'; MASTER_PORT says where it is";
  if (hello.number != hasCome.size()) {
    std::string text = "rank " + std::to_string(hello.rank) + " counts " +
                       std::to_string(hello.number) + " ranks, rank 0 counts " +
                       std::to_string(hasCome.size());
    // No rank waits for one that belongs to another run. Without a
    // token it may be a stranger, which ends nothing.
    noteRefusal(text, /*endsRun=*/!identity.token.empty());
    return text;
  }
  if (hello.rank >= hasCome.size() || hasCome[hello.rank])
    return "there is a rank " + std::to_string(hello.rank) + " already";
  return "";
}

bool StoreServer::isComplete() const {
  return std::find(hasCome.begin(), hasCome.end(), false) == hasCome.end();
}

/// A refused connection may have been one of the ranks that are missing.
void StoreServer::noteRefusal(const std::string &text, bool endsRun) {
  if (isComplete() || refusal.number != 0)
    return;
  refusal.name = text;
  refusal.number = endsRun;
  tellAll(refusal);
}

void StoreServer::relay(Peer &peer, Message message) {
  peer.heard = Clock::now();
  message.rank = uint64_t(peer.rank);
  switch (message.kind) {
  case Kind::Alive:
    return;
  case Kind::Progress:
    peer.progress = std::move(message);
    return;
  case Kind::Leave:
    peer.hasLeft = true;
    tellProgress(peer);
    return tellAll(message);
  case Kind::Set:
  case Kind::Exchange:
  case Kind::Stop:
    return tellAll(message);
  default:
    drop(peer);
  }
}

/// Not at once: it is asked for where something goes wrong.
void StoreServer::tellProgress(Peer &peer) {
  if (peer.progress)
    tellAll(*peer.progress);
  peer.progress.reset();
}

void StoreServer::tellHowRanksAre() {
  Clock::time_point now = Clock::now();
  if (now < nextTelling)
    return;
  nextTelling = now + tellEvery;
  for (const std::unique_ptr<Peer> &peer : peers) {
    if (!peer->isRegistered() || peer->isClosed || peer->hasLeft)
      continue;
    tellProgress(*peer);
    auto silence = std::chrono::duration_cast<Milliseconds>(now - peer->heard);
    bool isSilent = silence > silentAfter;
    if (isSilent || peer->isSilent)
      tellAll({Kind::Silent, uint64_t(peer->rank),
               isSilent ? uint64_t(silence.count()) : 0});
    peer->isSilent = isSilent;
  }
  tellAll({Kind::Alive});
}

void StoreServer::tellAll(const Message &message) {
  std::string bytes = wire::encode(message);
  for (const std::unique_ptr<Peer> &peer : peers)
    if (peer->isRegistered() && !peer->isClosed)
      peer->out += bytes;
  if (isComplete())
    log.clear();
  else if (message.kind != Kind::Alive && message.kind != Kind::Refused)
    log += bytes;
}

} // namespace nsa
