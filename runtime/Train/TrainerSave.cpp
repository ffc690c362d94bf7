//===- TrainerSave.cpp - the checkpoints of a run -------------------------===//

#include "runtime/Train/Trainer.h"

namespace nsa {

/// How long a rank that is at work may take for a checkpoint: file systems can
/// be slower than any step.
static constexpr Milliseconds mostToSave{30 * 60 * 1000};

/// Where ranks share the moments, each saves its own.
Status Trainer::saveShares() {
  std::string point = "checkpoint " + std::to_string(state.step);
  Status status;
  if (ranks.isFirst())
    status = beginCheckpoint(directory->path(), state.step);
  if (status = ranks.agree(point + " begins", status); !status)
    return status;
  return ranks.agree(
      point + " has shares",
      saveShare(directory->path(), state.step, model, ranks.rank()),
      mostToSave);
}

Status Trainer::save() {
  if (savedStep == state.step)
    return {};
  if (Status status = awaitVerified(); !status)
    return status;
  if (model.sharingRanks() > 0)
    if (Status status = saveShares(); !status)
      return status;
  Status status;
  if (ranks.isFirst()) {
    Result<std::string> path = saveCheckpoint(
        directory->path(), model, state, config, config.train.keepCheckpoints);
    if (path)
      lastCheckpoint = *path;
    else
      status = Error{path.message()};
  }
  // A rank that went on could end, and its end could take rank 0 with it.
  if (status =
          ranks.agree("checkpoint " + std::to_string(state.step) + " is saved",
                      status, mostToSave);
      !status)
    return status;
  savedStep = state.step;
  if (!ranks.isFirst())
    return log->beat(state.step, "saved by rank 0");
  console.line("saved " + lastCheckpoint);
  return log->beat(state.step, "saved");
}

} // namespace nsa
