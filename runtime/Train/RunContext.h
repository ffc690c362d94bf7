//===- RunContext.h - what the parts of a run share -------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_RUNCONTEXT_H
#define NSA_RUNTIME_TRAIN_RUNCONTEXT_H

#include "lib/Support/Stages.h"
#include "runtime/Data/Tokenizer.h"
#include "runtime/Train/Model.h"
#include "runtime/Train/RunJournal.h"
#include "runtime/Train/Schedule.h"
#include "runtime/Train/Signals.h"
#include "runtime/Train/TrainOptions.h"

namespace nsa {

/// How long a rank that is at work may take for a checkpoint: file systems can
/// be slower than any step.
inline constexpr Milliseconds mostToSave{30 * 60 * 1000};

/// The newest checkpoint of a run.
struct SavedState {
  /// -1 and an empty path if there is none.
  int64_t step = -1;
  std::string path;

  std::string name() const { return path.empty() ? "none" : path; }
};

/// One run, or the continuation of one, as its parts see it. Only the step loop
/// changes `state` after the first step, and only the saver `saved`. Borrowed
/// members outlive it.
struct RunContext {
  RunContext(Model &model, const Dataset &data, const RunConfig &config,
             const TrainOptions &options, Console &console, Ranks &ranks)
      : model(model), data(data), config(config), options(options),
        ranks(ranks), journal(console, ranks) {}

  /// The last step of the stage, or of the run.
  int64_t lastStep() const { return getLastStep(config, options.stage); }

  Model &model;
  const Dataset &data;
  const RunConfig config;
  const TrainOptions options;
  Ranks &ranks;
  SignalScope signals;
  RunJournal journal;
  TrainBinding binding;
  StatisticsBinding statistics;
  BatchPlan plan;
  /// What tokens stand for, if that is known.
  std::optional<Tokenizer> tokenizer;
  TrainState state;
  SavedState saved;
  /// The step that this process began after.
  int64_t firstStep = 0;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_RUNCONTEXT_H
