//===- TrainerData.cpp - data that is damaged or cannot be read -----------===//
//
// No checkpoint is made of data that was not verified: a shard whose hash is
// wrong was perhaps trained on. One that cannot be read any more has spoilt
// nothing: the state after the last whole step is saved.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Text.h"
#include "runtime/Train/Trainer.h"

namespace nsa {

/// How long a rank may verify longer than another.
static constexpr Milliseconds mostToVerify{30 * 60 * 1000};

Status Trainer::verifyAtStart() {
  DataVerifier *verifier = options.verifier;
  if (!verifier)
    return {};
  Status own = verifier->wait(options.verifySeconds);
  if (own)
    own = data.manifest.checkOwnHash(data.directory);
  Status status = ranks.agree("the data is verified as far as it is", own);
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
      health.trouble = DataHealth::Damaged;
  }
  if (health.trouble == DataHealth::None && !samples.status())
    health.trouble = DataHealth::Unreadable;
  return health;
}

/// The end of a run whose data is not what its manifest says.
Error Trainer::damagedData(const std::string &found) const {
  return Error{found + "; the steps from " + std::to_string(firstStep + 1) +
               " to " + std::to_string(state.step) +
               " may have read it and are not saved; the newest checkpoint "
               "from before them: " +
               (lastCheckpoint.empty() ? "none" : lastCheckpoint)};
}

Status Trainer::awaitVerified() {
  if (dataHealth.isVerified)
    return {};
  if (!options.verifier || !options.verifier->isFinished())
    console.line("step " + std::to_string(state.step) +
                 ": the checkpoint waits until all shards are verified");
  Status status = ranks.agree(
      "the data of checkpoint " + std::to_string(state.step) + " is verified",
      options.verifier ? options.verifier->wait() : Status(), mostToVerify);
  if (!status)
    return damagedData(status.message());
  dataHealth.isVerified = true;
  return {};
}

/// Ends the run after a step, with the code of an error, on every rank.
Result<TrainEnd> Trainer::endOnData() {
  Status own;
  if (ownHealth.trouble == dataHealth.trouble)
    own = ownHealth.trouble == DataHealth::Damaged ? options.verifier->status()
                                                   : samples.status();
  Status status = ranks.agree("what is wrong with the data", own);
  assert(!status && "a rank has said that something is wrong");
  const std::string &text = status.message();
  // The error that follows matters more than a heartbeat.
  (void)log->beat(state.step, "data: " + text);
  if (dataHealth.trouble == DataHealth::Damaged)
    return damagedData(text);
  return saveUnreadable(text);
}

/// The state is the one after a whole step, whatever could not be read then.
Error Trainer::saveUnreadable(const std::string &found) {
  Result<std::optional<TrainEnd>> saved = save(/*isLast=*/true);
  if (!saved || *saved)
    return Error{
        found + "; no checkpoint of step " + std::to_string(state.step) +
        " either: " + (saved ? "its values are not finite" : saved.message())};
  return Error{found + "; the run ends after step " +
               std::to_string(state.step) + ", which is saved"};
}

} // namespace nsa
