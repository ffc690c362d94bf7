//===- AnomalyTest.cpp - what goes wrong in a run -------------------------===//

#include "runtime/Train/Anomaly.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

using namespace nsa;

namespace {

StepRecord healthy(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 3;
  record.gradNorm = 0.5;
  record.toksPerSecond = 1000;
  record.attention.gates = {{0.3, 0.3, 0.4, 1.09}, {0.6, 0.1, 0.3, 0.6}};
  return record;
}

/// The words of the anomalies.
std::vector<std::string> names(const std::vector<Anomaly> &anomalies) {
  std::vector<std::string> result;
  for (const Anomaly &anomaly : anomalies)
    result.emplace_back(anomalyName(anomaly.kind));
  return result;
}

using Names = std::vector<std::string>;

TEST(Anomaly, HealthySteps_HaveNone) {
  AnomalyMonitor monitor;
  for (int64_t step = 1; step <= 100; ++step) {
    StepRecord record = healthy(step);
    // One slow step is none either.
    if (step == 50)
      record.toksPerSecond = 1;
    EXPECT_EQ(names(monitor.update(record)), Names());
  }
}

TEST(Anomaly, GradientOfZero_IsReportedOnce) {
  AnomalyMonitor monitor;
  StepRecord record = healthy(1);
  record.gradNorm = 0;
  EXPECT_EQ(names(monitor.update(record)), Names({"zero_grad"}));
  EXPECT_EQ(names(monitor.update(record)), Names());
}

TEST(Anomaly, Throughput_IsComparedWithTheFastestSteps) {
  AnomalyMonitor monitor;
  int64_t step = 0;
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(names(monitor.update(healthy(++step))), Names());
  Names seen;
  for (int i = 0; i < 20 && seen.empty(); ++i) {
    StepRecord record = healthy(++step);
    record.toksPerSecond = 50;
    seen = names(monitor.update(record));
    // Five slow steps of ten are not most of them.
    EXPECT_EQ(seen.empty(), i < 5) << i;
  }
  EXPECT_EQ(seen, Names({"throughput_flatline"}));
}

TEST(Anomaly, Gates_CollapseOnOneBranchOrShut) {
  AnomalyMonitor one, shut;
  StepRecord record = healthy(1);
  record.attention.gates[1] = {0.001, 0.002, 0.99, 0.02, /*layer=*/7};
  std::vector<Anomaly> found = one.update(record);
  ASSERT_EQ(names(found), Names({"gate_collapse"}));
  EXPECT_EQ(found[0].text, "the gates of layer 7 have the means 0.001, 0.002, "
                           "0.99 and the entropy 0.02");
  record.attention.gates[1] = {0.001, 0.001, 0.001, 1.09};
  EXPECT_EQ(names(shut.update(record)), Names({"gate_collapse"}));
}

TEST(Watchdog, StartDoesNotEnd_IsReportedOnce) {
  std::atomic<int> calls = 0;
  Watchdog watchdog(0.02, [&] { ++calls; });
  auto wait = [&](int wanted) {
    for (int i = 0; i < 500 && calls < wanted; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return calls.load();
  };
  watchdog.start();
  EXPECT_EQ(wait(1), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(watchdog.stop());
  // Nothing runs.
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(calls, 1);
  watchdog.start();
  EXPECT_EQ(wait(2), 2);
  EXPECT_TRUE(watchdog.stop());
}

TEST(Watchdog, InTimeOrWithoutALimit_NothingIsReported) {
  std::atomic<int> calls = 0;
  auto count = [&] { ++calls; };
  Watchdog patient(60, count), off(0, count);
  for (Watchdog *watchdog : {&patient, &off}) {
    watchdog->start();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(watchdog->stop());
  }
  EXPECT_EQ(calls, 0);
}

// More seconds than a clock can count once were none.
TEST(Watchdog, LongTimes_DoNotOverflow) {
  for (double seconds : {1e10, 1e300}) {
    Watchdog watchdog(seconds, [] {});
    watchdog.start();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(watchdog.stop()) << seconds;
  }
}

} // namespace
