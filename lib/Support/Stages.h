//===- Stages.h - a run in stages of other lengths --------------*- C++ -*-===//
//
// A run may train on short sequences first and go on with longer ones: each
// stage has its steps, length, batch and rotary base. A configuration with
// stages has in `train` and `model` the values of one of them, of the first
// after it was read.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_SUPPORT_STAGES_H
#define NSA_LIB_SUPPORT_STAGES_H

#include "lib/Support/Config.h"

namespace nsa {

/// A key of a stage and the path of the key that it changes.
struct StageKey {
  const char *name;
  const char *path;
};
const std::vector<StageKey> &stageKeys();

/// The stage that has the present values of `train` and `model`.
StageConfig getStage(const RunConfig &config);

/// Gives `train` and `model` the values of a stage, the steps apart: those are
/// always those of all stages. Without stages, nothing changes.
void applyStage(RunConfig &config, size_t stage);
RunConfig withStage(RunConfig config, size_t stage);

/// The stage of a step, which counts from 1; the first one for step 0, the last
/// one for steps after it. 0 without stages.
size_t findStage(const RunConfig &config, int64_t step);

/// The last step of a stage; without stages, of the run.
int64_t getLastStep(const RunConfig &config, size_t stage);

/// "stage 2 of 3: steps 21 to 30 of sequences of 8192 tokens".
std::string describeStage(const RunConfig &config, size_t stage);

/// That sequences do not get shorter. The message begins with "stages:".
Status checkStages(const RunConfig &config);

} // namespace nsa

#endif // NSA_LIB_SUPPORT_STAGES_H
