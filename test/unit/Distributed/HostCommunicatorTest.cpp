//===- HostCommunicatorTest.cpp - reductions that do not end --------------===//

#include "runtime/Distributed/HostCommunicator.h"
#include "runtime/Distributed/Store.h"
#include "test/unit/Distributed/InThreads.h"
#include "test/unit/Expect.h"

#include <future>
#include <gtest/gtest.h>

using namespace nsa;

namespace {

constexpr Milliseconds patient{20000};

/// A reduction that has not noticed the loss of another rank.
class StuckReducer final : public Reducer {
public:
  explicit StuckReducer(std::shared_future<void> end) : end(std::move(end)) {}
  Status sum(void *, int64_t, DataType) override {
    end.wait();
    return {};
  }
  Status gather(void *, int64_t) override { return {}; }

private:
  std::shared_future<void> end;
};

/// Waits for a reduction of rank 1 of two; rank 0 ends, with or without the
/// store, while it goes on.
void loseRank0(bool withStore) {
  Result<std::unique_ptr<StoreServer>> server =
      StoreServer::start("127.0.0.1", 0, 2);
  ASSERT_TRUE(server.ok()) << server.message();
  std::unique_ptr<StoreClient> clients[2];
  inThreads(2, [&](int rank) {
    auto client =
        StoreClient::connect("127.0.0.1", (*server)->port(), rank, 2, patient);
    ASSERT_TRUE(client.ok()) << client.message();
    clients[rank] = std::move(*client);
  });
  float value = 1;
  std::promise<void> end;
  HostCommunicator communicator(
      std::make_unique<StuckReducer>(end.get_future().share()), *clients[1]);
  uint64_t number = communicator.startAverage(&value, 1, DataType::F32);
  clients[0].reset();
  if (withStore)
    server->reset();
  auto begin = std::chrono::steady_clock::now();
  Status status = communicator.wait(number);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, patient / 2);
  EXPECT_TRUE(failsWith(status, "rank 1 in reduction 1: rank 0"));
  EXPECT_TRUE(clients[1]->hasAborted());
  end.set_value();
}

TEST(HostCommunicator, RankLostThatTheReducerMisses_WaitEnds) {
  loseRank0(/*withStore=*/false);
}

TEST(HostCommunicator, StoreLostThatTheReducerMisses_WaitEnds) {
  loseRank0(/*withStore=*/true);
}

} // namespace
