//===- StoreTest.cpp - where the ranks of a run meet ----------------------===//

#include "runtime/Distributed/Store.h"
#include "runtime/Distributed/Socket.h"
#include "test/unit/Distributed/InThreads.h"
#include "test/unit/Expect.h"

#include <csignal>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsa;

namespace {

constexpr Milliseconds patient{20000};

class StoreTest : public ::testing::Test {
protected:
  void serve(int size, const std::string &token = "") {
    identity.token = token;
    Result<std::unique_ptr<StoreServer>> started =
        StoreServer::start("127.0.0.1", 0, size, identity);
    ASSERT_TRUE(started.ok()) << started.message();
    server = std::move(*started);
  }
  Result<std::unique_ptr<StoreClient>>
  connect(int rank, int size, StoreFailure *failure = nullptr) {
    return StoreClient::connect("127.0.0.1", server->port(), rank, size,
                                patient, failure, identity);
  }
  /// Runs `body(rank, client)` in three ranks that have met.
  template <typename Body>
  void inThreeRanks(const Body &body) {
    serve(3);
    inThreads(3, [&](int rank) {
      auto client = connect(rank, 3);
      ASSERT_TRUE(client.ok());
      ASSERT_TRUE((*client)->exchange("start", "", patient).ok());
      body(rank, **client);
    });
  }
  /// Rank 1 in a process that stops once it has come, and met the others.
  struct FrozenRank {
    FrozenRank(StoreTest &test, int size, bool meets = true)
        : process(::fork()) {
      if (process != 0)
        return;
      auto client = test.connect(1, size);
      if (client && (!meets || (*client)->exchange("start", "", patient)))
        ::raise(SIGSTOP);
      ::_exit(0);
    }
    ~FrozenRank() {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
    pid_t process;
  };
  std::unique_ptr<StoreServer> server;
  RunIdentity identity;
};

TEST_F(StoreTest, ManyExchanges_AreOrderedByRank) {
  serve(3);
  inThreads(3, [&](int rank) {
    auto client = connect(rank, 3);
    ASSERT_TRUE(client.ok()) << client.message();
    for (int round = 0; round < 50; ++round) {
      std::string large(size_t(rank) * 100000, char('a' + round % 26));
      auto all =
          (*client)->exchange("round " + std::to_string(round), large, patient);
      ASSERT_TRUE(all.ok()) << all.message();
      for (size_t other = 0; other < 3; ++other)
        EXPECT_EQ((*all)[other],
                  std::string(other * 100000, char('a' + round % 26)));
    }
    (*client)->leave();
  });
}

TEST_F(StoreTest, Key_IsWaitedFor) {
  serve(2);
  inThreads(2, [&](int rank) {
    auto client = connect(rank, 2);
    ASSERT_TRUE(client.ok());
    if (rank == 0) {
      std::this_thread::sleep_for(Milliseconds(50));
      ASSERT_TRUE((*client)->set("key", std::string("\0value", 6)).ok());
    } else {
      Result<std::string> value = (*client)->get("key");
      ASSERT_TRUE(value.ok()) << value.message();
      EXPECT_EQ(*value, std::string("\0value", 6));
    }
    auto end = (*client)->exchange("end", "", patient);
    EXPECT_TRUE(end.ok());
    (*client)->leave();
  });
}

TEST_F(StoreTest, RankMissing_IsNamed) {
  serve(3);
  inThreads(2, [&](int rank) {
    auto client = connect(rank, 3);
    ASSERT_TRUE(client.ok());
    (*client)->progress(7, 4096);
    auto all = (*client)->exchange("step 5", "", Milliseconds(300));
    EXPECT_TRUE(failsWith(all, "time-out at 'step 5'"));
    EXPECT_TRUE(failsWith(all, "rank 2 did not come"));
    EXPECT_TRUE(contains((*client)->rankStatus(), "reduction 7 (4096 bytes)"));
    (*client)->leave(messageOf(all));
  });
}

// A checkpoint may take longer than the ranks allow each other otherwise.
TEST_F(StoreTest, RankAtWork_MayBeWaitedForLonger) {
  serve(2);
  inThreads(2, [&](int rank) {
    auto client = connect(rank, 2);
    ASSERT_TRUE(client.ok());
    if (rank == 1)
      std::this_thread::sleep_for(Milliseconds(3000));
    auto all = (*client)->exchange("saved", "", Milliseconds(300), patient);
    EXPECT_TRUE(all.ok()) << all.message();
    (*client)->leave();
  });
}

TEST_F(StoreTest, FrozenRank_IsNotWaitedForLonger) {
  serve(2);
  FrozenRank frozen(*this, 2);
  auto client = connect(0, 2);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE((*client)->exchange("start", "", patient).ok());
  auto begin = std::chrono::steady_clock::now();
  auto all = (*client)->exchange("saved", "", Milliseconds(500), patient);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, Milliseconds(5000));
  EXPECT_TRUE(failsWith(all, "rank 1 did not come"));
}

// In a reduction, for example.
TEST_F(StoreTest, RankWaitsForFrozenOne_IsNotBlamed) {
  serve(3);
  FrozenRank frozen(*this, 3);
  inThreads(2, [&](int number) {
    auto client = connect(2 * number, 3);
    ASSERT_TRUE(client.ok());
    ASSERT_TRUE((*client)->exchange("start", "", patient).ok());
    if (number == 1)
      return std::this_thread::sleep_for(Milliseconds(3000));
    auto all = (*client)->exchange("step 2", "", Milliseconds(2000));
    EXPECT_TRUE(failsWith(all, "rank 1 did not come"));
    EXPECT_FALSE(contains(messageOf(all), "rank 2"));
  });
}

TEST_F(StoreTest, RankMissingBesideFrozenOne_IsNamed) {
  serve(3);
  FrozenRank frozen(*this, 3, /*meets=*/false);
  auto client = connect(0, 3);
  ASSERT_TRUE(client.ok());
  auto all = (*client)->exchange("start", "", Milliseconds(3000));
  EXPECT_TRUE(failsWith(all, "rank 1 did not come"));
  EXPECT_TRUE(failsWith(all, "rank 2 did not come"));
}

TEST_F(StoreTest, RankLost_IsNamedAtOnce) {
  auto begin = std::chrono::steady_clock::now();
  inThreeRanks([&](int rank, StoreClient &client) {
    client.progress(9, 64);
    if (rank == 1)
      return; // Without a word.
    auto all = client.exchange("step 1", "", patient);
    EXPECT_TRUE(failsWith(
        all, "rank 1 was lost after beginning reduction 9 (64 bytes)"));
    client.leave();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patient / 2);
}

// Ranks that end because of another one were once taken for lost ones, and rank
// 0 for the one that had gone first.
TEST_F(StoreTest, RanksLeaveForAReason_AreNotBlamed) {
  serve(3);
  auto first = connect(0, 3), second = connect(1, 3), third = connect(2, 3);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  (*first)->leave("rank 2 does not answer");
  (*second)->leave("rank 0 said so");
  auto all = (*third)->exchange("step 1", "", patient);
  EXPECT_EQ(messageOf(all), "at 'step 1': rank 2 does not answer");
  server.reset();
  all = (*third)->exchange("step 2", "", patient);
  EXPECT_EQ(messageOf(all), "at 'step 2': rank 2 does not answer");
}

// A rank that stopped once left the others in a reduction until the time-out.
TEST_F(StoreTest, Stop_ReachesAllRanks) {
  auto begin = std::chrono::steady_clock::now();
  inThreeRanks([&](int rank, StoreClient &client) {
    if (rank == 1) {
      EXPECT_EQ(client.stopReason(), "");
      client.stop("nan on rank 1");
    } else if (rank == 0) {
      EXPECT_EQ(messageOf(client.exchange("step 1", "", patient)),
                "at 'step 1': nan on rank 1");
      EXPECT_EQ(client.lastFailure(), StoreFailure::Stop);
    } else {
      // As a rank does that waits in a reduction.
      while (client.peerFailure().empty() &&
             std::chrono::steady_clock::now() - begin < patient)
        std::this_thread::sleep_for(Milliseconds(1));
      client.stop("the first reason counts");
    }
    EXPECT_EQ(client.stopReason(), "nan on rank 1");
    auto late = client.exchange("step 2", "", patient);
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(client.lastFailure(), StoreFailure::Stop);
    auto end = client.exchange("the end", "", patient, Milliseconds(0),
                               /*mayFollowStop=*/true);
    EXPECT_TRUE(end.ok()) << end.message();
    client.leave();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patient / 2);
}

TEST_F(StoreTest, RankLostAfterAStop_EndsTheRun) {
  serve(2);
  auto first = connect(0, 2), second = connect(1, 2);
  ASSERT_TRUE(first.ok() && second.ok());
  (*first)->stop("nan on rank 0");
  second->reset();
  EXPECT_TRUE(
      failsWith((*first)->exchange("the end", "", patient, Milliseconds(0),
                                   /*mayFollowStop=*/true),
                "rank 1 was lost"));
}

TEST_F(StoreTest, RanksDoDifferentThings_AreToldSo) {
  serve(2);
  inThreads(2, [&](int rank) {
    auto client = connect(rank, 2);
    ASSERT_TRUE(client.ok());
    EXPECT_TRUE(
        failsWith((*client)->exchange(rank ? "save" : "step 3", "", patient),
                  "rank 0 is at 'step 3', rank 1 at 'save'"));
    (*client)->leave();
  });
}

TEST_F(StoreTest, Ranks_MustCountAlike) {
  serve(2, "the token of this test");
  auto first = connect(0, 2);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(messageOf(connect(0, 2)), "there is a rank 0 already");
  StoreFailure failure = StoreFailure::Loss;
  EXPECT_EQ(messageOf(connect(1, 3, &failure)),
            "rank 1 counts 3 ranks, rank 0 counts 2");
  EXPECT_EQ(failure, StoreFailure::Mistake);
  // Nobody waits for the rank that was refused.
  EXPECT_EQ(messageOf((*first)->exchange("start", "", patient)),
            "at 'start': rank 1 counts 3 ranks, rank 0 counts 2");
  EXPECT_EQ((*first)->lastFailure(), StoreFailure::Mistake);
}

// Two runs at one port once mixed.
TEST_F(StoreTest, RankOfAnotherRun_IsRefused) {
  serve(2);
  StoreFailure failure = StoreFailure::Loss;
  auto other = StoreClient::connect("127.0.0.1", server->port(), 1, 2, patient,
                                    &failure, {"other", ""});
  EXPECT_EQ(messageOf(other),
            "the store there is that of another run: '', this "
            "is 'other'; MASTER_PORT says where it is");
  EXPECT_EQ(failure, StoreFailure::Mistake);
  EXPECT_TRUE(connect(1, 2).ok());
}

// Connections without a word once held up the end, and took every descriptor.
TEST_F(StoreTest, Strangers_HoldUpNoRank) {
  serve(2);
  std::vector<int> strangers;
  for (int i = 0; i < 300; ++i) {
    Result<int> fd = connectTo("127.0.0.1", server->port(), patient);
    ASSERT_TRUE(fd.ok()) << fd.message();
    strangers.push_back(*fd);
  }
  std::string much(100000, '\0');
  (void)!::send(strangers.back(), much.data(), much.size(), MSG_NOSIGNAL);
  inThreads(2, [&](int rank) {
    auto client = connect(rank, 2);
    ASSERT_TRUE(client.ok()) << client.message();
    EXPECT_TRUE((*client)->exchange("start", "", patient).ok());
    (*client)->leave();
  });
  auto begin = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, Milliseconds(1000));
  for (int fd : strangers)
    ::close(fd);
}

// The kernel alone once said how long a machine that does not answer is asked.
TEST(Store, MachineDoesNotAnswer_TimesOut) {
  // A listener whose queue is full drops what asks for a connection.
  int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof name;
  auto *address = reinterpret_cast<sockaddr *>(&name);
  ASSERT_EQ(::bind(listener, address, length), 0);
  ASSERT_EQ(::listen(listener, 0), 0);
  uint16_t port = boundPortOf(listener);
  std::vector<int> held;
  auto begin = std::chrono::steady_clock::now();
  while (true) {
    Result<int> fd = connectTo("127.0.0.1", port, Milliseconds(300));
    if (!fd)
      break;
    held.push_back(*fd);
    ASSERT_LT(held.size(), 100u);
    begin = std::chrono::steady_clock::now();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, Milliseconds(1500));
  for (int fd : held)
    ::close(fd);
  ::close(listener);
}

TEST(Store, NoServer_IsAnError) {
  auto client = StoreClient::connect("127.0.0.1", 1, 0, 1, Milliseconds(100));
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.message().find("cannot reach the store at 127.0.0.1:1"), 0u)
      << client.message();
}

} // namespace
