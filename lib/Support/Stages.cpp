//===- Stages.cpp - a run in stages of other lengths ----------------------===//

#include "lib/Support/Stages.h"

using namespace nsa;

const std::vector<StageKey> &nsa::stageKeys() {
  static const std::vector<StageKey> keys = {
      {"steps", "train.steps"},
      {"seq_len", "train.seq_len"},
      {"batch_size", "train.batch_size"},
      {"micro_batch", "train.micro_batch"},
      {"rope_base", "model.rope_base"}};
  return keys;
}

StageConfig nsa::getStage(const RunConfig &config) {
  return {config.train.steps, config.train.seqLen, config.train.batchSize,
          config.train.microBatch, config.model.ropeBase};
}

void nsa::applyStage(RunConfig &config, size_t stage) {
  if (config.stages.empty())
    return;
  const StageConfig &values = config.stages[stage];
  config.train.seqLen = values.seqLen;
  config.train.batchSize = values.batchSize;
  config.train.microBatch = values.microBatch;
  config.model.ropeBase = values.ropeBase;
}

RunConfig nsa::withStage(RunConfig config, size_t stage) {
  applyStage(config, stage);
  return config;
}

size_t nsa::findStage(const RunConfig &config, int64_t step) {
  for (size_t stage = 0; stage < config.stages.size(); ++stage)
    if (step <= getLastStep(config, stage))
      return stage;
  return config.stages.empty() ? 0 : config.stages.size() - 1;
}

int64_t nsa::getLastStep(const RunConfig &config, size_t stage) {
  if (config.stages.empty())
    return config.train.steps;
  int64_t last = 0;
  for (size_t i = 0; i <= stage; ++i)
    last += config.stages[i].steps;
  return last;
}

std::string nsa::describeStage(const RunConfig &config, size_t stage) {
  int64_t last = getLastStep(config, stage);
  const StageConfig &values = config.stages[stage];
  return "stage " + std::to_string(stage + 1) + " of " +
         std::to_string(config.stages.size()) + ": steps " +
         std::to_string(last - values.steps + 1) + " to " +
         std::to_string(last) + " of sequences of " +
         std::to_string(values.seqLen) + " tokens";
}

Status nsa::checkStages(const RunConfig &config) {
  for (size_t i = 1; i < config.stages.size(); ++i) {
    int64_t before = config.stages[i - 1].seqLen;
    int64_t after = config.stages[i].seqLen;
    if (after < before)
      return Error{"stages: stage " + std::to_string(i + 1) +
                   " has sequences of " + std::to_string(after) +
                   " tokens, shorter than those of stage " + std::to_string(i) +
                   " (" + std::to_string(before) + ")"};
  }
  return {};
}
