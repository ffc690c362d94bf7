//===- Saver.cpp - the checkpoints of a run -------------------------------===//

#include "runtime/Train/Saver.h"
#include "lib/Support/Text.h"

#include <filesystem>
#include <sys/resource.h>
#include <utility>

namespace nsa {

bool Saver::isDueByTime() const {
  double seconds = run.config.train.saveMinutes * 60;
  return seconds > 0 && steadyClock() - lastSave >= seconds;
}

void Saver::checkSpace() {
  CheckpointSize size = checkpointSize(run.model);
  std::error_code code;
  std::filesystem::space_info space =
      std::filesystem::space(run.journal.directory().path(), code);
  if (!code && space.available < size.bytes)
    run.journal.warn("a checkpoint takes " + grouped(size.bytes) +
                     " bytes, but '" + run.journal.directory().path() +
                     "' has room for " + grouped(space.available) +
                     ": no save can succeed until there is more");
  struct rlimit limit;
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < size.largestFile)
    run.journal.warn(
        "a file of a checkpoint takes " + grouped(size.largestFile) +
        " bytes, but this process may write " + grouped(limit.rlim_cur) +
        " (ulimit -f): no save can succeed");
}

/// How a rank's part of a save ended.
struct Saver::Outcome {
  std::optional<SaveFailure> failure;
  std::string message;

  static Outcome of(const Status &status, SaveFailure failure) {
    if (status)
      return {};
    return {failure, status.message()};
  }
};

/// Tells all ranks how the part of each ended. All then know the worst of it,
/// and of the first rank that had it.
Result<Saver::Outcome> Saver::synchronize(const std::string &point,
                                          const Outcome &own) {
  std::string word;
  if (own.failure)
    word = std::to_string(int(*own.failure)) + own.message;
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> all,
                       run.ranks.exchange(point, word, mostToSave));
  Outcome worst;
  for (int rank = 0; rank < run.ranks.size(); ++rank) {
    const std::string &text = all[size_t(rank)];
    if (text.empty())
      continue;
    SaveFailure failure = SaveFailure(text[0] - '0');
    if (worst.failure && *worst.failure <= failure)
      continue;
    worst.failure = failure;
    worst.message = text.substr(1);
    if (run.ranks.size() > 1)
      worst.message += " on rank " + std::to_string(rank);
  }
  return worst;
}

/// Begins a checkpoint that all ranks save their shares in.
Result<Saver::Outcome> Saver::beginShares() {
  Status begun;
  if (run.ranks.isFirst())
    begun = beginCheckpoint(run.journal.directory().path(), run.state.step);
  SaveFailure failure = SaveFailure::Other;
  if (!begun && saysNoSpace(begun.message()))
    failure = SaveFailure::NoSpace;
  return synchronize("checkpoint " + std::to_string(run.state.step) + " begins",
                     Outcome::of(begun, failure));
}

/// Whether all ranks have saved their shares; else there is no checkpoint.
Result<Saver::Outcome> Saver::synchronizeShares(int64_t step,
                                                const Outcome &own) {
  Result<Outcome> outcome =
      synchronize("checkpoint " + std::to_string(step) + " has shares", own);
  if (run.ranks.isFirst() && (!outcome || outcome->failure))
    dropCheckpoint(run.journal.directory().path(), step);
  return outcome;
}

/// Reports how a save ended, and where it is.
Saver::Outcome Saver::takeResult(const SaveResult &result) {
  for (const std::string &text : result.report.warnings)
    run.journal.warn(text);
  if (!result.path)
    return {result.report.failure, result.path.message()};
  run.saved.path = *result.path;
  return {};
}

/// Saves what a model holds in the state of this step.
std::function<SaveResult(const TensorSet &)> Saver::checkpointSaver() const {
  return [path = run.journal.directory().path(), state = run.state,
          config = run.config,
          text = run.tokenizer ? run.tokenizer->text()
                               : ""](const TensorSet &from) {
    SaveResult result;
    result.path =
        saveCheckpoint(path, from, state, config, config.train.keepCheckpoints,
                       &result.report, text);
    return result;
  };
}

/// Saves the rank's share of it.
std::function<SaveResult(const TensorSet &)> Saver::shareSaver() const {
  return [path = run.journal.directory().path(), step = run.state.step,
          rank = run.ranks.rank()](const TensorSet &from) {
    SaveResult result;
    Status status = saveShare(path, step, from, rank, &result.report.failure);
    if (status)
      result.path = path;
    else
      result.path = Error{status.message()};
    return result;
  };
}

Result<std::optional<TrainEnd>> Saver::save(bool isLast) {
  double begin = steadyClock();
  // One at a time; an earlier one is of an earlier state.
  Result<std::optional<TrainEnd>> end = endSave(isLast);
  if (!end || *end || run.saved.step == run.state.step)
    return end;
  // Else folders would be made anew where the run's were.
  NSA_RETURN_IF_ERROR(run.journal.directory().check());
  NSA_ASSIGN_OR_RETURN(bool isVerified, guard.awaitVerified());
  if (!isVerified)
    return std::optional<TrainEnd>(TrainEnd::Interrupted);
  NSA_RETURN_IF_ERROR(guard.checkUnchanged());
  bool waits = isLast || !run.config.train.saveAsync;
  end = startSave(isLast, waits);
  if (end && !*end && waits)
    end = endSave(isLast);
  lastSave = steadyClock();
  if (!isLast)
    saveSeconds += lastSave - begin;
  return end;
}

/// Takes the tensors, and leaves the files to the writer: first those of the
/// ranks' shares, where they share states. `waits` says that no step follows
/// before it is done.
Result<std::optional<TrainEnd>> Saver::startSave(bool isLast, bool waits) {
  bool shares = run.model.sharingRanks() > 0;
  if (shares) {
    NSA_ASSIGN_OR_RETURN(Outcome begun, beginShares());
    if (begun.failure)
      return report(run.state.step, begun, isLast);
    saveRest = checkpointSaver();
  }
  Status status;
  if (shares || run.ranks.isFirst()) {
    if (!waits)
      if (Status pinned = run.model.pinHost(); !pinned)
        run.journal.warn(pinned.message() +
                         "; checkpoints take longer to the host");
    status = writer.start(run.model, shares ? shareSaver() : checkpointSaver(),
                          run.ranks.rank(), /*copies=*/!waits);
  }
  pendingSave = run.state.step;
  sharesPending = shares;
  if (!status)
    return Error{status.message()};
  return std::optional<TrainEnd>();
}

/// Waits for the shares of all ranks, and begins to write the rest.
Result<Saver::Outcome> Saver::endShares() {
  Outcome own;
  if (std::optional<SaveResult> result =
          writer.wait(/*keepSnapshot=*/run.ranks.isFirst());
      result && !result->path)
    own = {result->report.failure, result->path.message()};
  sharesPending = false;
  Result<Outcome> outcome = synchronizeShares(pendingSave, own);
  if (run.ranks.isFirst() && outcome && !outcome->failure)
    writer.goOn(std::move(saveRest));
  return outcome;
}

Result<std::optional<TrainEnd>> Saver::continueSave() {
  if (!sharesPending)
    return endSave(/*isLast=*/false);
  NSA_ASSIGN_OR_RETURN(Outcome outcome, endShares());
  if (!outcome.failure)
    return std::optional<TrainEnd>();
  return report(std::exchange(pendingSave, -1), outcome, false);
}

Result<std::optional<TrainEnd>> Saver::endSave(bool isLast) {
  std::optional<TrainEnd> goOn;
  if (pendingSave < 0)
    return goOn;
  int64_t step = pendingSave;
  // A later state is still to be saved.
  bool isLastOfRun = isLast && step == run.state.step;
  if (sharesPending) {
    NSA_ASSIGN_OR_RETURN(Outcome outcome, endShares());
    if (outcome.failure) {
      pendingSave = -1;
      return report(step, outcome, isLastOfRun);
    }
  }
  Outcome own;
  if (std::optional<SaveResult> result = writer.wait())
    own = takeResult(*result);
  pendingSave = -1;
  NSA_ASSIGN_OR_RETURN(
      Outcome outcome,
      synchronize("checkpoint " + std::to_string(step) + " is saved", own));
  return report(step, outcome, isLastOfRun);
}

/// Shares alone are no checkpoint; the next start removes them.
void Saver::endOwnSave() {
  std::optional<SaveResult> result = writer.wait();
  if (result && !sharesPending)
    (void)takeResult(*result);
}

Result<std::optional<TrainEnd>> Saver::report(int64_t step, Outcome outcome,
                                              bool isLast) {
  if (outcome.failure)
    outcome.message = "no checkpoint was saved: " + outcome.message;
  if (outcome.failure == SaveFailure::NotFinite)
    return reportUnsaved(step, outcome.message);
  if (outcome.failure == SaveFailure::NoSpace && !isLast) {
    ++failedSaves;
    run.journal.publish(
        {.step = step,
         .line = "step " + std::to_string(step) + ": " + outcome.message +
                 "; training goes on, and the next save tries again",
         .heartbeat = outcome.message});
  } else if (outcome.failure) {
    return Error{outcome.message};
  } else {
    run.saved.step = step;
    run.journal.publish(
        {.step = step,
         .line = "saved " + run.saved.path,
         .heartbeat = run.ranks.isFirst() ? "saved" : "saved by rank 0"});
  }
  return std::optional<TrainEnd>();
}

/// Ends the run where what would be saved is not finite: no later step can mend
/// it, and the last good checkpoint stays.
Result<std::optional<TrainEnd>> Saver::reportUnsaved(int64_t step,
                                                     const std::string &found) {
  run.journal.publish({.step = step,
                       .line = "step " + std::to_string(step) + ": " + found,
                       .heartbeat = "nan_loss: " + found,
                       .anomaly = AnomalyKind::NanLoss});
  run.journal.say("last good checkpoint: " + run.saved.name());
  return std::optional<TrainEnd>(TrainEnd::NonFinite);
}

Error Saver::saveUnreadable(const std::string &found) {
  Result<std::optional<TrainEnd>> end = save(/*isLast=*/true);
  std::string step = std::to_string(run.state.step);
  if (!end || *end)
    return Error{found + "; no checkpoint of step " + step + " either: " +
                 (!end ? end.message()
                  : **end == TrainEnd::Interrupted
                      ? "stopped before all shards were verified"
                      : "its values are not finite")};
  return Error{found + "; the run ends after step " + step +
               ", which is saved"};
}

} // namespace nsa
