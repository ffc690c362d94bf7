//===- Anomaly.h - what goes wrong in a run ---------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_ANOMALY_H
#define NSA_RUNTIME_TRAIN_ANOMALY_H

#include "runtime/Train/RunLog.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace nsa {

enum class AnomalyKind {
  /// Loss, gradient norm, or what was to be saved not finite; ends the run.
  NanLoss,
  /// A step takes longer than allowed.
  HeartbeatStall,
  /// Most of the last steps are slower than a tenth of the fastest ones.
  ThroughputFlatline,
  /// In some layer one branch has all the weight, or all gates are shut.
  GateCollapse,
  /// The gradient norm is exactly 0.
  ZeroGrad,
};

/// The word in `.anomaly_type`: nan_loss, heartbeat_stall, ...
const char *anomalyName(AnomalyKind kind);

struct Anomaly {
  AnomalyKind kind;
  /// A message with the numbers.
  std::string text;
};

/// Checks the records of steps. Each kind is reported once.
class AnomalyMonitor {
public:
  /// Steps whose median speed is compared.
  static constexpr size_t window = 10;
  /// Entropy in nats below which a layer's gates have collapsed, and the sum of
  /// its mean gates below which they are shut.
  static constexpr double lowestEntropy = 0.05;
  static constexpr double lowestGateSum = 0.01;

  std::vector<Anomaly> update(const StepRecord &record);

private:
  void report(std::vector<Anomaly> &found, AnomalyKind kind, std::string text);

  std::set<AnomalyKind> reported;
  std::deque<double> speeds;
  double fastest = 0;
};

/// A watchdog: calls back, from a thread of its own, when an operation exceeds
/// its time limit; once for each start.
class Watchdog {
public:
  /// `seconds` of 0 never calls.
  Watchdog(double seconds, std::function<void()> late);
  ~Watchdog();
  Watchdog(const Watchdog &) = delete;
  Watchdog &operator=(const Watchdog &) = delete;

  void start();
  /// Returns whether the call was made since the start.
  bool stop();

private:
  void watch();

  const double seconds;
  const std::function<void()> late;
  std::mutex mutex;
  std::condition_variable changed;
  /// Counts starts and stops.
  uint64_t turn = 0;
  bool running = false;
  bool called = false;
  bool ended = false;
  std::thread thread;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_ANOMALY_H
