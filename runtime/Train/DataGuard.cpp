//===- DataGuard.cpp - data that is damaged or cannot be read -------------===//

#include "runtime/Train/DataGuard.h"
#include "lib/Support/Text.h"
#include "runtime/Train/CheckpointWriter.h"

#include <algorithm>
#include <cassert>

namespace nsa {

/// How often a wait for the verifier looks whether the run is to stop.
static constexpr double sliceSeconds = 0.1;

/// Waits as long as the options say, or until the run is to stop.
Status DataGuard::waitAtStart(DataVerifier &verifier) const {
  double end = steadyClock() + run.options.verifySeconds;
  while (!verifier.isFinished() && !run.signals.stopRequested()) {
    double left = end - steadyClock();
    if (left <= 0)
      break;
    (void)verifier.wait(std::min(left, sliceSeconds));
  }
  return verifier.status();
}

Status DataGuard::verifyAtStart() {
  DataVerifier *verifier = run.options.verifier;
  if (!verifier)
    return {};
  Status found = waitAtStart(*verifier);
  if (found)
    found = run.data.manifest.checkOwnHash(run.data.directory);
  Status status = run.ranks.synchronizeStatus(
      "the data is verified as far as it is", found);
  if (!status || verifier->isFinished())
    return status;
  verifier->yieldToTraining();
  run.journal.note("verified " + grouped(verifier->bytesDone()) + " of " +
                   grouped(verifier->bytes()) +
                   " bytes of shards so far, the rest is verified while "
                   "training; no checkpoint is saved before");
  return {};
}

DataHealth DataGuard::look(const Status &samples) {
  own = {};
  if (run.options.verifier) {
    own.isVerified = run.options.verifier->isFinished();
    if (!run.options.verifier->status())
      own.failure = DataHealth::Damaged;
  }
  if (own.failure == DataHealth::None && !samples)
    own.failure = DataHealth::Unreadable;
  all = own;
  return own;
}

void DataGuard::add(const DataHealth &other) {
  all.failure = std::max(all.failure, other.failure);
  all.isVerified &= other.isVerified;
}

/// The end of a run whose data is not what its manifest says.
Error DataGuard::damaged(const std::string &found) const {
  // Those that are saved were made before.
  int64_t from = std::max(run.firstStep, run.saved.step) + 1;
  return Error{found + "; the steps from " + std::to_string(from) + " to " +
               std::to_string(run.state.step) +
               " may have read it and are not saved; the newest checkpoint "
               "from before them: " +
               run.saved.name()};
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
Result<bool> DataGuard::awaitVerified() {
  if (all.isVerified)
    return true;
  DataVerifier *verifier = run.options.verifier;
  if (!verifier || !verifier->isFinished())
    run.journal.say("step " + std::to_string(run.state.step) +
                    ": the checkpoint waits until all shards are verified");
  std::optional<double> stopAt;
  for (;;) {
    Status status = verifier ? verifier->wait(sliceSeconds) : Status();
    Verification word = Verification::Waiting;
    if (!stopAt && run.signals.stopRequested())
      stopAt = steadyClock() + run.options.stopSeconds;
    if (!verifier || verifier->isFinished())
      word = status ? Verification::Done : Verification::Failed;
    else if (stopAt && steadyClock() >= *stopAt)
      word = Verification::Abandoned;
    NSA_ASSIGN_OR_RETURN(
        std::vector<std::string> words,
        run.ranks.exchange("the data of checkpoint " +
                               std::to_string(run.state.step) + " is verified",
                           std::string(1, char(word)) +
                               (status ? "" : status.message())));
    auto worst = std::max_element(
        words.begin(), words.end(),
        [](const auto &a, const auto &b) { return a[0] < b[0]; });
    switch (Verification((*worst)[0])) {
    case Verification::Done:
      all.isVerified = true;
      return true;
    case Verification::Waiting:
      continue;
    case Verification::Abandoned:
      reportUnverified();
      return false;
    case Verification::Failed:
      return damaged(word == Verification::Failed
                         ? status.message()
                         : "rank " + std::to_string(worst - words.begin()) +
                               ": " + worst->substr(1));
    }
  }
}

/// That no file was written since it was verified: the first rank of each
/// machine looks. What cannot be read any more has ended the run already.
Status DataGuard::checkUnchanged() {
  if (!run.options.verifier || all.failure != DataHealth::None)
    return {};
  Status found;
  if (run.ranks.localRank() == 0)
    found = run.options.verifier->verifyAgain();
  Status status = run.ranks.synchronizeStatus(
      "the data of checkpoint " + std::to_string(run.state.step) +
          " is unchanged",
      found, mostToSave);
  if (!status)
    return damaged(status.message());
  run.state.history.files = run.options.verifier->files();
  return {};
}

Status DataGuard::expectFiles(const Checkpoint &checkpoint) {
  if (!run.options.verifier || run.options.allowChangedData)
    return {};
  const std::vector<DataFile> &files = checkpoint.state.history.files;
  if (!files.empty())
    run.options.verifier->expect(files,
                                 "the checkpoint '" + checkpoint.path + "'");
  else if (run.ranks.isFirst())
    run.journal.warn(
        "'" + checkpoint.path +
        "' has no hashes of the files of its data, as older versions saved "
        "none: what its digest does not cover could not be compared");
  return run.options.verifier->status();
}

/// The steps whose data was not verified are not saved.
void DataGuard::reportUnverified() {
  std::string text =
      "stopped before all shards were verified: the steps from " +
      std::to_string(run.firstStep + 1) + " to " +
      std::to_string(run.state.step) +
      " are not saved; the newest checkpoint from before them: " +
      run.saved.name();
  run.journal.heartbeat(run.state.step, text);
  run.journal.say("step " + std::to_string(run.state.step) + ": " + text);
}

std::string DataGuard::describeFailure(const Status &samples) {
  Status found;
  if (own.failure == all.failure)
    found = isDamaged() ? run.options.verifier->status() : samples;
  Status status =
      run.ranks.synchronizeStatus("what is wrong with the data", found);
  assert(!status && "a rank has said that something is wrong");
  // What follows matters more than a heartbeat.
  run.journal.heartbeat(run.state.step, "data: " + status.message());
  return status.message();
}

} // namespace nsa
