//===- Estimate.h - what a run will take ------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_ESTIMATE_H
#define NSA_RUNTIME_TRAIN_ESTIMATE_H

#include "lib/Support/Config.h"

#include <functional>
#include <string>
#include <vector>

namespace nsa {

/// What the program of one rank takes, as `nsa-compile --estimate` prints it.
struct Estimate {
  /// The target of nsa-compile.
  std::string target;
  double parameters = 0;
  /// MiB; `total` is more than their sum by inputs, constants and statistics.
  double weights = 0, gradients = 0, optimizer = 0, activations = 0,
         workspace = 0, total = 0;
  /// Floating-point operations of a micro-batch, and of one with the update.
  double accumulateFlops = 0, stepFlops = 0;
};

Result<Estimate> readEstimate(const std::string &text);

/// Estimates the model of a configuration in one of its stages.
using Estimator = std::function<Result<Estimate>(const RunConfig &config)>;

/// Refuses a model that needs more than `memory` bytes. The message says what
/// would fit: more recomputation, or a smaller micro-batch.
Status checkMemory(const RunConfig &config, double memory,
                   const Estimator &estimate);

/// A text: parameters, memory and time of each stage, hours and tokens of all.
/// Only GPUs have a known peak.
Result<std::string> describeCost(const RunConfig &config, int64_t ranks,
                                 const std::vector<Estimate> &stages);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_ESTIMATE_H
