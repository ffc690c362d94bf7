//===- TrainOptions.h - how to train, and why it ends -----------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_TRAINOPTIONS_H
#define NSA_RUNTIME_TRAIN_TRAINOPTIONS_H

#include "runtime/Data/Verifier.h"
#include "runtime/Train/Checkpoint.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nsa {

struct TrainOptions {
  /// Where the configuration came from, for messages and the run's name.
  std::string configPath;
  /// Folder of the run below train.out_dir; empty makes a name from the time.
  std::string runName;
  /// Empty starts anew; `auto` takes the newest matching checkpoint below
  /// train.out_dir, if there is one; else a checkpoint or run directory.
  std::string resume;
  /// What the search for these has given, where it was made before.
  std::optional<FoundCheckpoint> found;
  /// A checkpoint, run or file whose weights a new run begins with; empty draws
  /// them from the seed. Not together with `resume`.
  std::string initFrom;
  /// Takes the parameters that both have, and leaves the others.
  bool initPartial = false;
  /// Let a run go on with another train.batch_size, or other data.
  bool allowChangedBatch = false;
  bool allowChangedData = false;
  /// Of a configuration with stages, the one to train, whose values it has. A
  /// run goes on with the next one by `resume`.
  size_t stage = 0;
  /// Stops after this many optimizer steps of this process; 0 does not.
  int64_t stopAfter = 0;
  /// Runs accumulate and update although the program has a step entry.
  bool separateUpdate = false;
  /// A step that takes longer is a heartbeat_stall; 0 allows any time.
  double stallSeconds = 1800;
  /// What nsa-generate --save-selection wrote: sequences are trained with the
  /// blocks that they were generated with. Empty selects.
  std::string replaySelection;
  /// Compares the shards with their manifest; null takes them as they are.
  DataVerifier *verifier = nullptr;
  /// How long training waits for it; what is left is verified beside.
  double verifySeconds = 2;
  /// How long a run that a signal asked to stop still waits for it.
  double stopSeconds = 10;
  /// What else every rank must have been given alike, such as
  /// {"--check-finite", "on"}.
  std::vector<std::pair<std::string, std::string>> sameOnAllRanks;
  /// What the device of a rank does at its peak, floating-point operations per
  /// second; 0 where that is not known. runtime.peak_tflops comes before it.
  double peakFlops = 0;
  /// Written to env.json.
  std::vector<std::pair<std::string, std::string>> facts;
};

/// Why training ended.
enum class TrainEnd {
  Finished,
  /// The last step of a stage that others follow, which is saved.
  StageEnded,
  /// A .HALT file, or stopAfter.
  Halted,
  /// SIGINT, SIGTERM or SIGHUP.
  Interrupted,
  /// The loss or the gradient norm was not finite, and no update was applied;
  /// or what was to be saved was not finite, and nothing was saved.
  NonFinite,
};

/// finished, stage_ended, halted, interrupted or nan_loss.
const char *endName(TrainEnd end);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_TRAINOPTIONS_H
