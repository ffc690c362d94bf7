//===- TrainerData.cpp - data that is damaged or cannot be read -----------===//
//
// No checkpoint is made of data that was not verified: a shard whose hash is
// wrong was perhaps trained on. One that cannot be read any more has spoilt
// nothing: the state after the last whole step is saved.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Text.h"
#include "runtime/Train/Trainer.h"

#include <algorithm>

namespace nsa {

/// How often a wait for the verifier looks whether the run is to stop.
static constexpr double sliceSeconds = 0.1;

/// Waits as long as the options say, or until the run is to stop.
Status Trainer::waitAtStart(DataVerifier &verifier) const {
  double end = steadyClock() + options.verifySeconds;
  while (!verifier.isFinished() && !signals.stopRequested()) {
    double left = end - steadyClock();
    if (left <= 0)
      break;
    (void)verifier.wait(std::min(left, sliceSeconds));
  }
  return verifier.status();
}

Status Trainer::verifyAtStart() {
  DataVerifier *verifier = options.verifier;
  if (!verifier)
    return {};
  Status own = waitAtStart(*verifier);
  if (own)
    own = data.manifest.checkOwnHash(data.directory);
  Status status =
      ranks.synchronizeStatus("the data is verified as far as it is", own);
  if (!status || verifier->isFinished())
    return status;
  verifier->yieldToTraining();
  notes.push_back("verified " + grouped(verifier->bytesDone()) + " of " +
                  grouped(verifier->bytes()) +
                  " bytes of shards so far, the rest is verified while "
                  "training; no checkpoint is saved before");
  return {};
}

Trainer::DataHealth Trainer::ownDataHealth() const {
  DataHealth health;
  if (options.verifier) {
    health.isVerified = options.verifier->isFinished();
    if (!options.verifier->status())
      health.failure = DataHealth::Damaged;
  }
  if (health.failure == DataHealth::None && !samples.status())
    health.failure = DataHealth::Unreadable;
  return health;
}

/// The end of a run whose data is not what its manifest says.
Error Trainer::damagedData(const std::string &found) const {
  // Those that are saved were made before.
  int64_t from = std::max(firstStep, savedStep) + 1;
  return Error{found + "; the steps from " + std::to_string(from) + " to " +
               std::to_string(state.step) +
               " may have read it and are not saved; the newest checkpoint "
               "from before them: " +
               (lastCheckpoint.empty() ? "none" : lastCheckpoint)};
}

namespace {

/// What a rank says of its verifier while a checkpoint waits, in the order in
/// which they count.
enum class Verification : char {
  Done,
  Waiting,
  /// The run is to stop, and has waited for long enough.
  Abandoned,
  /// A shard is damaged.
  Failed
};

} // namespace

/// Waits, with all ranks, until the verifiers are done. False means that the
/// run was asked to stop before.
Result<bool> Trainer::awaitVerified() {
  if (dataHealth.isVerified)
    return true;
  DataVerifier *verifier = options.verifier;
  if (!verifier || !verifier->isFinished())
    console.line("step " + std::to_string(state.step) +
                 ": the checkpoint waits until all shards are verified");
  std::optional<double> stopAt;
  for (;;) {
    Status own = verifier ? verifier->wait(sliceSeconds) : Status();
    Verification word = Verification::Waiting;
    if (!stopAt && signals.stopRequested())
      stopAt = steadyClock() + options.stopSeconds;
    if (!verifier || verifier->isFinished())
      word = own ? Verification::Done : Verification::Failed;
    else if (stopAt && steadyClock() >= *stopAt)
      word = Verification::Abandoned;
    NSA_ASSIGN_OR_RETURN(std::vector<std::string> all,
                         ranks.exchange("the data of checkpoint " +
                                            std::to_string(state.step) +
                                            " is verified",
                                        std::string(1, char(word)) +
                                            (own ? "" : own.message())));
    auto worst = std::max_element(
        all.begin(), all.end(),
        [](const auto &a, const auto &b) { return a[0] < b[0]; });
    switch (Verification((*worst)[0])) {
    case Verification::Done:
      dataHealth.isVerified = true;
      return true;
    case Verification::Waiting:
      continue;
    case Verification::Abandoned:
      return false;
    case Verification::Failed:
      return damagedData(word == Verification::Failed
                             ? own.message()
                             : "rank " + std::to_string(worst - all.begin()) +
                                   ": " + worst->substr(1));
    }
  }
}

/// That no file was written since it was verified: the first rank of each
/// machine looks. What cannot be read any more has ended the run already.
Status Trainer::checkUnchanged() {
  if (!options.verifier || dataHealth.failure != DataHealth::None)
    return {};
  Status own;
  if (ranks.localRank() == 0)
    own = options.verifier->verifyAgain();
  Status status = ranks.synchronizeStatus(
      "the data of checkpoint " + std::to_string(state.step) + " is unchanged",
      own, mostToSave);
  if (!status)
    return damagedData(status.message());
  state.history.files = options.verifier->files();
  return {};
}

/// The files are to be those that a checkpoint was made of.
Status Trainer::expectFiles(const Checkpoint &checkpoint) {
  if (!options.verifier || options.allowChangedData)
    return {};
  const std::vector<DataFile> &files = checkpoint.state.history.files;
  if (!files.empty())
    options.verifier->expect(files, "the checkpoint '" + checkpoint.path + "'");
  else if (ranks.isFirst())
    warn("'" + checkpoint.path +
         "' has no hashes of the files of its data, as older versions saved "
         "none: what its digest does not cover could not be compared");
  return options.verifier->status();
}

/// Ends the run without a checkpoint of steps whose data was not verified.
TrainEnd Trainer::reportUnverified() {
  std::string text =
      "stopped before all shards were verified: the steps from " +
      std::to_string(firstStep + 1) + " to " + std::to_string(state.step) +
      " are not saved; the newest checkpoint from before them: " +
      (lastCheckpoint.empty() ? "none" : lastCheckpoint);
  noteWrite(log->logHeartbeat(state.step, text));
  console.line("step " + std::to_string(state.step) + ": " + text);
  return TrainEnd::Interrupted;
}

/// Ends the run after a step, with the code of an error, on every rank.
Result<TrainEnd> Trainer::endOnData() {
  Status own;
  if (ownHealth.failure == dataHealth.failure)
    own = ownHealth.failure == DataHealth::Damaged ? options.verifier->status()
                                                   : samples.status();
  Status status = ranks.synchronizeStatus("what is wrong with the data", own);
  assert(!status && "a rank has said that something is wrong");
  const std::string &text = status.message();
  // The error that follows matters more than a heartbeat.
  (void)log->logHeartbeat(state.step, "data: " + text);
  if (dataHealth.failure == DataHealth::Damaged)
    return damagedData(text);
  return saveUnreadable(text);
}

/// The state is the one after a whole step, whatever could not be read then.
Error Trainer::saveUnreadable(const std::string &found) {
  Result<std::optional<TrainEnd>> saved = save(/*isLast=*/true);
  if (!saved || *saved)
    return Error{found + "; no checkpoint of step " +
                 std::to_string(state.step) + " either: " +
                 (!saved ? saved.message()
                  : **saved == TrainEnd::Interrupted
                      ? "stopped before all shards were verified"
                      : "its values are not finite")};
  return Error{found + "; the run ends after step " +
               std::to_string(state.step) + ", which is saved"};
}

} // namespace nsa
