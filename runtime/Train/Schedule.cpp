//===- Schedule.cpp - what an optimizer step does -------------------------===//

#include "runtime/Train/Schedule.h"
#include "nsa/Artifact/TrainingContract.h"

#include <algorithm>
#include <cmath>

namespace nsa {

double learningRate(const TrainConfig &config, int64_t step) {
  assert(step >= 0 && step < config.steps && "no such step");
  if (step < config.warmupSteps)
    return config.lr * double(step + 1) / double(config.warmupSteps);
  if (config.lrSchedule == "constant")
    return config.lr;
  int64_t begin = config.warmupSteps;
  if (config.lrSchedule == "wsd") {
    int64_t decay = config.lrDecaySteps
                        ? config.lrDecaySteps
                        : std::max<int64_t>(config.steps / 5, 1);
    begin = std::max(begin, config.steps - decay);
    if (step < begin)
      return config.lr;
  }
  double progress = double(step - begin + 1) / double(config.steps - begin);
  if (step + 1 == config.steps)
    return config.lrMin;
  double fraction = config.lrSchedule == "cosine"
                        ? 0.5 * (1.0 + std::cos(M_PI * progress))
                        : 1.0 - progress;
  return config.lrMin + (config.lr - config.lrMin) * fraction;
}

std::array<float, training::numHyper> hyperParameters(const TrainConfig &config,
                                                      int64_t step) {
  std::array<float, training::numHyper> hyper;
  hyper[training::learningRateSlot] = float(learningRate(config, step));
  hyper[training::beta1Slot] = float(config.beta1);
  hyper[training::beta2Slot] = float(config.beta2);
  hyper[training::epsilonSlot] = float(config.adamEps);
  hyper[training::weightDecaySlot] = float(config.weightDecay);
  hyper[training::maxNormSlot] = float(config.gradClip);
  hyper[training::gradScaleSlot] = 1;
  hyper[training::stepSlot] = float(step + 1);
  return hyper;
}

Result<BatchPlan> planBatch(const TrainConfig &config, int64_t microBatch,
                            int64_t seqLen, int64_t ranks) {
  auto differs = [](const std::string &key, const std::string &option,
                    int64_t configured, int64_t compiled) {
    std::string here = std::to_string(configured);
    std::string there = std::to_string(compiled);
    return Error{key + " is " + here + ", the artefact was compiled for " +
                 there + " (nsa-compile --" + option + "=" + here +
                 ", or --set " + key + "=" + there + ")"};
  };
  if (config.seqLen != seqLen)
    return differs("train.seq_len", "seq-len", config.seqLen, seqLen);
  if (config.batchSize % microBatch != 0)
    return Error{"train.batch_size (" + std::to_string(config.batchSize) +
                 ") must be a multiple of the artefact's micro-batch (" +
                 std::to_string(microBatch) + ")"};
  if (config.microBatch != microBatch)
    return differs("train.micro_batch", "micro-batch", config.microBatch,
                   microBatch);
  int64_t shared = config.contextParallel;
  if (ranks % shared != 0)
    return Error{"train.context_parallel (" + std::to_string(shared) +
                 ") must divide the number of ranks (" + std::to_string(ranks) +
                 ")"};
  int64_t groups = ranks / shared;
  if (config.batchSize % (microBatch * groups) != 0)
    return Error{
        "train.batch_size (" + std::to_string(config.batchSize) +
        ") must be a multiple of the artefact's micro-batch times the " +
        (shared > 1 ? "groups of ranks that share sequences (" : "ranks (") +
        std::to_string(microBatch) + " x " + std::to_string(groups) + ")"};
  int64_t passes = config.batchSize / (microBatch * groups);
  if (config.accumulateGradBatches != 0 &&
      config.accumulateGradBatches != passes)
    return Error{"train.accumulate_grad_batches (" +
                 std::to_string(config.accumulateGradBatches) +
                 ") must be batch_size / " +
                 (shared > 1 && groups > 1
                      ? "(micro_batch x ranks / context_parallel)"
                  : groups > 1 ? "(micro_batch x ranks)"
                               : "micro_batch") +
                 " (" + std::to_string(passes) + ")"};
  return BatchPlan{microBatch, seqLen, passes, groups, shared};
}

} // namespace nsa
