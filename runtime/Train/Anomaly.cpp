//===- Anomaly.cpp - what goes wrong in a run -----------------------------===//

#include "runtime/Train/Anomaly.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <chrono>

namespace nsa {

const char *anomalyName(AnomalyKind kind) {
  switch (kind) {
  case AnomalyKind::NanLoss:
    return "nan_loss";
  case AnomalyKind::HeartbeatStall:
    return "heartbeat_stall";
  case AnomalyKind::ThroughputFlatline:
    return "throughput_flatline";
  case AnomalyKind::GateCollapse:
    return "gate_collapse";
  case AnomalyKind::ZeroGrad:
    return "zero_grad";
  }
  return "nan_loss";
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void AnomalyMonitor::report(std::vector<Anomaly> &found, AnomalyKind kind,
                            std::string text) {
  if (reported.insert(kind).second)
    found.push_back({kind, std::move(text)});
}

std::vector<Anomaly> AnomalyMonitor::update(const StepRecord &record) {
  std::vector<Anomaly> found;
  if (record.gradNorm == 0.0f)
    report(found, AnomalyKind::ZeroGrad, "the gradient norm is exactly 0");
  speeds.push_back(record.toksPerSecond);
  if (speeds.size() > window)
    speeds.pop_front();
  if (speeds.size() == window) {
    std::vector<double> sorted(speeds.begin(), speeds.end());
    std::sort(sorted.begin(), sorted.end());
    double median = sorted[window / 2];
    fastest = std::max(fastest, median);
    if (median < 0.1 * fastest)
      report(found, AnomalyKind::ThroughputFlatline,
             "most of the last " + std::to_string(window) + " steps made " +
                 shortest(median) + " tokens/s or less, the fastest " +
                 shortest(fastest));
  }
  for (const GateStatistics &gates : record.attention.gates)
    if (gates.entropy < lowestEntropy || gates.sum() < lowestGateSum)
      report(found, AnomalyKind::GateCollapse,
             "the gates of layer " + std::to_string(gates.layer) +
                 " have the means " + shortest(gates.compressed) + ", " +
                 shortest(gates.selected) + ", " + shortest(gates.window) +
                 " and the entropy " + shortest(gates.entropy));
  return found;
}

//===----------------------------------------------------------------------===//
// Watchdog
//===----------------------------------------------------------------------===//

Watchdog::Watchdog(double seconds, std::function<void()> late)
    // Clocks count nanoseconds, in which more than centuries overflow.
    : seconds(std::min(seconds, 1e9)), late(std::move(late)) {
  if (seconds > 0)
    thread = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    ended = true;
  }
  changed.notify_all();
  if (thread.joinable())
    thread.join();
}

void Watchdog::start() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    ++turn;
    running = true;
    called = false;
  }
  changed.notify_all();
}

bool Watchdog::stop() {
  bool wasCalled;
  {
    std::lock_guard<std::mutex> lock(mutex);
    ++turn;
    running = false;
    wasCalled = called;
  }
  changed.notify_all();
  return wasCalled;
}

void Watchdog::watch() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!ended) {
    uint64_t seen = turn;
    auto isOver = [&] { return ended || turn != seen; };
    if (!running || called) {
      changed.wait(lock, isOver);
      continue;
    }
    if (changed.wait_for(lock, std::chrono::duration<double>(seconds), isOver))
      continue;
    // Under the lock: what was started cannot end while this is reported.
    called = true;
    late();
  }
}

} // namespace nsa
