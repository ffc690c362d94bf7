//===- Preflight.h - what is known before the first step --------*- C++ -*-===//
//
// Compiling takes minutes, and a stage may begin after days: errors in its
// data, its checkpoint and its memory are reported before.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_PREFLIGHT_H
#define NSA_RUNTIME_TRAIN_PREFLIGHT_H

#include "nsa/Artifact/Artifact.h"
#include "runtime/Data/Tokenizer.h"
#include "runtime/Train/Checkpoint.h"

namespace nsa {

/// The tokenizer of the data, if it is known; one that has more tokens than a
/// vocabulary is an error, and so are data that have.
Result<std::optional<Tokenizer>> checkVocabulary(const Dataset &data,
                                                 const std::string &setting,
                                                 int64_t vocabulary);

/// Checks that both splits have the windows of every stage, and say where
/// documents begin if that is asked for.
Status checkWindows(const Dataset &data, const RunConfig &config);

/// A run that is to go on from a checkpoint.
struct ResumeRequest {
  const RunConfig &config;
  uint64_t dataDigest = 0;
  /// That of the data; null if it is not known.
  const Tokenizer *tokenizer = nullptr;
  bool allowChangedBatch = false, allowChangedData = false;
  /// Whether this is the rank that writes the run's result.
  bool isFirst = true;
};

/// Refuses a checkpoint that the run cannot go on from: of other keys, data or
/// tokens, or of a run that has nothing left to do. Returns what else differs,
/// as "key: old -> new".
Result<std::vector<std::string>> checkResumable(const Checkpoint &checkpoint,
                                                const ResumeRequest &request);

/// That the run of a checkpoint is finished, in a sentence; empty if it is not.
std::string describeFinished(const std::string &checkpoint,
                             const TrainState &saved, const RunConfig &config);

/// The checkpoint that `resume` means: `auto` the newest below train.out_dir
/// that `matches`, if there is one.
Result<FoundCheckpoint> findResume(const std::string &resume,
                                   const RunConfig &config,
                                   const CheckpointFilter &matches);

/// Bytes of the memory of a device: of GPU number `gpu`, or the share of the
/// machine's that one of `processes` has.
Result<uint64_t> deviceMemory(const RunConfig &config, int gpu, int processes);

/// Refuses an artefact that plans more than `memory` bytes.
Status checkPlan(const Artifact &artifact, uint64_t memory);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_PREFLIGHT_H
