//===- Schedule.h - what an optimizer step does -----------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_SCHEDULE_H
#define NSA_RUNTIME_TRAIN_SCHEDULE_H

#include "lib/Support/Config.h"
#include "nsa/Artifact/TrainingContract.h"
#include "nsa/Support/Result.h"

#include <array>
#include <cstdint>

namespace nsa {

/// The learning rate of optimizer step `step` (0-based, below config.steps):
/// linear from lr / warmup_steps to lr over the warm-up, then constant, or
/// linear or half a cosine down to lr_min, which the last step has exactly; wsd
/// is constant and linear in the last lr_decay_steps steps (Hu et al.,
/// "MiniCPM", 2024, section 4).
double learningRate(const TrainConfig &config, int64_t step);

/// The `hyper` tensor of optimizer step `step` (0-based): learning rate, beta1,
/// beta2, epsilon, weight decay, largest norm, gradient scale, 1-based step.
std::array<float, training::numHyper> hyperParameters(const TrainConfig &config,
                                                      int64_t step);

/// How a step's global batch is cut.
struct BatchPlan {
  /// Sequences of one pass, as compiled.
  int64_t microBatch = 0;
  /// Tokens of one sequence, as compiled.
  int64_t seqLen = 0;
  /// Passes of one rank per optimizer step.
  int64_t passes = 0;
  /// Groups of ranks: those of a group share their sequences, mostly one.
  int64_t groups = 1;
  int64_t ranksOfGroup = 1;

  int64_t sequencesPerStep() const { return microBatch * passes * groups; }
  int64_t tokensPerStep() const { return sequencesPerStep() * seqLen; }

  /// The first sample of a pass of a rank in a step before which `consumed`
  /// samples were taken. All samples of a step are taken in the same
  /// micro-batches, however many ranks share them.
  uint64_t firstSample(uint64_t consumed, int64_t pass, int64_t rank) const {
    return consumed +
           uint64_t((pass * groups + rank / ranksOfGroup) * microBatch);
  }
};

/// Cuts `train.batch_size`, the sequences of a step of all ranks, into passes
/// of the compiled micro-batch. An error names the key and both numbers when
/// the program was compiled for another micro-batch or length, or the batch or
/// the ranks do not divide.
Result<BatchPlan> planBatch(const TrainConfig &config, int64_t microBatch,
                            int64_t seqLen, int64_t ranks = 1);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_SCHEDULE_H
