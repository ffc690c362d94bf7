//===- TrainerSave.cpp - the checkpoints of a run -------------------------===//

#include "lib/Support/Text.h"
#include "runtime/Train/Trainer.h"

#include <filesystem>
#include <sys/resource.h>

namespace nsa {

/// How long a rank that is at work may take for a checkpoint: file systems can
/// be slower than any step.
static constexpr Milliseconds mostToSave{30 * 60 * 1000};

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
  Result<std::vector<std::string>> all =
      ranks.exchange(point, word, mostToSave);
  if (!all)
    return all.takeError();
  SaveOutcome worst;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::string &text = (*all)[size_t(rank)];
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

/// Where ranks share the optimizer's states, each saves its own.
Result<Trainer::SaveOutcome> Trainer::saveShares() {
  std::string point = "checkpoint " + std::to_string(state.step);
  Status begun;
  if (ranks.isFirst())
    begun = beginCheckpoint(directory->path(), state.step);
  SaveFailure failure = SaveFailure::Other;
  if (!begun && saysNoSpace(begun.message()))
    failure = SaveFailure::NoSpace;
  Result<SaveOutcome> outcome =
      synchronizeSave(point + " begins", SaveOutcome::of(begun, failure));
  if (!outcome || outcome->failure)
    return outcome;
  Status saved =
      saveShare(directory->path(), state.step, model, ranks.rank(), &failure);
  outcome =
      synchronizeSave(point + " has shares", SaveOutcome::of(saved, failure));
  if (ranks.isFirst() && (!outcome || outcome->failure))
    dropCheckpoint(directory->path(), state.step);
  return outcome;
}

/// What the end of a save means, and where it is.
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

/// Where ranks share states, the files of all of them make one checkpoint, and
/// they wait for each other.
bool Trainer::savesBeside() const {
  return config.train.saveAsync && model.sharingRanks() == 0;
}

Result<std::optional<TrainEnd>> Trainer::save(bool isLast) {
  double begin = steadyClock();
  // One at a time; an earlier one is of an earlier state.
  Result<std::optional<TrainEnd>> end = endSave(isLast);
  if (!end || *end || savedStep == state.step)
    return end;
  // Else folders would be made anew where the run's were.
  if (Status status = directory->check(); !status)
    return Error{status.message()};
  Result<bool> isVerified = awaitVerified();
  if (!isVerified)
    return isVerified.takeError();
  if (!*isVerified)
    return std::optional<TrainEnd>(reportUnverified());
  if (!isLast && savesBeside()) {
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

/// Takes the tensors, and leaves the files to the writer.
Result<std::optional<TrainEnd>> Trainer::startSave() {
  Status status;
  if (ranks.isFirst()) {
    if (Status pinned = model.pinHost(); !pinned)
      warn(pinned.message() + "; checkpoints take longer to the host");
    status = writer.start(model, saver());
  }
  lastSave = steadyClock();
  pendingSave = state.step;
  isSaveWritten = false;
  if (!status)
    return Error{status.message()};
  return std::optional<TrainEnd>();
}

Result<std::optional<TrainEnd>> Trainer::endSave(bool isLast) {
  std::optional<TrainEnd> goOn;
  if (pendingSave < 0)
    return goOn;
  int64_t step = pendingSave;
  SaveOutcome own;
  if (std::optional<SaveResult> result = writer.wait())
    own = takeResult(*result);
  pendingSave = -1;
  Result<SaveOutcome> outcome =
      synchronizeSave("checkpoint " + std::to_string(step) + " is saved", own);
  if (!outcome)
    return outcome.takeError();
  // A later state is still to be saved.
  return reportSave(step, *outcome, isLast && step == state.step);
}

void Trainer::endOwnSave() {
  if (std::optional<SaveResult> result = writer.wait())
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
