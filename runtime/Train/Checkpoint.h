//===- Checkpoint.h - saving and resuming a run -----------------*- C++ -*-===//
//
// A checkpoint is a folder `step-N` under `<run>/checkpoints`:
//   model.safetensors       parameters
//   optimizer.safetensors   moments and other persistent state
//   optimizer_rankN.safetensors   moments that rank N keeps, where ranks share
//   config.yaml             the resolved configuration
//   state.json              step, data position, seed, hashes of the above
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
  RunHistory history;
};

/// Removes what saves that were killed have left. No other process may be
/// saving.
void removeUnfinished(const std::string &runDirectory);

/// Begins the checkpoint of a step below `<runDirectory>/checkpoints`: for
/// models whose ranks share the moments.
Status beginCheckpoint(const std::string &runDirectory, int64_t step);

/// Saves what this rank alone has, in a checkpoint that was begun.
Status saveShare(const std::string &runDirectory, int64_t step,
                 const Model &model, int rank);

/// Saves below `<runDirectory>/checkpoints` and returns the new folder. Keeps
/// `keep` checkpoints (0: all), this one and the newest before it. Where ranks
/// share the moments, all have saved their share before.
Result<std::string> saveCheckpoint(const std::string &runDirectory,
                                   const Model &model, const TrainState &state,
                                   const RunConfig &config, int64_t keep);

/// Makes a checkpoint the latest of its run, whose records are about to be cut
/// there: `latest` names it, and those of later steps are set aside as
/// `abandoned-step-N`, which nothing resumes from or removes. Returns them.
Result<std::vector<std::string>> returnTo(const std::string &checkpoint);

/// A checkpoint that was found and whose hashes match its files.
struct Checkpoint {
  std::string path;
  TrainState state;
  RunConfig config;

  /// Reads state.json and the configuration and verifies every file's hash.
  static Result<Checkpoint> open(const std::string &path);

  /// Copies every persistent tensor into the `model` of a rank. A tensor that
  /// is missing, unknown or of another type or shape is an error.
  Status restore(const Model &model, int rank = 0) const;
};

/// The folder that `path` means, as an absolute path: a checkpoint itself, or
/// the latest one of a run directory.
Result<std::string> findCheckpoint(const std::string &path);

/// The state of a checkpoint, without a look at its other files.
Result<TrainState> readTrainState(const std::string &checkpoint);

/// The configuration of a checkpoint, without a look at its other files.
Result<RunConfig> readCheckpointConfig(const std::string &checkpoint);

/// The run directory that a checkpoint lies in.
std::string runOf(const std::string &checkpoint);

/// Refuses a checkpoint that lies in no run, such as a copy: the run would take
/// up, and write into, whatever folder lies two above it.
Status checkInRun(const std::string &checkpoint);

/// What a search below a folder of runs gave.
struct FoundCheckpoint {
  /// Empty if there is none.
  std::string path;
  /// Runs whose checkpoints belong to other parameters or other data.
  size_t others = 0;
};

/// Whether a run could go on from a checkpoint, of which the folder and the
/// state are given.
using CheckpointFilter =
    std::function<Result<bool>(const std::string &, const TrainState &)>;

/// The latest checkpoint of the run below `outDir` that saved last what
/// `matches`. A damaged checkpoint on the way is an error.
Result<FoundCheckpoint> findNewestCheckpoint(const std::string &outDir,
                                             const CheckpointFilter &matches);

/// Compares the configuration of a checkpoint with the one to continue with.
/// A key that changes what the state means is an error naming both values, and
/// so is another batch size without `allowBatch`; every other difference is
/// returned as "key: old -> new".
Result<std::vector<std::string>> compareForResume(const RunConfig &saved,
                                                  const RunConfig &now,
                                                  bool allowBatch = false);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_CHECKPOINT_H
