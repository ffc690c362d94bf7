//===- TrainerSave.cpp - the checkpoints of a run -------------------------===//

#include "lib/Support/Text.h"
#include "runtime/Train/Trainer.h"

#include <filesystem>
#include <sys/resource.h>
#include <utility>

namespace nsa {

/// Whether a save is due by the clock, which is asked on the first rank alone.
bool Trainer::isSaveDueByTime() const {
  double seconds = config.train.saveMinutes * 60;
  return seconds > 0 && steadyClock() - lastSave >= seconds;
}

/// Says at the start that there is no room for a checkpoint.
void Trainer::checkSpace() {
  CheckpointSize size = checkpointSize(model);
  std::error_code code;
  std::filesystem::space_info space =
      std::filesystem::space(directory->path(), code);
  if (!code && space.available < size.bytes)
    warn("a checkpoint takes " + grouped(size.bytes) + " bytes, but '" +
         directory->path() + "' has room for " + grouped(space.available) +
         ": no save can succeed until there is more");
  struct rlimit limit;
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < size.largestFile)
    warn("a file of a checkpoint takes " + grouped(size.largestFile) +
         " bytes, but this process may write " + grouped(limit.rlim_cur) +
         " (ulimit -f): no save can succeed");
}

/// How a rank's part of a save ended.
struct Trainer::SaveOutcome {
  std::optional<SaveFailure> failure;
  std::string message;

  static SaveOutcome of(const Status &status, SaveFailure failure) {
    if (status)
      return {};
    return {failure, status.message()};
  }
};

/// Tells all ranks how the part of each ended. All then know the worst of it,
/// and of the first rank that had it.
Result<Trainer::SaveOutcome> Trainer::synchronizeSave(const std::string &point,
                                                      const SaveOutcome &own) {
  std::string word;
  if (own.failure)
    word = std::to_string(int(*own.failure)) + own.message;
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> all,
                       ranks.exchange(point, word, mostToSave));
  SaveOutcome worst;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::string &text = all[size_t(rank)];
    if (text.empty())
      continue;
    SaveFailure failure = SaveFailure(text[0] - '0');
    if (worst.failure && *worst.failure <= failure)
      continue;
    worst.failure = failure;
    worst.message = text.substr(1);
    if (ranks.size() > 1)
      worst.message += " on rank " + std::to_string(rank);
  }
  return worst;
}

/// Begins a checkpoint that all ranks save their shares in.
Result<Trainer::SaveOutcome> Trainer::beginShares() {
  Status begun;
  if (ranks.isFirst())
    begun = beginCheckpoint(directory->path(), state.step);
  SaveFailure failure = SaveFailure::Other;
  if (!begun && saysNoSpace(begun.message()))
    failure = SaveFailure::NoSpace;
  return synchronizeSave("checkpoint " + std::to_string(state.step) + " begins",
                         SaveOutcome::of(begun, failure));
}

/// Whether all ranks have saved their shares; else there is no checkpoint.
Result<Trainer::SaveOutcome>
Trainer::synchronizeShares(int64_t step, const SaveOutcome &own) {
  Result<SaveOutcome> outcome = synchronizeSave(
      "checkpoint " + std::to_string(step) + " has shares", own);
  if (ranks.isFirst() && (!outcome || outcome->failure))
    dropCheckpoint(directory->path(), step);
  return outcome;
}

/// Where ranks share the optimizer's states, each saves its own.
Result<Trainer::SaveOutcome> Trainer::saveShares() {
  Result<SaveOutcome> outcome = beginShares();
  if (!outcome || outcome->failure)
    return outcome;
  SaveFailure failure = SaveFailure::Other;
  Status saved =
      saveShare(directory->path(), state.step, model, ranks.rank(), &failure);
  return synchronizeShares(state.step, SaveOutcome::of(saved, failure));
}

/// Reports how a save ended, and where it is.
Trainer::SaveOutcome Trainer::takeResult(const SaveResult &result) {
  for (const std::string &text : result.report.warnings)
    warn(text);
  if (!result.path)
    return {result.report.failure, result.path.message()};
  lastCheckpoint = *result.path;
  return {};
}

/// Saves what a model holds in the state of this step.
std::function<SaveResult(const Model &)> Trainer::saver() const {
  return [path = directory->path(), state = state, config = config,
          text = tokenizer ? tokenizer->text() : ""](const Model &from) {
    SaveResult result;
    result.path =
        saveCheckpoint(path, from, state, config, config.train.keepCheckpoints,
                       &result.report, text);
    return result;
  };
}

/// Saves the rank's share of it.
std::function<SaveResult(const Model &)> Trainer::shareSaver() const {
  return [path = directory->path(), step = state.step,
          rank = ranks.rank()](const Model &from) {
    SaveResult result;
    Status status = saveShare(path, step, from, rank, &result.report.failure);
    if (status)
      result.path = path;
    else
      result.path = Error{status.message()};
    return result;
  };
}

Result<Trainer::SaveOutcome> Trainer::saveAll() {
  if (model.sharingRanks() > 0) {
    Result<SaveOutcome> shares = saveShares();
    if (!shares || shares->failure)
      return shares;
  }
  SaveOutcome own;
  if (ranks.isFirst())
    own = takeResult(saver()(model));
  // A rank that went on could end, and its end could take rank 0 with it.
  return synchronizeSave(
      "checkpoint " + std::to_string(state.step) + " is saved", own);
}

Result<std::optional<TrainEnd>> Trainer::save(bool isLast) {
  double begin = steadyClock();
  // One at a time; an earlier one is of an earlier state.
  Result<std::optional<TrainEnd>> end = endSave(isLast);
  if (!end || *end || savedStep == state.step)
    return end;
  // Else folders would be made anew where the run's were.
  NSA_RETURN_IF_ERROR(directory->check());
  NSA_ASSIGN_OR_RETURN(bool isVerified, awaitVerified());
  if (!isVerified)
    return std::optional<TrainEnd>(reportUnverified());
  NSA_RETURN_IF_ERROR(checkUnchanged());
  if (!isLast && config.train.saveAsync) {
    end = startSave();
    saveSeconds += steadyClock() - begin;
    return end;
  }
  Result<SaveOutcome> outcome = saveAll();
  lastSave = steadyClock();
  if (!isLast)
    saveSeconds += lastSave - begin;
  if (!outcome)
    return outcome.takeError();
  return reportSave(state.step, *outcome, isLast);
}

/// Takes the tensors, and leaves the files to the writer: first those of the
/// ranks' shares, where they share states.
Result<std::optional<TrainEnd>> Trainer::startSave() {
  bool shares = model.sharingRanks() > 0;
  if (shares) {
    NSA_ASSIGN_OR_RETURN(SaveOutcome begun, beginShares());
    if (begun.failure) {
      lastSave = steadyClock();
      return reportSave(state.step, begun, /*isLast=*/false);
    }
    saveRest = saver();
  }
  Status status;
  if (shares || ranks.isFirst()) {
    if (Status pinned = model.pinHost(); !pinned)
      warn(pinned.message() + "; checkpoints take longer to the host");
    status = writer.start(model, shares ? shareSaver() : saver(), ranks.rank());
  }
  lastSave = steadyClock();
  pendingSave = state.step;
  isSaveWritten = false;
  sharesPending = shares;
  if (!status)
    return Error{status.message()};
  return std::optional<TrainEnd>();
}

/// Waits for the shares of all ranks, and begins to write the rest.
Result<Trainer::SaveOutcome> Trainer::endShares() {
  SaveOutcome own;
  if (std::optional<SaveResult> result =
          writer.wait(/*keepSnapshot=*/ranks.isFirst());
      result && !result->path)
    own = {result->report.failure, result->path.message()};
  sharesPending = false;
  isSaveWritten = false;
  Result<SaveOutcome> outcome = synchronizeShares(pendingSave, own);
  if (ranks.isFirst() && outcome && !outcome->failure)
    writer.goOn(std::move(saveRest));
  return outcome;
}

Result<std::optional<TrainEnd>> Trainer::continueSave() {
  if (!sharesPending)
    return endSave(/*isLast=*/false);
  NSA_ASSIGN_OR_RETURN(SaveOutcome outcome, endShares());
  if (!outcome.failure)
    return std::optional<TrainEnd>();
  return reportSave(std::exchange(pendingSave, -1), outcome, false);
}

Result<std::optional<TrainEnd>> Trainer::endSave(bool isLast) {
  std::optional<TrainEnd> goOn;
  if (pendingSave < 0)
    return goOn;
  int64_t step = pendingSave;
  // A later state is still to be saved.
  bool isLastOfRun = isLast && step == state.step;
  if (sharesPending) {
    NSA_ASSIGN_OR_RETURN(SaveOutcome outcome, endShares());
    if (outcome.failure) {
      pendingSave = -1;
      return reportSave(step, outcome, isLastOfRun);
    }
  }
  SaveOutcome own;
  if (std::optional<SaveResult> result = writer.wait())
    own = takeResult(*result);
  pendingSave = -1;
  NSA_ASSIGN_OR_RETURN(
      SaveOutcome outcome,
      synchronizeSave("checkpoint " + std::to_string(step) + " is saved", own));
  return reportSave(step, outcome, isLastOfRun);
}

/// Shares alone are no checkpoint; the next start removes them.
void Trainer::endOwnSave() {
  std::optional<SaveResult> result = writer.wait();
  if (result && !sharesPending)
    (void)takeResult(*result);
}

Result<std::optional<TrainEnd>>
Trainer::reportSave(int64_t step, SaveOutcome outcome, bool isLast) {
  if (outcome.failure)
    outcome.message = "no checkpoint was saved: " + outcome.message;
  if (outcome.failure == SaveFailure::NotFinite)
    return reportUnsaved(step, outcome.message);
  std::string heartbeat = ranks.isFirst() ? "saved" : "saved by rank 0";
  if (outcome.failure == SaveFailure::NoSpace && !isLast) {
    console.line("step " + std::to_string(step) + ": " + outcome.message +
                 "; training goes on, and the next save tries again");
    ++failedSaves;
    heartbeat = outcome.message;
  } else if (outcome.failure) {
    return Error{outcome.message};
  } else {
    savedStep = step;
    console.line("saved " + lastCheckpoint);
  }
  noteWrite(log->logHeartbeat(step, heartbeat));
  return std::optional<TrainEnd>();
}

/// Ends the run where what would be saved is not finite: no later step can mend
/// it, and the last good checkpoint stays.
Result<std::optional<TrainEnd>>
Trainer::reportUnsaved(int64_t step, const std::string &found) {
  noteWrite(log->logHeartbeat(step, "nan_loss: " + found));
  if (ranks.isFirst())
    noteWrite(writeAnomaly(AnomalyKind::NanLoss));
  console.line("step " + std::to_string(step) + ": " + found);
  console.line("last good checkpoint: " +
               (lastCheckpoint.empty() ? "none" : lastCheckpoint));
  return std::optional<TrainEnd>(TrainEnd::NonFinite);
}

} // namespace nsa
