//===- StepSamples.h - what a rank trains on --------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_STEPSAMPLES_H
#define NSA_RUNTIME_TRAIN_STEPSAMPLES_H

#include "runtime/Data/Sampler.h"
#include "runtime/Train/Model.h"
#include "runtime/Train/Schedule.h"
#include "runtime/Train/SelectionReplay.h"

#include <cstdint>
#include <vector>

namespace nsa {

/// The samples of a rank's steps, read one step ahead: that a shard cannot be
/// read is known between two steps, where there is a state to save.
class StepSamples {
public:
  /// `sampler` must outlive the object, or be followed by another `start`.
  /// With `isolate`, the starts of documents are read too. `replay`, where
  /// there is one, has what layers attend to.
  void start(const TrainSampler &sampler, const BatchPlan &plan, int rank,
             bool isolate, const SelectionReplay *replay);

  /// Reads the samples of a step before which `consumed` samples were taken;
  /// the current ones stay. A failure is returned, and remembered as `status`.
  Status readAhead(uint64_t consumed);
  const Status &status() const { return ahead; }

  /// How long the last readAhead took.
  double seconds() const { return readSeconds; }

  /// Makes what was read ahead the current step.
  void advance() { std::swap(current, next); }

  /// Copies the samples of a pass of the current step to the program's inputs.
  void load(int64_t pass, const TrainBinding &binding) const;

private:
  struct Step {
    std::vector<int32_t> tokens, targets;
    /// Empty where documents see each other.
    std::vector<int32_t> starts;
    /// Of sequences, in the replay.
    std::vector<uint64_t> rows;
  };

  const TrainSampler *sampler = nullptr;
  const SelectionReplay *replay = nullptr;
  BatchPlan plan;
  int rank = 0;
  Step current, next;
  Status ahead;
  double readSeconds = 0;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_STEPSAMPLES_H
