//===- TrainerRanks.cpp - what the ranks of a run agree on ----------------===//

#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/Train/Trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace nsa {

/// Ranks that do not run the same program on the same data with the same
/// configuration are no run.
Status Trainer::checkSameRun() {
  std::vector<std::pair<std::string, std::string>> all = {
      {"the artefact", toHex(state.artefactHash)},
      {"the configuration", configHash(config)},
      {"the data", toHex(state.dataDigest)},
      // It decides which reductions there are, and when.
      {"--separate-update", options.separateUpdate ? "on" : "off"},
      // Rank 0 decides for all: of another one these would have no effect.
      {"--stop-after", std::to_string(options.stopAfter)},
      {"--resume", options.resume.empty() ? "none" : options.resume},
      {"--run-name", options.runName.empty() ? "none" : options.runName},
      {"--init-from", options.initFrom.empty() ? "none" : options.initFrom},
      {"--init-partial", options.initPartial ? "on" : "off"},
      {"--allow-changed-batch", options.allowChangedBatch ? "on" : "off"},
      {"--allow-changed-data", options.allowChangedData ? "on" : "off"}};
  all.insert(all.end(), options.sameOnAllRanks.begin(),
             options.sameOnAllRanks.end());
  for (const auto &[what, value] : all)
    NSA_RETURN_IF_ERROR(ranks.checkSame(what, value));
  return {};
}

/// The record that ranks exchange after a step.
namespace {
struct StepStatus {
  /// Of what was averaged: equal on all ranks.
  float loss, gradNorm;
  double ownSeconds;
  /// A TrainEnd, or -1 to go on.
  int32_t end;
  /// Of the rank's DataHealth.
  int32_t dataFailure, dataIsVerified;
  /// Whether a save is due by the clock, which is asked on the first rank, and
  /// whether this rank has written its part of the one beside steps.
  int32_t save, isSaveWritten;
};
} // namespace

/// Checks that all ranks are where this one is, notes how far apart they are in
/// time, and stops all as soon as one has a reason to.
Result<std::optional<TrainEnd>> Trainer::synchronizeStep(StepRecord &record) {
  std::optional<TrainEnd> stop;
  if (record.step < config.train.steps)
    stop = stopReason();
  saveDueByTime = ranks.isFirst() && isSaveDueByTime();
  isSaveWritten = pendingSave >= 0 && (!writer.isBusy() || writer.isDone());
  dataHealth = ownHealth = ownDataHealth();
  if (ranks.size() == 1)
    return stop;
  StepStatus own = {record.loss,       record.gradNorm,
                    record.ownSeconds, stop ? int32_t(*stop) : -1,
                    ownHealth.failure, ownHealth.isVerified,
                    saveDueByTime,     isSaveWritten};
  double begin = steadyClock();
  NSA_ASSIGN_OR_RETURN(
      std::vector<std::string> all,
      ranks.exchange(
          "step " + std::to_string(record.step),
          std::string(reinterpret_cast<const char *>(&own), sizeof own)));
  // The next step begins after it.
  addSeconds(record, steadyClock() - begin);
  double least = own.ownSeconds, most = own.ownSeconds;
  int slowest = ranks.rank();
  for (int rank = 0; rank < ranks.size(); ++rank) {
    StepStatus other = {};
    if (all[size_t(rank)].size() != sizeof other)
      return Error{"rank " + std::to_string(rank) +
                   " is of another version of the trainer"};
    std::memcpy(&other, all[size_t(rank)].data(), sizeof other);
    if (std::memcmp(&other, &own, 2 * sizeof(float)) != 0)
      return Error{"step " + std::to_string(record.step) + ": rank " +
                   std::to_string(rank) + " has loss " + shortest(other.loss) +
                   " and gradient norm " + shortest(other.gradNorm) +
                   ", rank " + std::to_string(ranks.rank()) + " has " +
                   shortest(own.loss) + " and " + shortest(own.gradNorm)};
    if (rank == 0)
      saveDueByTime = other.save != 0;
    isSaveWritten &= other.isSaveWritten != 0;
    if (other.end >= 0 && !stop)
      stop = TrainEnd(other.end);
    dataHealth.failure =
        std::max(dataHealth.failure, DataHealth::Failure(other.dataFailure));
    dataHealth.isVerified &= other.dataIsVerified != 0;
    least = std::min(least, other.ownSeconds);
    if (other.ownSeconds > most) {
      most = other.ownSeconds;
      slowest = rank;
    }
  }
  double spread = most > 0 ? (most - least) / most : 0;
  if (spread >= recentSpread) {
    recentSpread = spread;
    slowestRank = slowest;
  }
  return stop;
}

/// The first gradient of this rank that is not finite; empty if all are. The
/// update cleared the gradients, and changed nothing else: the same passes give
/// the same gradients again.
Result<std::string> Trainer::findFirstNonFinite() {
  for (int64_t pass = 0; pass < plan.passes; ++pass) {
    samples.load(pass, binding);
    NSA_RETURN_IF_ERROR(model.run(training::accumulateEntry));
    Result<std::string> found = firstNonFiniteGradient(model);
    if (!found)
      return found;
    if (!found->empty())
      return *found + " in pass " + std::to_string(pass + 1);
  }
  return std::string();
}

Status Trainer::writeAnomaly(AnomalyKind kind) const {
  return directory->write(".anomaly_type",
                          std::string(anomalyName(kind)) + "\n");
}

/// Ends the run at a command of this rank that wrote what is not finite. The
/// other ranks may wait for it in a reduction.
Result<TrainEnd> Trainer::stopAll(const std::string &found) {
  std::string text = found;
  if (ranks.size() > 1)
    text += " on rank " + std::to_string(ranks.rank());
  ranks.stop(text);
  return reportStopped(text);
}

/// The same on every rank, wherever it is.
Result<TrainEnd> Trainer::reportStopped(const std::string &found) {
  endOwnSave();
  console.line("step " + std::to_string(state.step + 1) + ": " + found);
  console.line("no update was applied; last good checkpoint: " +
               (lastCheckpoint.empty() ? "none" : lastCheckpoint));
  noteWrite(log->logHeartbeat(state.step + 1, "nan_loss: " + found));
  if (ranks.isFirst())
    noteWrite(writeAnomaly(AnomalyKind::NanLoss));
  Status status = finish(TrainEnd::NonFinite);
  return status ? Result<TrainEnd>(TrainEnd::NonFinite)
                : Error{status.message()};
}

Result<TrainEnd> Trainer::reportNonFinite(const StepRecord &record) {
  // The checkpoint to go back to is said below.
  if (Result<std::optional<TrainEnd>> end = endSave(/*isLast=*/false); !end)
    return end.takeError();
  NSA_ASSIGN_OR_RETURN(std::string found, findFirstNonFinite());
  // What every rank found: the sums over ranks say nothing of the source.
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> all,
                       ranks.exchange("gradients that are not finite", found));
  std::string firstNonFinite;
  for (int rank = ranks.size() - 1; rank >= 0; --rank)
    if (const std::string &text = all[size_t(rank)]; !text.empty())
      firstNonFinite =
          ranks.size() > 1 ? text + " on rank " + std::to_string(rank) : text;
  if (firstNonFinite.empty()) {
    NSA_ASSIGN_OR_RETURN(std::string largest, largestGradient(model));
    firstNonFinite = std::isfinite(record.loss)
                         ? "the norm overflows, most in " + largest
                         : "the loss, while every gradient is finite";
  }
  noteWrite(log->step(record, "nan_loss: " + firstNonFinite));
  if (!ranks.isFirst())
    return TrainEnd::NonFinite;
  noteWrite(writeAnomaly(AnomalyKind::NanLoss));
  console.line("step " + std::to_string(record.step) + ": loss " +
               shortest(record.loss) + ", gradient norm " +
               shortest(record.gradNorm) +
               "; first tensor that is not finite: " + firstNonFinite);
  console.line("the update was not applied; last good checkpoint: " +
               (lastCheckpoint.empty() ? "none" : lastCheckpoint));
  return TrainEnd::NonFinite;
}

} // namespace nsa
