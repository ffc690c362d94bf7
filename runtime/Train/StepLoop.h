//===- StepLoop.h - the optimizer steps of a run ----------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_STEPLOOP_H
#define NSA_RUNTIME_TRAIN_STEPLOOP_H

#include "runtime/Train/Evaluator.h"
#include "runtime/Train/SampleWriter.h"
#include "runtime/Train/Saver.h"
#include "runtime/Train/StepSamples.h"
#include "runtime/Train/Utilization.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// How long the steps of this process took, in seconds.
struct StepTimes {
  double all = 0;
  /// Of these, spent reading samples.
  double data = 0;
  /// Since the last line: seconds, steps, the largest spread of what ranks need
  /// for a step, as a part of it, and the rank that needed most.
  double recent = 0;
  int64_t recentSteps = 0;
  double recentSpread = 0;
  int slowestRank = 0;
};

/// Runs the steps of a stage, and what comes between them. Every rank of a run
/// has one.
class StepLoop {
public:
  StepLoop(RunContext &run, DataGuard &guard, Saver &saver,
           Evaluator &evaluator, SampleWriter &sampleWriter)
      : run(run), guard(guard), saver(saver), evaluator(evaluator),
        sampleWriter(sampleWriter) {}

  /// Opens the training split, which has to have targets.
  Status open();
  /// Losses of the steps before, of a run that goes on, and what progress lines
  /// show besides the loss.
  Status prepare();

  /// Takes steps up to the last one. An error means that something does not
  /// work, or that the data does not.
  Result<TrainEnd> loop();
  /// Reports that a command, of this rank or another one, wrote what is not
  /// finite.
  void reportStopped(const std::string &found);

  const StepTimes &stepTimes() const { return times; }
  const Utilization &deviceUse() const { return utilization; }
  const TrainSampler &trainSampler() const { return *sampler; }
  /// NaN, null in metrics.json, where no step has ended well.
  float lastTrainLoss() const { return lastLoss; }
  double meanTrainLoss() const { return recentLoss.mean(); }

private:
  /// What ranks agree on after a step.
  struct Agreement {
    std::optional<TrainEnd> stop;
    /// By the clock of the first rank; whether all have written their part of
    /// the save beside steps.
    bool saveIsDue = false, saveIsWritten = false;
  };

  bool usesStep() const {
    return run.binding.hasStep && !run.options.separateUpdate;
  }
  Status checkTargets() const;
  Result<StepRecord> runStep(Agreement &agreed);
  void addSeconds(StepRecord &record, double seconds);
  Status addStatistics(StepRecord &record);
  bool isLogged(int64_t step) const;
  Agreement findOwnWishes();
  Result<Agreement> agree(const std::string &name, Agreement agreed);
  Status finishStep(std::string_view entry, Agreement &agreed);
  std::optional<TrainEnd> stopReason();
  Status afterStep(StepRecord record);
  void showProgress(const StepRecord &record, bool logged);
  void reportAnomaly(const Anomaly &anomaly, int64_t step);
  Result<std::optional<TrainEnd>> betweenSteps(const Agreement &agreed);
  Error endOnData();
  Result<TrainEnd> reportNonFinite(const StepRecord &record);
  Result<std::string> findFirstNonFinite();
  Status dumpState(const StepRecord &record);

  RunContext &run;
  DataGuard &guard;
  Saver &saver;
  Evaluator &evaluator;
  SampleWriter &sampleWriter;
  /// Of the last step: other ranks hear of it during the next one.
  StepRecord latest;
  std::optional<TrainSampler> sampler;
  SplitDocuments split;
  std::optional<SelectionReplay> replay;
  StepSamples samples;
  AnomalyMonitor monitor;
  StepTimes times;
  Utilization utilization;
  RunningMean recentLoss{CsvLog::keptRows};
  float lastLoss = std::numeric_limits<float>::quiet_NaN();
  /// In the held-out text; 0 where tokens are no text.
  double bytesPerToken = 0;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_STEPLOOP_H
