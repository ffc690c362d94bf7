//===- Checkpoint.h - saving and resuming a run -----------------*- C++ -*-===//
//
// A checkpoint is a folder `step-N` under `<run>/checkpoints`:
//   model.safetensors       parameters
//   optimizer.safetensors   the optimizer's and other persistent state
//   optimizer_rankN.safetensors   states that rank N keeps, where ranks share
//   config.yaml             the resolved configuration
//   tokenizer.json          what made the tokens, if that is known
//   state.json              step, data position, seed, hashes of the above and
//                           of itself
// It is written beside its final name, synced and renamed, then `latest` is
// replaced: a crash leaves the previous checkpoint in force.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_CHECKPOINT_H
#define NSA_RUNTIME_TRAIN_CHECKPOINT_H

#include "lib/Support/Config.h"
#include "runtime/Train/Model.h"
#include "runtime/Train/RunHistory.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// Everything besides tensors that continuing a run bit for bit needs. The
/// random streams are functions of seed and counters, so these are the
/// counters.
struct TrainState {
  /// Optimizer steps done.
  int64_t step = 0;
  /// Samples of the global training order consumed.
  uint64_t samples = 0;
  uint64_t seed = 0;
  /// Identities of program and data.
  uint64_t artefactHash = 0;
  uint64_t dataDigest = 0;
  /// XXH3-64 of the tokenizer.json; 0 if there is none.
  uint64_t tokenizerHash = 0;
  /// The token that ends the data's documents; -1 where they say none.
  int64_t endOfText = -1;
  RunHistory history;
};

/// Removes what saves that were killed have left: checkpoints that were begun,
/// and files NAME.tmp.PID.RANDOM of processes that are gone. No other process
/// may be saving. Returns what could not be removed and why, a sentence each.
std::vector<std::string> removeUnfinished(const std::string &runDirectory);

/// Why a checkpoint was not saved, the worst first.
enum class SaveFailure {
  /// A parameter or a state holds a NaN or an infinity.
  NotFinite,
  Other,
  /// The disk or a quota is full, or a file may not grow further.
  NoSpace
};

/// Results of a save besides the checkpoint.
struct SaveReport {
  /// What kind a failure is.
  SaveFailure failure = SaveFailure::Other;
  /// Old checkpoints that could not be removed and why, a sentence each.
  std::vector<std::string> warnings;
};

/// Bytes of the tensors in a checkpoint, of all ranks, and in its largest file.
struct CheckpointSize {
  uint64_t bytes = 0;
  uint64_t largestFile = 0;
};
CheckpointSize checkpointSize(const TensorSet &model);

/// Begins the checkpoint of a step below `<runDirectory>/checkpoints`: for
/// models whose ranks share the states.
Status beginCheckpoint(const std::string &runDirectory, int64_t step);

/// Saves what this rank alone has, in a checkpoint that was begun. `failure`
/// says what kind a failure is.
Status saveShare(const std::string &runDirectory, int64_t step,
                 const TensorSet &model, int rank,
                 SaveFailure *failure = nullptr);

/// Saves below `<runDirectory>/checkpoints` and returns the new folder. Keeps
/// `keep` checkpoints (0: all), this one and the newest before it. Where ranks
/// share the states, all have saved their share before. Values that are not
/// finite are refused: the error names the tensor and the element, and what was
/// saved before stays. `tokenizer` is the text of the tokenizer.json, empty if
/// there is none.
Result<std::string>
saveCheckpoint(const std::string &runDirectory, const TensorSet &model,
               const TrainState &state, const RunConfig &config, int64_t keep,
               SaveReport *report = nullptr, const std::string &tokenizer = "");

/// Removes what was begun of the checkpoint of a step that is not to be.
void dropCheckpoint(const std::string &runDirectory, int64_t step);

/// Makes a checkpoint the latest of its run, whose records are about to be cut
/// there: `latest` names it, and those of later steps are set aside as
/// `abandoned-step-N`, which nothing resumes from or removes. Returns them.
Result<std::vector<std::string>> returnTo(const std::string &checkpoint);

/// A checkpoint that was found and whose hashes match its files.
struct Checkpoint {
  std::string path;
  TrainState state;
  RunConfig config;
  /// Whether state.json has a hash of its own. One of format 1 has none: what
  /// its numbers do not show cannot be verified.
  bool isSealed = true;

  /// Reads state.json and the configuration and verifies every file's hash;
  /// that the step is the folder's, the data position that of the step, and the
  /// seed that of the configuration; and that all values are finite.
  static Result<Checkpoint> open(const std::string &path);
};

/// What a search gave.
struct FoundCheckpoint {
  /// An absolute path where the search began with one; empty if there is none.
  std::string path;
  /// The checkpoint at `path` where the search opened it, which hashes its
  /// files; nothing where the search was told which one to take.
  std::optional<Checkpoint> opened;
  /// Runs whose checkpoints belong to other parameters or other data.
  size_t others = 0;
  /// What was passed over and why, a sentence each.
  std::vector<std::string> warnings;
};

/// The folder that `path` means, as an absolute path: a checkpoint itself,
/// whatever it holds, or the newest good one of a run directory that is in
/// force: the one that `latest` names, or one before it. At most `most` (0: any
/// number) bad ones are passed over.
Result<FoundCheckpoint> findCheckpoint(const std::string &path,
                                       int64_t most = 0);

/// The state of a checkpoint, without a look at its other files.
Result<TrainState> readTrainState(const std::string &checkpoint);

/// The configuration of a checkpoint, in the stage of the step that it was
/// saved after, without a look at its other files.
Result<RunConfig> readCheckpointConfig(const std::string &checkpoint,
                                       int64_t step);

/// Whether a checkpoint has the model and the length of sequences that a
/// configuration has in the stage of the step.
Result<bool> hasModelOf(const std::string &checkpoint, int64_t step,
                        const RunConfig &config);

/// The run directory that a checkpoint lies in.
std::string runOf(const std::string &checkpoint);

/// Refuses a checkpoint that lies in no run, such as a copy: the run would take
/// up, and write into, whatever folder lies two above it.
Status checkInRun(const std::string &checkpoint);

/// Whether a run could go on from a checkpoint, of which the folder and the
/// state are given. An error passes the checkpoint over as a bad one.
using CheckpointFilter =
    std::function<Result<bool>(const std::string &, const TrainState &)>;

/// The newest good checkpoint of the run below `outDir` that saved last what
/// `matches`. Bad checkpoints are passed over as in findCheckpoint, and so are
/// runs without a good one; only if no other is left is such a run an error.
Result<FoundCheckpoint> findNewestCheckpoint(const std::string &outDir,
                                             const CheckpointFilter &matches,
                                             int64_t most = 0);

/// Compares the configuration of a checkpoint with the one to continue with.
/// A key that changes what the state means is an error naming both values, and
/// so is another batch size without `allowBatch`; every other difference is
/// returned as "key: old -> new".
Result<std::vector<std::string>> compareForResume(const RunConfig &saved,
                                                  const RunConfig &now,
                                                  bool allowBatch = false);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_CHECKPOINT_H
