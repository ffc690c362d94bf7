//===- TrainerResume.cpp - runs that go on, and weights to begin with -----===//

#include "lib/Support/Hash.h"
#include "runtime/Train/InitialWeights.h"
#include "runtime/Train/NamedTensors.h"
#include "runtime/Train/Preflight.h"
#include "runtime/Train/Trainer.h"

namespace nsa {

/// Takes the weights that a new run is to begin with. A run that is started
/// again goes on from its checkpoint, if it has one.
Status Trainer::loadInitial() {
  if (options.initFrom.empty())
    return {};
  Status status;
  bool goesOn = false;
  if (!options.restart.empty()) {
    Result<bool> saved = hasCheckpoint(options.restart);
    if (saved)
      goesOn = *saved;
    else
      status = Error{saved.message()};
  }
  if (status && !goesOn) {
    Result<InitialWeights> weights =
        loadInitialWeights(options.initFrom, model, config, options.initPartial,
                           state.tokenizerHash);
    if (weights) {
      state.history.initFrom = weights->file;
      state.history.initHash = weights->hash;
      notes.insert(notes.end(), weights->notes.begin(), weights->notes.end());
    } else {
      status = Error{weights.message()};
    }
  }
  status = ranks.synchronizeStatus("the initial weights are there", status);
  if (!status)
    return status;
  return ranks.checkSame("the file of the initial weights",
                         toHex(state.history.initHash));
}

/// Whether a checkpoint is one that `--resume auto` may take: of the same
/// parameters, model, length and data. What else differs is an error of its
/// own, not a reason to begin anew.
Result<bool> Trainer::isOfThisRun(const std::string &folder,
                                  const TrainState &saved) const {
  if (saved.dataDigest != state.dataDigest && !options.allowChangedData)
    return false;
  if (saved.artefactHash == state.artefactHash)
    return true;
  Result<bool> isSame = hasModelOf(folder, saved.step, config);
  if (!isSame || !*isSame)
    return isSame;
  return hasParametersOf(folder, model);
}

/// Takes over tensors and state, and notes what is not as it was.
Status Trainer::takeOver(const Checkpoint &checkpoint) {
  uint64_t artefact = state.artefactHash, digest = state.dataDigest;
  if (checkpoint.state.artefactHash == artefact) {
    if (Status status = checkpoint.restore(model, ranks.rank()); !status)
      return status;
  } else {
    NSA_ASSIGN_OR_RETURN(std::vector<std::string> lost,
                         restoreByName(checkpoint.path, model, ranks.rank()));
    notes.push_back(
        "same parameters, other kernels: not bit for bit (artefact " +
        toHex(checkpoint.state.artefactHash) + " -> " + toHex(artefact) + ")");
    notes.insert(notes.end(), lost.begin(), lost.end());
  }
  state = checkpoint.state;
  state.artefactHash = artefact;
  state.dataDigest = digest;
  state.endOfText = data.manifest.endOfText;
  int64_t seqLen = 0;
  if (!config.stages.empty()) {
    // A run that began without stages was all of one length.
    for (BatchPeriod &period : state.history.batches)
      if (period.seqLen == 0)
        period.seqLen = checkpoint.config.train.seqLen;
    seqLen = plan.seqLen;
    state.samples =
        convertSamples(state.samples, checkpoint.config.train.seqLen, seqLen);
  }
  state.history.setBatch(state.step, state.samples, plan.sequencesPerStep(),
                         seqLen);
  state.history.setData(state.step, digest);
  return {};
}

/// Goes on from a checkpoint, which is `opened` where this rank has verified it
/// already.
Status Trainer::resumeFrom(const std::string &folder,
                           const std::optional<Checkpoint> &opened) {
  NSA_ASSIGN_OR_RETURN(Checkpoint checkpoint, opened
                                                  ? Result<Checkpoint>(*opened)
                                                  : Checkpoint::open(folder));
  NSA_ASSIGN_OR_RETURN(
      std::vector<std::string> changes,
      checkResumable(checkpoint, {config, state.dataDigest, state.tokenizerHash,
                                  options.allowChangedBatch,
                                  options.allowChangedData, ranks.isFirst()}));
  NSA_RETURN_IF_ERROR(expectFiles(checkpoint));
  notes.push_back("resuming from " + folder + " at step " +
                  std::to_string(checkpoint.state.step));
  NSA_RETURN_IF_ERROR(takeOver(checkpoint));
  NSA_ASSIGN_OR_RETURN(directory, RunDirectory::reopen(runOf(folder)));
  if (ranks.isFirst()) {
    NSA_ASSIGN_OR_RETURN(std::vector<std::string> abandoned, returnTo(folder));
    for (const std::string &path : abandoned)
      notes.push_back("later than that, set aside: " + path);
  }
  savedStep = state.step;
  lastCheckpoint = folder;
  if (!checkpoint.isSealed && ranks.isFirst())
    warn("'" + folder +
         "' is of format 1, without a hash of its state.json: of that only "
         "step, samples and seed could be verified");
  if (checkpoint.state.dataDigest != state.dataDigest)
    changes.push_back("data: " + toHex(checkpoint.state.dataDigest) + " -> " +
                      toHex(state.dataDigest));
  for (const std::string &change : changes)
    notes.push_back("changed since: " + change);
  return {};
}

} // namespace nsa
