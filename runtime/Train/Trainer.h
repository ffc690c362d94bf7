//===- Trainer.h - one run of training --------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_TRAINER_H
#define NSA_RUNTIME_TRAIN_TRAINER_H

#include "runtime/Train/RunSession.h"
#include "runtime/Train/StepLoop.h"

#include <string>

namespace nsa {

/// One run, or the continuation of one. Borrowed arguments outlive it. Every
/// rank of a run has a trainer; the first one writes, the others only their
/// heartbeats.
class Trainer {
public:
  Trainer(Model &model, const Dataset &data, const RunConfig &config,
          const TrainOptions &options, Console &console, Ranks &ranks)
      : context(model, data, config, options, console, ranks) {}

  /// Trains to the end. Whatever stops a run in a planned way is a TrainEnd;
  /// an error means that something does not work.
  Result<TrainEnd> run();

  /// Optimizer steps of this process.
  int64_t stepsDone() const { return context.state.step - context.firstStep; }

  /// Valid after run() got as far as creating it.
  std::string runDirectory() const {
    return context.journal.isOpen() ? context.journal.directory().path() : "";
  }

private:
  Status prepare();
  Status openText();
  Status checkSameRun();
  void printHeader();
  Result<TrainEnd> takeSteps();
  Status endStage();
  Status finish(TrainEnd end);
  Status writeMetrics(TrainEnd end) const;
  void printSummary(TrainEnd end);

  RunContext context;
  DataGuard guard{context};
  Saver saver{context, guard};
  Evaluator evaluator{context};
  SampleWriter sampleWriter{context};
  RunSession session{context, guard};
  StepLoop steps{context, guard, saver, evaluator, sampleWriter};
  double started = 0;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_TRAINER_H
