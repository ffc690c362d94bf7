//===- StrangersTest.cpp - connections that are none of the run's ---------===//
//
// No connection that does not know the token ends or holds up a start or a run.
//
//===----------------------------------------------------------------------===//

#include "runtime/Distributed/Ranks.h"
#include "runtime/Distributed/Socket.h"
#include "runtime/Distributed/Token.h"
#include "test/unit/Distributed/InThreads.h"
#include "test/unit/Expect.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

using namespace nsa;
using wire::encode;

namespace {

constexpr Milliseconds patient{20000};

/// Well below any time-out, well above what two ranks take to meet.
constexpr Milliseconds soon{5000};

/// That of the run, which strangers do not know.
RunIdentity known() { return {"", "0123456789abcdef0123456789abcdef"}; }

/// A connection without manners; closed on destruction.
class Stranger {
public:
  explicit Stranger(uint16_t port)
      : fd(*connectTo("127.0.0.1", port, patient)) {}
  explicit Stranger(int fd) : fd(fd) {}
  Stranger(const Stranger &) = delete;
  Stranger &operator=(const Stranger &) = delete;
  ~Stranger() { ::close(fd); }

  void send(const std::string &bytes) const {
    (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  /// The next message; nothing at the end of the connection.
  std::optional<wire::Message> receive() {
    bool isForeign = false;
    while (true) {
      std::string_view rest = received;
      std::optional<wire::Message> message =
          wire::decode(rest, wire::maxBytes, isForeign);
      received = std::string(rest);
      char buffer[4096];
      ssize_t count = message ? 0 : ::recv(fd, buffer, sizeof buffer, 0);
      if (count <= 0)
        return message;
      received.append(buffer, size_t(count));
    }
  }

private:
  std::string received;
  int fd;
};

class StrangersTest : public ::testing::Test {
protected:
  void serve(const RunIdentity &identity) {
    own = identity;
    Result<std::unique_ptr<StoreServer>> started =
        StoreServer::start("127.0.0.1", 0, 2, own);
    ASSERT_TRUE(started.ok()) << started.message();
    server = std::move(*started);
  }
  uint16_t port() const { return server->port(); }
  Result<std::unique_ptr<StoreClient>> connect(int rank, int size,
                                               const RunIdentity &identity) {
    return StoreClient::connect("127.0.0.1", port(), rank, size, patient,
                                &failure, identity);
  }
  /// Two ranks meet and work together; `meanwhile` is called in between.
  void expectRunGoesOn(const std::function<void()> &meanwhile = [] {}) {
    auto begin = std::chrono::steady_clock::now();
    inThreads(2, [&](int rank) {
      auto client = StoreClient::connect("127.0.0.1", port(), rank, 2, patient,
                                         nullptr, own);
      ASSERT_TRUE(client.ok()) << client.message();
      for (const char *name : {"start", "step 1", "step 2"}) {
        auto all = (*client)->exchange(name, name, patient);
        ASSERT_TRUE(all.ok()) << all.message();
        if (rank == 0 && std::string(name) == "start")
          meanwhile();
      }
      (*client)->leave();
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, soon);
  }

  RunIdentity own;
  std::unique_ptr<StoreServer> server;
  StoreFailure failure = StoreFailure::Loss;
};

// Without a token the store cannot know that it is a stranger.
TEST_F(StrangersTest, OtherCountWithoutAToken_IsRefusedAloneAndNamedLater) {
  serve({});
  EXPECT_EQ(messageOf(connect(1, 3, {})),
            "rank 1 counts 3 ranks, rank 0 counts 2");
  EXPECT_EQ(failure, StoreFailure::Mistake);
  auto first = connect(0, 2, {});
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_TRUE(failsWith((*first)->exchange("start", "", Milliseconds(20)),
                        "a connection was refused: rank 1 counts 3 "
                        "ranks, rank 0 counts 2"));
  EXPECT_TRUE(connect(1, 2, {}).ok());
}

TEST_F(StrangersTest, OtherToken_IsToldSoAndStartGoesOn) {
  serve(known());
  std::string at = "127.0.0.1:" + std::to_string(port());
  EXPECT_EQ(messageOf(connect(1, 2, {"", "another token of many letters"})),
            "NSA_RENDEZVOUS_TOKEN of this rank is not that of "
            "rank 0, which serves the store at " +
                at);
  EXPECT_EQ(failure, StoreFailure::Mistake);
  EXPECT_EQ(messageOf(connect(1, 2, {})),
            "NSA_RENDEZVOUS_TOKEN is set for rank 0, which "
            "serves the store at " +
                at + ", but not for this rank");
  EXPECT_EQ(failure, StoreFailure::Mistake);
  expectRunGoesOn();
}

TEST_F(StrangersTest, TokenThatRank0Lacks_IsToldSo) {
  serve({});
  auto client = connect(1, 2, known());
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.message().find("NSA_RENDEZVOUS_TOKEN is set for this rank, "
                                  "but not for rank 0"),
            0u)
      << client.message();
  EXPECT_EQ(failure, StoreFailure::Mistake);
}

/// A listener in the place of rank 0, for one connection. It sends a challenge,
/// and returns what the rank answers; `client` gets what the rank says then.
std::optional<wire::Message>
proofFor(const std::string &challenge,
         Result<std::unique_ptr<StoreClient>> &client) {
  int listener = listenAt("127.0.0.1", 0)->front();
  std::optional<wire::Message> proof;
  inThreads(2, [&](int side) {
    if (side == 0) {
      client = StoreClient::connect("127.0.0.1", boundPortOf(listener), 1, 2,
                                    patient, nullptr, known());
      return;
    }
    pollfd polled = {listener, POLLIN, 0};
    ASSERT_EQ(::poll(&polled, 1, int(patient.count())), 1);
    Stranger rank(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    rank.send(challenge);
    proof = rank.receive();
    rank.send(encode(
        {wire::Kind::Welcome, 0, 0, 0, "", std::string(proofBytes, '\0')}));
  });
  ::close(listener);
  return proof;
}

// A process that listens in the place of rank 0 learns nothing, and a rank
// notices.
TEST_F(StrangersTest, ListenerWithoutTheToken_IsNoticedAndLearnsNothing) {
  Result<std::unique_ptr<StoreClient>> client = Error{"not tried"};
  auto hello = proofFor(encode({wire::Kind::Challenge, 0, 1, 0, "",
                                std::string(nonceBytes, 'n')}),
                        client);
  ASSERT_FALSE(client.ok());
  ASSERT_TRUE(hello);
  EXPECT_EQ(client.message().find("NSA_RENDEZVOUS_TOKEN of this rank is not "),
            0u)
      << client.message();
  EXPECT_FALSE(contains(encode(*hello), known().token));
}

TEST_F(StrangersTest, ListenerThatIsNoStore_IsNamed) {
  Result<std::unique_ptr<StoreClient>> client = Error{"not tried"};
  proofFor("SSH-2.0-", client);
  EXPECT_TRUE(failsWith(client, "is no store, or speaks another version"));
}

TEST_F(StrangersTest, RecordedRegistration_IsRefusedAndStartGoesOn) {
  serve(known());
  Stranger replaying(port());
  auto challenge = replaying.receive();
  Result<std::unique_ptr<StoreClient>> client = Error{"not tried"};
  // The proof of a real rank, for the nonce of another connection.
  auto other = Stranger(port()).receive();
  ASSERT_TRUE(challenge && other);
  ASSERT_NE(challenge->text, other->text);
  auto hello = proofFor(encode(*other), client);
  ASSERT_TRUE(hello);
  replaying.send(encode(*hello));
  auto refused = replaying.receive();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, wire::Kind::Refused);
  EXPECT_EQ(refused->text, "");
  EXPECT_FALSE(replaying.receive());
  expectRunGoesOn();
}

TEST_F(StrangersTest, SecondRegistrationOfARank_IsRefusedAndRunGoesOn) {
  serve(known());
  expectRunGoesOn([&] {
    EXPECT_EQ(messageOf(connect(1, 2, known())), "there is a rank 1 already");
  });
}

TEST(Wire, Messages_AreTakenWhole) {
  wire::Message first{wire::Kind::Exchange, 1, 2, 3, "name", {"\0text", 5}},
      second{wire::Kind::Alive};
  const std::string both = encode(first) + encode(second);
  bool isForeign = false;
  std::string_view rest;
  for (size_t length = 0; length < encode(first).size(); ++length) {
    rest = std::string_view(both).substr(0, length);
    EXPECT_FALSE(wire::decode(rest, 100, isForeign)) << length;
    EXPECT_FALSE(isForeign) << length;
    EXPECT_EQ(rest.size(), length);
  }
  rest = both;
  std::optional<wire::Message> taken = wire::decode(rest, 5, isForeign);
  ASSERT_TRUE(taken);
  EXPECT_EQ(encode(*taken), encode(first));
  taken = wire::decode(rest, 5, isForeign);
  ASSERT_TRUE(taken);
  EXPECT_EQ(encode(*taken), encode(second));
  EXPECT_TRUE(rest.empty());
}

TEST(Wire, OtherBytesAndLongTexts_AreForeign) {
  bool isForeign = false;
  std::string_view http = "GET / HT";
  EXPECT_FALSE(wire::decode(http, 100, isForeign));
  EXPECT_TRUE(isForeign);
  for (auto [name, text] : {std::pair(0, 101), std::pair(101, 0)}) {
    std::string bytes =
        encode({wire::Kind::Hello, 0, 0, 0, std::string(size_t(name), 'x'),
                std::string(size_t(text), 'x')});
    std::string_view head = std::string_view(bytes).substr(0, 48);
    EXPECT_FALSE(wire::decode(head, 100, isForeign));
    EXPECT_TRUE(isForeign);
  }
}

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

bool canReach(const std::string &address, uint16_t port) {
  Result<int> fd = connectTo(address, port, Milliseconds(0));
  if (fd)
    ::close(*fd);
  return fd.ok();
}

TEST(StoreAddress, OneOfSeveral_IsServedThereOnly) {
  auto server = StoreServer::start("127.0.0.2", 0, 2);
  ASSERT_TRUE(server.ok()) << server.message();
  EXPECT_TRUE(canReach("127.0.0.2", (*server)->port()));
  EXPECT_FALSE(canReach("127.0.0.1", (*server)->port()));
  EXPECT_FALSE(canReach("127.0.0.3", (*server)->port()));
  EXPECT_FALSE(canReach("::1", (*server)->port()));
}

TEST(StoreAddress, Localhost_IsServedAtAllThatItStandsFor) {
  auto server = StoreServer::start("localhost", 0, 2);
  ASSERT_TRUE(server.ok()) << server.message();
  auto addresses = resolve("localhost");
  ASSERT_TRUE(addresses.ok()) << addresses.message();
  for (const std::string &address : *addresses) {
    EXPECT_TRUE(isLoopback(address)) << address;
    EXPECT_TRUE(canReach(address, (*server)->port())) << address;
  }
  EXPECT_FALSE(canReach("127.0.0.2", (*server)->port()));
}

TEST(StoreAddress, IPv6_IsServedThereOnly) {
  auto server = StoreServer::start("::1", 0, 2);
  if (!server &&
      server.message().find("has no such address") != std::string::npos)
    GTEST_SKIP() << "no IPv6 here";
  ASSERT_TRUE(server.ok()) << server.message();
  EXPECT_TRUE(isLoopback((*resolve("::1"))[0]));
  EXPECT_TRUE(
      StoreClient::connect("::1", (*server)->port(), 0, 2, patient).ok());
  EXPECT_FALSE(canReach("127.0.0.1", (*server)->port()));
}

TEST(StoreAddress, Loopback_IsOfThisMachineOnly) {
  for (const char *address :
       {"127.0.0.1", "127.8.0.9", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(isLoopback(address)) << address;
  for (const char *address :
       {"192.0.2.1", "1.127.0.1", "::", "::2", "::ffff:192.0.2.1", "fd00::127"})
    EXPECT_FALSE(isLoopback(address)) << address;
}

TEST(StoreAddress, OfAnotherMachine_IsAnErrorThatNamesIt) {
  EXPECT_EQ(messageOf(StoreServer::start("192.0.2.1", 29500, 2)),
            "cannot serve the store at 192.0.2.1:29500: this machine, that of "
            "rank 0, has no such address");
}

TEST(StoreAddress, EveryInterface_IsAnError) {
  for (const char *address : {"0.0.0.0", "::", "::ffff:0.0.0.0", "0"}) {
    EXPECT_TRUE(
        failsWith(StoreServer::start(address, 0, 2), "every interface"));
  }
}

/// What rank 0 of two says that meet at an address.
std::string joinAt(const std::string &address, const RanksOptions &options,
                   int localSize) {
  RankEnvironment environment;
  environment.size = 2;
  environment.localSize = localSize;
  environment.address = address;
  environment.port = *findFreePort();
  StoreFailure failure = StoreFailure::Loss;
  auto ranks = Ranks::join(environment, options, &failure);
  return ranks ? "joined" : ranks.message();
}

TEST(Ranks, OtherMachinesWithoutAToken_AreRefused) {
  RanksOptions options;
  options.timeout = Milliseconds(50);
  EXPECT_EQ(joinAt("192.0.2.1", options, 1),
            "other machines could join the run at MASTER_ADDR '192.0.2.1' "
            "(192.0.2.1): export one random NSA_RENDEZVOUS_TOKEN on all nodes, "
            "as openssl rand -hex 32 makes it, or give --trust-network");
  const std::string elsewhere = "has no such address";
  options.trustNetwork = true;
  EXPECT_TRUE(contains(joinAt("192.0.2.1", options, 1), elsewhere));
  options.trustNetwork = false;
  options.identity = known();
  EXPECT_TRUE(contains(joinAt("192.0.2.1", options, 1), elsewhere));
  options.identity.token = "short";
  EXPECT_EQ(joinAt("127.0.0.1", options, 2),
            "NSA_RENDEZVOUS_TOKEN has 5 characters, expected at least 16 that "
            "nobody can guess");
}

TEST(Ranks, LoopbackForSeveralMachines_IsNamedWhenNobodyComes) {
  RanksOptions options;
  options.timeout = Milliseconds(50);
  EXPECT_TRUE(contains(joinAt("127.0.0.2", options, 1),
                       "; MASTER_ADDR '127.0.0.2' is 127.0.0.2 here, which "
                       "other machines cannot reach"));
  EXPECT_FALSE(contains(joinAt("127.0.0.2", options, 2), "cannot reach"));
}

TEST(Token, Comparison_FindsEveryDifference) {
  std::string text = "0123456789abcdef";
  EXPECT_TRUE(equalInConstantTime(text, text));
  EXPECT_TRUE(equalInConstantTime("", ""));
  EXPECT_FALSE(equalInConstantTime(text, text + "0"));
  EXPECT_FALSE(equalInConstantTime(text, ""));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = char(other[i] ^ 0x80);
    EXPECT_FALSE(equalInConstantTime(text, other)) << i;
  }
}

TEST(Token, Proof_IsOfOneSideAndOneConnection) {
  std::string a(nonceBytes, 'a'), b(nonceBytes, 'b');
  std::string proof = proveToken("token", Prover::Rank, a, b);
  EXPECT_EQ(proof.size(), proofBytes);
  EXPECT_EQ(proof, proveToken("token", Prover::Rank, a, b));
  EXPECT_NE(proof, proveToken("token", Prover::Store, a, b));
  EXPECT_NE(proof, proveToken("token", Prover::Rank, b, a));
  EXPECT_NE(proof, proveToken("tokem", Prover::Rank, a, b));
}

} // namespace
