//===- Utilization.h - how much of a device a step uses ---------*- C++ -*-===//
//
// MFU, here: the floating-point operations that the commands of a step execute,
// over what the device does at its peak in the same time. Attention counts the
// pairs of query and key that its visibility keeps, not all of the sequence;
// what backward computes again counts again.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_UTILIZATION_H
#define NSA_RUNTIME_TRAIN_UTILIZATION_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

namespace nsa {

/// Operations per second of a GPU's tensor cores on dense 16-bit operands with
/// fp32 sums, as NVIDIA's data sheets say, by the name that the driver gives,
/// or of the usual card of a target such as sm_90a; nothing for one that the
/// table does not have.
std::optional<double> findPeakFlops(std::string_view gpu);

/// Of the steps of a rank.
struct Utilization {
  /// Executed by each step.
  uint64_t flops = 0;
  /// Of the device per second; 0 where it is not known.
  double peak = 0;

  /// The used part of the peak, 1 for all of it; nothing without a peak, or
  /// where nothing was counted.
  std::optional<double> of(double steps, double seconds) const {
    if (peak <= 0 || flops == 0 || seconds <= 0)
      return std::nullopt;
    return double(flops) * steps / (seconds * peak);
  }
};

/// The mean of the last values.
class RunningMean {
public:
  /// Of at most `most` values.
  explicit RunningMean(size_t most) : most(most) {}

  void add(double value) {
    values.push_back(value);
    if (values.size() > most)
      values.pop_front();
  }

  /// NaN without values.
  double mean() const {
    double sum = 0;
    for (double value : values)
      sum += value;
    return sum / double(values.size());
  }

private:
  size_t most;
  std::deque<double> values;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_UTILIZATION_H
