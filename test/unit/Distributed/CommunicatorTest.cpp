//===- CommunicatorTest.cpp - reductions over ranks -----------------------===//

#include "lib/Support/Float16.h"
#include "runtime/Distributed/Ranks.h"
#include "runtime/Distributed/Socket.h"
#include "test/unit/Distributed/InThreads.h"
#include "test/unit/Expect.h"

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsa;

namespace {

#ifdef NSA_GLOO

RankEnvironment environmentOf(int rank, int size, uint16_t port) {
  RankEnvironment environment;
  environment.rank = rank;
  environment.size = size;
  environment.port = port;
  return environment;
}

RanksOptions options(int milliseconds) {
  RanksOptions options;
  options.plugin = NSA_GLOO;
  options.timeout = Milliseconds(milliseconds);
  return options;
}

/// Element `i` of reduction `number` on a rank.
float element(int rank, int number, size_t i) {
  return std::sin(float(1 + rank * 7919 + number * 104729) + 0.37f * float(i));
}

/// What `size` ranks get of reductions of these sizes, all started at once.
std::vector<std::vector<float>> average(int size,
                                        const std::vector<size_t> &counts) {
  uint16_t port = *findFreePort();
  std::vector<std::vector<float>> first(counts.size());
  std::mutex mutex;
  inThreads(size, [&](int rank) {
    auto ranks = Ranks::join(environmentOf(rank, size, port), options(20000));
    ASSERT_TRUE(ranks.ok()) << ranks.message();
    Communicator &all = *(*ranks)->communicator();
    std::vector<std::vector<float>> data(counts.size());
    for (size_t k = 0; k < counts.size(); ++k) {
      for (size_t i = 0; i < counts[k]; ++i)
        data[k].push_back(element(rank, int(k), i));
      EXPECT_EQ(
          all.startAverage(data[k].data(), int64_t(counts[k]), DataType::F32),
          k + 1);
    }
    for (size_t k = counts.size(); k-- > 0;) {
      Status status = all.wait(k + 1);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    auto end = (*ranks)->exchange("end", "");
    EXPECT_TRUE(end.ok()) << end.message();
    std::lock_guard<std::mutex> lock(mutex);
    for (size_t k = 0; k < counts.size(); ++k)
      if (first[k].empty())
        first[k] = data[k];
      else
        EXPECT_EQ(std::memcmp(first[k].data(), data[k].data(), 4 * counts[k]),
                  0)
            << "rank " << rank << " has other bits in reduction " << k;
  });
  return first;
}

TEST(Communicator, Shards_AreGatheredAndAveraged) {
  constexpr int size = 3;
  constexpr size_t own = 7;
  uint16_t port = *findFreePort();
  inThreads(size, [&](int rank) {
    auto ranks = Ranks::join(environmentOf(rank, size, port), options(20000));
    ASSERT_TRUE(ranks.ok()) << ranks.message();
    Communicator &all = *(*ranks)->communicator();
    std::vector<float> parts(size * own, -1.0f), means(size * own);
    size_t begin = size_t(rank) * own;
    for (size_t i = 0; i < own; ++i)
      parts[begin + i] = element(rank, 0, i);
    for (size_t i = 0; i < means.size(); ++i)
      means[i] = float(rank) + float(i);
    uint64_t gather = all.start(CollectiveKind::AllGather, parts.data(),
                                int64_t(parts.size()), DataType::F32, {});
    uint64_t scatter = all.start(CollectiveKind::ReduceScatter, means.data(),
                                 int64_t(means.size()), DataType::F32, {});
    for (uint64_t number : {gather, scatter}) {
      Status status = all.wait(number);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (int other = 0; other < size; ++other)
      for (size_t i = 0; i < own; ++i)
        EXPECT_EQ(parts[size_t(other) * own + i], element(other, 0, i));
    for (size_t i = 0; i < own; ++i)
      EXPECT_NEAR(means[begin + i], 1.0f + float(begin + i), 1e-5f);
    auto end = (*ranks)->exchange("end", "");
    EXPECT_TRUE(end.ok()) << end.message();
  });
}

// Two groups of two ranks, each with two sequences of four chunks, with which
// longer rows end.
TEST(Communicator, ChunksOfSequences_AreThoseOfTheGroup) {
  constexpr int size = 4;
  constexpr size_t chunk = 5, row = 7, elements = 2 * 4 * chunk;
  uint16_t port = *findFreePort();
  inThreads(size, [&](int rank) {
    RanksOptions own = options(20000);
    own.sequenceRanks = 2;
    auto ranks = Ranks::join(environmentOf(rank, size, port), own);
    ASSERT_TRUE(ranks.ok()) << ranks.message();
    Communicator &all = *(*ranks)->communicator();
    int group = rank / 2;
    std::vector<float> whole(elements, -1.0f), terms(elements);
    std::vector<float> rows(4 * row, -1.0f), sums = rows;
    // Where element i of the chunks of this rank is in sequences.
    auto find = [&](size_t i) {
      size_t number = i / chunk % 2 ? 3 - size_t(rank % 2) : size_t(rank % 2);
      return (i / chunk / 2 * 4 + number) * chunk + i % chunk;
    };
    auto rowOf = [](size_t i) {
      return i / chunk * row + row - chunk + i % chunk;
    };
    for (size_t i = 0; i < 4 * chunk; ++i)
      rows[rowOf(i)] = element(group, 0, find(i));
    for (size_t i = 0; i < elements; ++i)
      terms[i] = float(rank) + float(i);
    auto start = [&](CollectiveKind kind, std::vector<float> &data,
                     std::vector<float> &own) {
      return all.start(kind, data.data(), int64_t(elements), DataType::F32,
                       {2, own.data(), row * sizeof(float)});
    };
    for (uint64_t number :
         {start(CollectiveKind::GatherSequence, whole, rows),
          start(CollectiveKind::ReduceScatterSequence, terms, sums)}) {
      Status status = all.wait(number);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (size_t i = 0; i < elements; ++i) {
      EXPECT_EQ(whole[i], element(group, 0, i)) << i;
      EXPECT_EQ(terms[i], float(rank) + float(i)) << i;
    }
    for (size_t i = 0; i < 4 * chunk; ++i)
      EXPECT_EQ(sums[rowOf(i)], float(4 * group + 1) + 2 * float(find(i))) << i;
    EXPECT_EQ(sums[0], -1.0f);
    auto end = (*ranks)->exchange("end", "");
    EXPECT_TRUE(end.ok()) << end.message();
  });
}

TEST(Communicator, BF16_IsAveraged) {
  constexpr int size = 3;
  uint16_t port = *findFreePort();
  inThreads(size, [&](int rank) {
    auto ranks = Ranks::join(environmentOf(rank, size, port), options(20000));
    ASSERT_TRUE(ranks.ok()) << ranks.message();
    Communicator &all = *(*ranks)->communicator();
    std::vector<uint16_t> data(1001);
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = floatToBF16(element(rank, 0, i));
    Status status = all.wait(
        all.startAverage(data.data(), int64_t(data.size()), DataType::BF16));
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < data.size(); ++i) {
      float mean = 0;
      for (int other = 0; other < size; ++other)
        mean += element(other, 0, i) / float(size);
      // Rounded once for each rank, twice for a sum, and as a mean.
      EXPECT_NEAR(bf16ToFloat(data[i]), mean, 4.0f / 256) << i;
    }
    auto end = (*ranks)->exchange("end", "");
    EXPECT_TRUE(end.ok()) << end.message();
  });
}

TEST(Communicator, Averages_AreEqualOnAllRanksAndInEveryRun) {
  const std::vector<size_t> counts = {1, 3, 1000, 300001};
  for (int size : {2, 3, 4}) {
    auto means = average(size, counts), again = average(size, counts);
    for (size_t k = 0; k < counts.size(); ++k) {
      EXPECT_EQ(std::memcmp(means[k].data(), again[k].data(), 4 * counts[k]),
                0);
      for (size_t i = 0; i < counts[k]; i += 97) {
        double sum = 0;
        for (int rank = 0; rank < size; ++rank)
          sum += double(element(rank, int(k), i));
        EXPECT_NEAR(means[k][i], sum / size, 1e-6);
      }
    }
  }
}

TEST(Communicator, RankDoesNotReduce_IsNamed) {
  uint16_t port = *findFreePort();
  inThreads(2, [&](int rank) {
    auto ranks = Ranks::join(environmentOf(rank, 2, port), options(1000));
    ASSERT_TRUE(ranks.ok()) << ranks.message();
    std::vector<float> data(1024);
    if (rank == 1) {
      std::this_thread::sleep_for(Milliseconds(2500));
      return;
    }
    auto begin = std::chrono::steady_clock::now();
    Communicator &all = *(*ranks)->communicator();
    Status status =
        all.wait(all.startAverage(data.data(), 1024, DataType::F32));
    ASSERT_FALSE(status.ok());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, Milliseconds(2400));
    EXPECT_EQ(status.message().find("rank 0 in reduction 1 of 4096 bytes: "),
              0u)
        << status.message();
    EXPECT_TRUE(failsWith(status, "rank 1 was last seen beginning no "
                                  "reduction"));
    EXPECT_TRUE((*ranks)->lostSomeone());
  });
}

/// What ranks 0 and 1 say of rank 2, which sends itself a signal while they
/// connect.
std::vector<std::string> connectWithout(int signal) {
  uint16_t port = *findFreePort();
  pid_t child = ::fork();
  if (child == 0) {
    auto store =
        StoreClient::connect("127.0.0.1", port, 2, 3, Milliseconds(20000));
    if (store && (*store)->exchange("start", "", Milliseconds(20000)))
      ::raise(signal);
    ::_exit(0);
  }
  std::vector<std::string> messages(2);
  inThreads(2, [&](int rank) {
    auto begin = std::chrono::steady_clock::now();
    auto ranks = Ranks::join(environmentOf(rank, 3, port), options(2000));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, Milliseconds(6000));
    ASSERT_FALSE(ranks.ok());
    messages[size_t(rank)] = ranks.message();
  });
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return messages;
}

// Gloo once waited for each such rank on its own, for many times the time-out.
TEST(Ranks, LostOrFrozenWhileConnecting_IsNamed) {
  for (const std::string &message : connectWithout(SIGKILL))
    EXPECT_TRUE(contains(message, "rank 2 was lost"));
  for (const std::string &message : connectWithout(SIGSTOP))
    EXPECT_TRUE(contains(message, "rank 2 does not answer"));
}

/// What the system says of a thread's signals: a bit for each that it blocks.
uint64_t blockedSignals(const std::filesystem::path &thread) {
  std::ifstream file(thread / "status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("SigBlk:", 0) == 0)
      return std::stoull(line.substr(7), nullptr, 16);
  return ~uint64_t(0); // it has ended
}

// Gloo's thread that still waited for a lost rank once took the signal to stop
// that a launcher had blocked, and the process ended.
TEST(Ranks, RemainingThreads_TakeNoSignals) {
  connectWithout(SIGSTOP);
  for (const auto &thread :
       std::filesystem::directory_iterator("/proc/self/task")) {
    if (thread.path().filename() != std::to_string(::getpid()))
      EXPECT_TRUE(blockedSignals(thread.path()) >> (SIGTERM - 1) & 1)
          << thread.path();
  }
}

TEST(Ranks, Differences_AreRefused) {
  uint16_t port = *findFreePort();
  inThreads(2, [&](int rank) {
    auto ranks = Ranks::join(environmentOf(rank, 2, port), options(20000));
    ASSERT_TRUE(ranks.ok()) << ranks.message();
    EXPECT_TRUE((*ranks)->checkSame("the data", "d").ok());
    EXPECT_EQ(messageOf((*ranks)->checkSame("the artefact", rank ? "b" : "a")),
              "rank 1 has the artefact b, rank 0 has a");
    EXPECT_EQ(messageOf((*ranks)->synchronizeStatus(
                  "open", rank ? Status(Error{"no disk"}) : Status())),
              rank ? "no disk" : "rank 1: no disk");
    EXPECT_FALSE((*ranks)->lostSomeone());
  });
}

#endif

// What does not work here was once taken for a lost rank, and started again.
TEST(Ranks, OwnMistakes_AreNoPeerFailure) {
  RankEnvironment environment;
  environment.size = 2;
  environment.rank = 1;
  environment.port = *findFreePort();
  RanksOptions options;
  options.timeout = Milliseconds(200);
  StoreFailure failure = StoreFailure::Mistake;
  EXPECT_FALSE(Ranks::join(environment, options, &failure).ok());
  EXPECT_EQ(failure, StoreFailure::Loss);
  environment.address = "no.such.host.invalid";
  Result<std::unique_ptr<Ranks>> ranks =
      Ranks::join(environment, options, &failure);
  ASSERT_FALSE(ranks.ok());
  EXPECT_EQ(ranks.message().find("cannot resolve 'no.such.host.invalid'"), 0u)
      << ranks.message();
  EXPECT_EQ(failure, StoreFailure::Mistake);
  int listener = listenAt("127.0.0.1", 0)->front();
  environment.address = "127.0.0.1";
  environment.port = boundPortOf(listener);
  environment.rank = 0;
  failure = StoreFailure::Loss;
  EXPECT_FALSE(Ranks::join(environment, options, &failure).ok());
  EXPECT_EQ(failure, StoreFailure::Mistake);
  ::close(listener);
}

TEST(Ranks, OneRankAlone_NeedsNobody) {
  Ranks alone;
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.communicator(), nullptr);
  EXPECT_EQ((*alone.exchange("x", "payload"))[0], "payload");
  EXPECT_TRUE(alone.checkSame("x", "y").ok());
  EXPECT_FALSE(alone.synchronizeStatus("x", Error{"no"}).ok());
}

TEST(Ranks, NoPlugIn_ErrorSaysSo) {
  Status status = checkReducer("/nowhere/nsa-gloo.so");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message().find("several ranks on the CPU need Gloo: "), 0u)
      << status.message();
}

} // namespace
