//===- StoreServer.cpp - the store that rank 0 serves ---------------------===//

#include "runtime/Distributed/Socket.h"
#include "runtime/Distributed/Store.h"
#include "runtime/Distributed/Wire.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
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

/// How long a connection may take to say who it is.
static constexpr Milliseconds helloWithin{10000};

/// How many connections that have not said it are kept beyond one for each
/// rank.
static constexpr size_t spareConnections = 64;

/// How long nothing is accepted after there was no descriptor left.
static constexpr Milliseconds pauseWithoutDescriptors{200};

namespace {

/// A connection. Its rank is -1 until it has said Hello.
struct Peer {
  explicit Peer(int fd) : fd(fd), since(Clock::now()) {}
  Peer(const Peer &) = delete;
  Peer &operator=(const Peer &) = delete;
  ~Peer() { ::close(fd); }

  int fd;
  int rank = -1;
  bool closed = false;
  std::string in, out;
  /// What it waits for.
  std::string wantedKey;
  bool inExchange = false, mayFollowStop = false;
  std::string exchangeName, payload;
  Clock::time_point since, deadline;
  /// How long it is asked to wait each time, and in all.
  Milliseconds allowed{0}, most{0};

  bool isWaiting() const { return inExchange || !wantedKey.empty(); }
  bool isAtTheEnd() const { return inExchange && mayFollowStop; }
  void waitFor(Milliseconds time, Milliseconds inAll = Milliseconds(0)) {
    since = Clock::now();
    deadline = since + time;
    allowed = time;
    most = inAll;
  }
};

/// Why a client would wait in vain; without a text it would not.
struct Ending {
  std::string text;
  StoreFailure kind = StoreFailure::Loss;
};

/// What is known of a rank.
struct RankState {
  enum { Absent, Present, Left, Lost } presence = Absent;
  uint64_t reduction = 0;
  uint64_t bytes = 0;
  std::string lastExchange;
  /// When it last said something.
  Clock::time_point heard;

  /// How long it has said nothing, if that is unusual: ranks beat every second.
  std::optional<double> silence() const {
    std::chrono::duration<double> since = Clock::now() - heard;
    bool isUnusual = presence == Present && since.count() > 1.8;
    return isUnusual ? std::optional<double>(since.count()) : std::nullopt;
  }
};

} // namespace

class StoreServer::Impl {
public:
  Impl(int listener, uint16_t port, int size, const std::string &run)
      : listener(listener), boundPort(port), run(run), ranks(size_t(size)) {}
  ~Impl();

  Status startThread();
  uint16_t port() const { return boundPort; }

private:
  void serve();
  void accept();
  void receive(Peer &peer);
  void flush(Peer &peer);
  void drop(Peer &peer);
  void dropStrangers();
  void handle(Peer &peer, const std::string &body);
  void hello(Peer &peer, wire::Reader &message);
  void setKey(const std::string &key, const std::string &value);
  void enterExchange(Peer &peer, wire::Reader &message);
  void finishExchange();
  bool mayGoOnWaiting(const Peer &peer) const;
  void expire();
  void answer(Peer &peer, const std::string &message);
  void fail(Peer &peer, const Ending &why);
  void refuse(Peer &peer, const std::string &text);
  void refuseAll(const std::string &text);
  bool isComplete() const;
  void failAllWaiting();
  void sayGoodbye();
  /// Why nothing more can come of this run, but for its end where it was
  /// stopped.
  Ending ending(bool mayFollowStop = false) const;
  std::string lossText() const;
  std::string describe(size_t rank) const;
  std::string whereabouts() const;
  std::string missingFrom(const std::string &exchange) const;

  int listener;
  uint16_t boundPort;
  std::string run;
  std::vector<RankState> ranks;
  std::vector<std::unique_ptr<Peer>> peers;
  std::map<std::string, std::string> values;
  /// Why the first rank left that did not leave at the end.
  std::string reason;
  /// Why a rank has stopped the run.
  std::string stopText;
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
                   const std::string &run) {
  Result<int> listener = listenAt(address, port);
  if (!listener)
    return listener.takeError();
  auto impl =
      std::make_unique<Impl>(*listener, boundPortOf(*listener), size, run);
  if (Status status = impl->startThread(); !status)
    return Error{status.message()};
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
                    [](const auto &peer) { return peer->rank >= 0; });
    if (end && (!hasRanks || Clock::now() >= *end))
      return sayGoodbye();
    std::vector<pollfd> polled = {
        {Clock::now() < acceptAfter ? -1 : listener, POLLIN, 0},
        {stopping ? -1 : wake[0], POLLIN, 0}};
    for (const std::unique_ptr<Peer> &peer : peers)
      polled.push_back(
          {peer->fd, short(POLLIN | (peer->out.empty() ? 0 : POLLOUT)), 0});
    ::poll(polled.data(), polled.size(), 100);
    size_t known = peers.size();
    if (polled[0].revents)
      accept();
    for (size_t i = 0; i < known; ++i) {
      if (polled[i + 2].revents & POLLOUT)
        flush(*peers[i]);
      if (polled[i + 2].revents & (POLLIN | POLLHUP | POLLERR))
        receive(*peers[i]);
    }
    expire();
    dropStrangers();
    peers.erase(std::remove_if(peers.begin(), peers.end(),
                               [](auto &peer) { return peer->closed; }),
                peers.end());
  }
}

void StoreServer::Impl::accept() {
  int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
        errno == ENOBUFS)
      acceptAfter = Clock::now() + pauseWithoutDescriptors;
    return;
  }
  sendAtOnce(fd);
  peers.push_back(std::make_unique<Peer>(fd));
}

void StoreServer::Impl::receive(Peer &peer) {
  char buffer[1 << 16];
  bool ended = false;
  while (!peer.closed) {
    ssize_t count = ::recv(peer.fd, buffer, sizeof buffer, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
      break;
    ended = count <= 0;
    if (ended)
      break;
    peer.in.append(buffer, size_t(count));
    if (peer.rank < 0 && peer.in.size() > wire::maxHelloBytes)
      return drop(peer);
  }
  // What a rank said last counts, also when it has gone.
  bool tooLong = false;
  while (std::optional<std::string> body = wire::takeMessage(peer.in, tooLong))
    handle(peer, *body);
  if (tooLong || ended)
    drop(peer);
}

void StoreServer::Impl::flush(Peer &peer) {
  while (!peer.out.empty()) {
    ssize_t count =
        ::send(peer.fd, peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    if (count <= 0)
      return drop(peer);
    peer.out.erase(0, size_t(count));
  }
}

/// Ends connections that do not say who they are: the oldest, of too many.
void StoreServer::Impl::dropStrangers() {
  Clock::time_point now = Clock::now();
  size_t strangers = 0;
  for (auto peer = peers.rbegin(); peer != peers.rend(); ++peer)
    if ((*peer)->rank < 0 && !(*peer)->closed &&
        (++strangers > ranks.size() + spareConnections ||
         now - (*peer)->since > helloWithin))
      drop(**peer);
}

/// A connection has ended. Without a word before that is a loss.
void StoreServer::Impl::drop(Peer &peer) {
  if (peer.closed)
    return;
  peer.closed = true;
  if (peer.rank < 0)
    return;
  RankState &state = ranks[size_t(peer.rank)];
  if (state.presence == RankState::Present)
    state.presence = RankState::Lost;
  failAllWaiting();
}

void StoreServer::Impl::answer(Peer &peer, const std::string &message) {
  peer.out += message;
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

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

void StoreServer::Impl::handle(Peer &peer, const std::string &body) {
  wire::Reader message(body);
  if (peer.rank < 0 && message.kind() != Kind::Hello)
    return drop(peer);
  if (peer.rank >= 0)
    ranks[size_t(peer.rank)].heard = Clock::now();
  if (!refusal.empty() &&
      (message.kind() == Kind::Hello || message.kind() == Kind::Get ||
       message.kind() == Kind::Exchange))
    return refuse(peer, refusal);
  switch (message.kind()) {
  case Kind::Hello:
    return hello(peer, message);
  case Kind::Set: {
    std::string key = message.text();
    return setKey(key, message.text());
  }
  case Kind::Get: {
    if (Ending why = ending(); !why.text.empty())
      return fail(peer, why);
    std::string key = message.text();
    peer.wantedKey = key;
    peer.waitFor(Milliseconds(message.number()));
    if (auto found = values.find(key); found != values.end())
      setKey(key, found->second);
    return;
  }
  case Kind::Exchange:
    return enterExchange(peer, message);
  case Kind::Progress: {
    RankState &state = ranks[size_t(peer.rank)];
    state.reduction = message.number();
    state.bytes = message.number();
    return;
  }
  case Kind::Where:
    return answer(peer, wire::Writer(Kind::Done).text(whereabouts()).finish());
  case Kind::Loss: {
    Ending why = ending();
    return answer(peer, wire::Writer(Kind::Done)
                            .text(why.text)
                            .number(uint64_t(why.kind))
                            .finish());
  }
  case Kind::Leave:
    ranks[size_t(peer.rank)].presence = RankState::Left;
    if (reason.empty())
      reason = message.text();
    return failAllWaiting();
  case Kind::Stop:
    if (ending().text.empty())
      stopText = message.text();
    return failAllWaiting();
  case Kind::Beat:
    return;
  case Kind::Wait:
  case Kind::Done:
  case Kind::Failed:
    break;
  }
  drop(peer);
}

void StoreServer::Impl::hello(Peer &peer, wire::Reader &message) {
  uint64_t protocol = message.number();
  uint64_t rank = message.number(), size = message.number();
  std::string ofRun = message.text();
  if (!message.good() || protocol != wire::protocol)
    return refuse(peer, "rank 0 speaks another version of the protocol");
  if (ofRun != run)
    return refuse(peer, "the store there is that of another run: '" + run +
                            "', this is '" + ofRun +
                            "'; MASTER_PORT says where it is");
  if (size != ranks.size()) {
    std::string text = "rank " + std::to_string(rank) + " counts " +
                       std::to_string(size) + " ranks, rank 0 counts " +
                       std::to_string(ranks.size());
    refuse(peer, text);
    // Nobody waits for a rank that was told to belong to another run.
    return isComplete() ? void() : refuseAll(text);
  }
  if (rank >= size || ranks[rank].presence != RankState::Absent)
    return refuse(peer, "there is a rank " + std::to_string(rank) + " already");
  peer.rank = int(rank);
  ranks[rank].presence = RankState::Present;
  ranks[rank].heard = Clock::now();
  answer(peer, wire::Writer(Kind::Done).finish());
}

/// Whether every rank has come.
bool StoreServer::Impl::isComplete() const {
  return std::none_of(ranks.begin(), ranks.end(), [](const RankState &state) {
    return state.presence == RankState::Absent;
  });
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

void StoreServer::Impl::enterExchange(Peer &peer, wire::Reader &message) {
  peer.exchangeName = message.text();
  Milliseconds allowed{message.number()}, most{message.number()};
  peer.mayFollowStop = message.number() != 0;
  peer.payload = message.text();
  if (!message.good())
    return drop(peer);
  if (Ending why = ending(peer.mayFollowStop); !why.text.empty())
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
         std::all_of(
             ranks.begin(), ranks.end(),
             [&](const RankState &state) {
               return state.presence == RankState::Present && !state.silence();
             });
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
                                   after + missingFrom(peer->exchangeName)
                             : "time-out " + after + whereabouts(),
            StoreFailure::Loss});
    }
}

void StoreServer::Impl::failAllWaiting() {
  for (const std::unique_ptr<Peer> &peer : peers)
    if (!peer->closed && peer->isWaiting())
      if (Ending why = ending(peer->isAtTheEnd()); !why.text.empty())
        fail(*peer, why);
}

/// Leaves the reason for clients that ask when there is no server any more.
void StoreServer::Impl::sayGoodbye() {
  Ending why = ending();
  for (const std::unique_ptr<Peer> &peer : peers)
    if (!peer->closed && peer->rank >= 0 && !why.text.empty())
      fail(*peer, why);
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

Ending StoreServer::Impl::ending(bool mayFollowStop) const {
  if (!stopText.empty() && !mayFollowStop)
    return {stopText, StoreFailure::Stop};
  return {lossText(), StoreFailure::Loss};
}

/// Those that ended without a word are the cause; others may have left because
/// of them.
std::string StoreServer::Impl::lossText() const {
  auto list = [&](auto presence, const char *what) {
    std::string text;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      if (ranks[rank].presence == presence)
        text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(rank)) +
                what + describe(rank);
    return text;
  };
  std::string text = list(RankState::Lost, " was lost after ");
  if (text.empty())
    text = reason;
  return text.empty() ? list(RankState::Left, " left after ") : text;
}

std::string StoreServer::Impl::describe(size_t rank) const {
  const RankState &state = ranks[rank];
  if (state.presence == RankState::Absent)
    return "nothing: it has not come";
  std::string text = state.reduction
                         ? "beginning reduction " +
                               std::to_string(state.reduction) + " (" +
                               std::to_string(state.bytes) + " bytes)"
                         : "beginning no reduction";
  if (!state.lastExchange.empty())
    text += " and '" + state.lastExchange + "'";
  if (std::optional<double> seconds = state.silence())
    text += ", silent for " + std::to_string(std::lround(*seconds)) + " s";
  return text;
}

std::string StoreServer::Impl::whereabouts() const {
  std::string text = ending().text;
  // What matters first.
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].silence())
      text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(rank)) +
              " does not answer";
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].presence != RankState::Lost)
      text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(rank)) +
              " was last seen " + describe(rank);
  return text;
}

std::string StoreServer::Impl::missingFrom(const std::string &exchange) const {
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].lastExchange != exchange)
      text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(rank)) +
              " did not come, last seen " + describe(rank);
  return text.empty() ? whereabouts() : text;
}

} // namespace nsa
