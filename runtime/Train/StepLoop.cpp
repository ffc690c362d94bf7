//===- StepLoop.cpp - the optimizer steps of a run ------------------------===//

#include "runtime/Train/StepLoop.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/Train/Environment.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace nsa {

using Json = nlohmann::ordered_json;

//===----------------------------------------------------------------------===//
// Before the first step
//===----------------------------------------------------------------------===//

Status StepLoop::open() {
  NSA_ASSIGN_OR_RETURN(
      sampler, TrainSampler::create(run.data, run.plan.seqLen, run.state.seed));
  NSA_RETURN_IF_ERROR(
      split.open(run.config.data, run.data.trainDocuments, *sampler));
  NSA_RETURN_IF_ERROR(checkTargets());
  const std::string &selections = run.options.replaySelection;
  if (!selections.empty()) {
    NSA_ASSIGN_OR_RETURN(replay, SelectionReplay::open(selections, run.binding,
                                                       run.config.nsa.lSel));
  } else if (!run.binding.selections.empty()) {
    return Error{"the program takes the selections of a rollout: give "
                 "--replay-selection"};
  }
  samples.start(*sampler, run.plan, run.ranks.rank(),
                run.config.data.isolateDocuments, replay ? &*replay : nullptr);
  return {};
}

/// Losses of a split whose tokens are all ignored would be means of nothing.
Status StepLoop::checkTargets() const {
  std::string all = std::to_string(run.data.train.size());
  if (run.config.data.targets == "marked" && !split.marks.isAnySet())
    return Error{"the training split has no target: none of its " + all +
                 " tokens is marked, and data.targets is marked"};
  if (!run.config.data.isolateDocuments)
    return {};
  NSA_ASSIGN_OR_RETURN(bool trained,
                       split.documents.hasTargets(run.data.train));
  if (!trained)
    return Error{"the training split has no target: each of its " + all +
                 " tokens is the first of its document, and "
                 "data.isolate_documents is true"};
  return {};
}

Status StepLoop::prepare() {
  for (float loss : run.journal.log().lastLosses()) {
    recentLoss.add(loss);
    lastLoss = loss;
  }
  uint64_t passes = uint64_t(run.plan.passes) - usesStep();
  utilization.flops =
      passes * run.model.flops(training::accumulateEntry) +
      run.model.flops(usesStep() ? training::stepEntry : training::updateEntry);
  utilization.peak = run.config.runtime.peakTflops > 0
                         ? run.config.runtime.peakTflops * 1e12
                         : run.options.peakFlops;
  Status status;
  if (run.data.manifest.isBytes()) {
    bytesPerToken = 1;
  } else if (run.tokenizer && run.ranks.isFirst()) {
    Result<double> measured = evaluator.measureBytesPerToken();
    if (measured)
      bytesPerToken = *measured;
    else
      status = measured.takeError();
  }
  return run.ranks.synchronizeStatus("the held-out text is measured", status);
}

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

Result<StepRecord> StepLoop::runStep(Agreement &agreed) {
  double begin = steadyClock();
  auto waitedSeconds = [&] {
    return run.ranks.waitedSeconds() + run.model.waitedSeconds();
  };
  double waited = waitedSeconds();
  std::array<float, training::numHyper> hyper =
      hyperParameters(run.config.train, run.state.step);
  std::memcpy(run.binding.hyper, hyper.data(), sizeof hyper);
  // `step` is an accumulation with the update after it: in the last pass,
  // reductions over ranks run beside backward.
  bool fused = usesStep();
  std::string entry;
  samples.advance();
  for (int64_t pass = 0; pass < run.plan.passes; ++pass) {
    samples.load(pass, run.binding);
    bool last = pass + 1 == run.plan.passes;
    entry = fused && last ? training::stepEntry : training::accumulateEntry;
    if (pass == 0 && run.model.hasEntry(training::gatherEntry))
      entry.insert(0, training::gatherPrefix);
    NSA_RETURN_IF_ERROR(run.model.start(entry));
  }
  if (!fused) {
    entry = training::updateEntry;
    NSA_RETURN_IF_ERROR(run.model.start(entry));
  }
  // A GPU is at work meanwhile. What fails is for after the step.
  if (run.state.step + 1 < run.lastStep())
    (void)samples.readAhead(run.state.samples +
                            uint64_t(run.plan.sequencesPerStep()));
  NSA_RETURN_IF_ERROR(finishStep(entry, agreed));
  StepRecord record;
  record.step = run.state.step + 1;
  record.dataSeconds = samples.seconds();
  times.data += record.dataSeconds;
  record.hasTargets = *run.binding.fractionSum > 0;
  record.loss = *run.binding.lossSum / *run.binding.fractionSum;
  record.lr = learningRate(run.config.train, run.state.step);
  record.gradNorm = *run.binding.gradNorm / *run.binding.fractionSum;
  if (run.binding.lossScale)
    record.lossScale = *run.binding.lossScale;
  addSeconds(record, steadyClock() - begin);
  if (run.ranks.size() > 1)
    record.ownSeconds = record.seconds - (waitedSeconds() - waited);
  ++times.recentSteps;
  return record;
}

/// Counts time as a part of a step.
void StepLoop::addSeconds(StepRecord &record, double seconds) {
  record.seconds += seconds;
  record.toksPerSecond = double(run.plan.tokensPerStep()) / record.seconds;
  times.all += seconds;
  times.recent += seconds;
}

bool StepLoop::isLogged(int64_t step) const {
  return step % run.config.train.logEvery == 0 || step == run.firstStep + 1 ||
         step == run.lastStep();
}

/// Statistics of the last pass, with the new weights: `eval` computes what
/// training leaves out, and changes nothing that lasts.
Status StepLoop::addStatistics(StepRecord &record) {
  if (run.statistics.empty() || !isLogged(record.step))
    return {};
  NSA_RETURN_IF_ERROR(run.model.gatherWeights());
  NSA_RETURN_IF_ERROR(run.model.run(training::evalEntry));
  NSA_ASSIGN_OR_RETURN(
      record.attention,
      run.statistics.read(run.ranks, "step " + std::to_string(record.step)));
  return {};
}

/// Whether the gradients were too large for f16 at the scale of the step, and a
/// smaller one is left to try. The device has updated nothing then.
static bool isOverflow(const StepRecord &record) {
  return std::isfinite(record.loss) && !std::isfinite(record.gradNorm) &&
         record.lossScale >= 1;
}

//===----------------------------------------------------------------------===//
// What ranks agree on
//===----------------------------------------------------------------------===//

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

static Result<StepStatus> readStatus(const std::string &text, int rank) {
  StepStatus status = {};
  if (text.size() != sizeof status)
    return Error{"rank " + std::to_string(rank) +
                 " is of another version of the trainer"};
  std::memcpy(&status, text.data(), sizeof status);
  return status;
}

/// What this rank has to say of the step that runs, or has just ended.
StepLoop::Agreement StepLoop::findOwnWishes() {
  Agreement own;
  if (run.state.step + 1 < run.config.train.steps)
    own.stop = stopReason();
  own.saveIsDue = run.ranks.isFirst() && saver.isDueByTime();
  own.saveIsWritten = saver.hasWritten();
  return own;
}

/// The one wait of a step, for the few numbers that it leaves. While a GPU is
/// at work, ranks agree on what follows.
Status StepLoop::finishStep(std::string_view entry, Agreement &agreed) {
  if (run.ranks.size() == 1) {
    NSA_RETURN_IF_ERROR(run.model.finish(entry));
    agreed = findOwnWishes();
    guard.look(samples.status());
    return {};
  }
  Result<Agreement> all =
      agree("step " + std::to_string(run.state.step + 1), findOwnWishes());
  // A collective that misses a rank ends with the run.
  Status status = run.model.finish(entry);
  if (!all)
    return all.takeError();
  agreed = *all;
  return status;
}

/// Checks that all ranks were where this one was after the last step, notes how
/// far apart they were in time, and stops all as soon as one has a reason to.
Result<StepLoop::Agreement> StepLoop::agree(const std::string &name,
                                            Agreement agreed) {
  DataHealth health = guard.look(samples.status());
  StepStatus own = {latest.loss,       latest.gradNorm,
                    latest.ownSeconds, agreed.stop ? int32_t(*agreed.stop) : -1,
                    health.failure,    health.isVerified,
                    agreed.saveIsDue,  agreed.saveIsWritten};
  NSA_ASSIGN_OR_RETURN(
      std::vector<std::string> all,
      run.ranks.exchange(
          name, std::string(reinterpret_cast<const char *>(&own), sizeof own)));
  double least = own.ownSeconds, most = own.ownSeconds;
  int slowest = run.ranks.rank();
  for (int rank = 0; rank < run.ranks.size(); ++rank) {
    NSA_ASSIGN_OR_RETURN(StepStatus other, readStatus(all[size_t(rank)], rank));
    if (std::memcmp(&other, &own, 2 * sizeof(float)) != 0)
      return Error{"step " + std::to_string(latest.step) + ": rank " +
                   std::to_string(rank) + " has loss " + shortest(other.loss) +
                   " and gradient norm " + shortest(other.gradNorm) +
                   ", rank " + std::to_string(run.ranks.rank()) + " has " +
                   shortest(own.loss) + " and " + shortest(own.gradNorm)};
    if (rank == 0)
      agreed.saveIsDue = other.save != 0;
    agreed.saveIsWritten &= other.isSaveWritten != 0;
    if (other.end >= 0 && !agreed.stop)
      agreed.stop = TrainEnd(other.end);
    guard.add(
        {DataHealth::Failure(other.dataFailure), other.dataIsVerified != 0});
    least = std::min(least, other.ownSeconds);
    if (other.ownSeconds > most) {
      most = other.ownSeconds;
      slowest = rank;
    }
  }
  double spread = most > 0 ? (most - least) / most : 0;
  if (spread >= times.recentSpread) {
    times.recentSpread = spread;
    times.slowestRank = slowest;
  }
  return agreed;
}

std::optional<TrainEnd> StepLoop::stopReason() {
  if (int signal = run.signals.stopRequested()) {
    run.journal.say(std::string("stopping after ") + strsignal(signal));
    return TrainEnd::Interrupted;
  }
  if (!run.ranks.isFirst())
    return std::nullopt;
  HaltRequest request = run.journal.directory().checkHalt();
  if (!request.ignored.empty())
    run.journal.say(request.ignored);
  if (request.halt) {
    run.journal.directory().clearHalt();
    return TrainEnd::Halted;
  }
  if (run.options.stopAfter > 0 &&
      run.state.step + 1 - run.firstStep >= run.options.stopAfter)
    return TrainEnd::Halted;
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// After a step
//===----------------------------------------------------------------------===//

void StepLoop::reportAnomaly(const Anomaly &anomaly, int64_t step) {
  std::string name = anomalyName(anomaly.kind);
  run.journal.publish({.step = step,
                       .line = "anomaly " + name + " at step " +
                               std::to_string(step) + ": " + anomaly.text,
                       .heartbeat = name + ": " + anomaly.text,
                       .anomaly = anomaly.kind});
}

Status StepLoop::afterStep(StepRecord record) {
  NSA_RETURN_IF_ERROR(addStatistics(record));
  uint64_t epoch = sampler->epoch(run.state.samples);
  run.state.step = record.step;
  run.state.samples += uint64_t(run.plan.sequencesPerStep());
  if (record.hasTargets)
    lastLoss = record.loss;
  else
    run.journal.say("step " + std::to_string(record.step) +
                    ": no token of its sequences has a target, no update");
  bool overflow = isOverflow(record);
  if (overflow)
    run.journal.say("step " + std::to_string(record.step) +
                    ": gradients beyond fp16 at loss scale " +
                    shortest(2 * record.lossScale) + ", no update; now " +
                    shortest(record.lossScale));
  record.mfu = utilization.of(1, record.seconds);
  run.journal.publish({.step = record.step,
                       .heartbeat = overflow            ? "overflow"
                                    : record.hasTargets ? "step"
                                                        : "no_targets",
                       .record = &record});
  bool logged = isLogged(record.step);
  showProgress(record, logged);
  // Ranks have heard of the steps before this one.
  if (logged && run.ranks.size() > 1 && record.step > run.firstStep + 1)
    run.journal.say("step " + std::to_string(record.step) +
                    ": ranks differ by " +
                    shortest(std::round(1000 * times.recentSpread) / 10) +
                    " % of a step at most, rank " +
                    std::to_string(times.slowestRank) + " is the slowest");
  if (logged) {
    times.recent = 0;
    times.recentSteps = 0;
    times.recentSpread = 0;
  }
  for (const Anomaly &anomaly : monitor.update(record))
    reportAnomaly(anomaly, run.state.step);
  if (uint64_t used = sampler->epoch(run.state.samples);
      used != epoch && run.data.sources.empty())
    run.journal.say("epoch " + std::to_string(used + 1) +
                    " begins after step " + std::to_string(record.step) +
                    ": the training split was used " +
                    (used == 1 ? "once" : std::to_string(used) + " times"));
  if (run.signals.takeDumpRequest() && run.ranks.isFirst())
    return dumpState(record);
  return {};
}

void StepLoop::showProgress(const StepRecord &record, bool logged) {
  double perStep = times.all / double(run.state.step - run.firstStep);
  Progress shown = {record.step,
                    run.config.train.steps,
                    record.loss,
                    record.lr,
                    double(run.plan.tokensPerStep()) *
                        double(times.recentSteps) / times.recent,
                    perStep * double(run.config.train.steps - record.step)};
  if (record.hasTargets)
    recentLoss.add(record.loss);
  shown.meanLoss = recentLoss.mean();
  if (bytesPerToken > 0)
    shown.bitsPerByte = *shown.meanLoss / std::log(2.0) / bytesPerToken;
  shown.mfu = utilization.of(double(times.recentSteps), times.recent);
  run.journal.progress(shown, logged);
}

Result<TrainEnd> StepLoop::loop() {
  Anomaly stall{AnomalyKind::HeartbeatStall,
                "a step took more than " + shortest(run.options.stallSeconds) +
                    " seconds"};
  // People see the file while the step hangs, the console line only after it.
  Watchdog watchdog(run.options.stallSeconds, [&] {
    if (run.ranks.isFirst())
      (void)run.journal.directory().write(
          ".anomaly_type", std::string(anomalyName(stall.kind)) + "\n");
  });
  if (run.state.step < run.lastStep())
    NSA_RETURN_IF_ERROR(run.ranks.synchronizeStatus(
        "the first samples are read", samples.readAhead(run.state.samples)));
  saver.beginSteps();
  while (run.state.step < run.lastStep()) {
    watchdog.start();
    Agreement agreed;
    Result<StepRecord> record = runStep(agreed);
    bool stalled = watchdog.stop();
    if (!record)
      return record.takeError();
    if (stalled)
      reportAnomaly(stall, run.state.step + 1);
    bool finite =
        std::isfinite(record->loss) && std::isfinite(record->gradNorm);
    if (!finite && record->hasTargets && !isOverflow(*record))
      return reportNonFinite(*record);
    latest = *record;
    NSA_RETURN_IF_ERROR(run.journal.directory().check());
    NSA_RETURN_IF_ERROR(afterStep(*record));
    NSA_ASSIGN_OR_RETURN(std::optional<TrainEnd> end, betweenSteps(agreed));
    if (end)
      return *end;
  }
  return run.state.step < run.config.train.steps ? TrainEnd::StageEnded
                                                 : TrainEnd::Finished;
}

/// Evaluations, samples and saves that are due; returns what ends the run.
Result<std::optional<TrainEnd>>
StepLoop::betweenSteps(const Agreement &agreed) {
  const TrainConfig &train = run.config.train;
  int64_t step = run.state.step;
  if (agreed.saveIsWritten) {
    Result<std::optional<TrainEnd>> end = saver.continueSave();
    if (!end || *end)
      return end;
  }
  if (guard.hasFailed())
    return endOnData();
  bool goesOn = step < train.steps;
  if (goesOn && train.evalEvery > 0 && step % train.evalEvery == 0) {
    bool unreadable = false;
    if (Status status = evaluator.validate(unreadable); !status)
      return unreadable ? saver.saveUnreadable(status.message())
                        : Error{status.message()};
  }
  if (goesOn && train.sampleEvery > 0 && step % train.sampleEvery == 0)
    NSA_RETURN_IF_ERROR(sampleWriter.show("during training", 3.0));
  bool isLast = step == run.lastStep() || agreed.stop;
  if (isLast || agreed.saveIsDue ||
      (train.saveEvery > 0 && step % train.saveEvery == 0)) {
    // Nothing is saved of ranks that went apart.
    if (run.ranks.size() > 1)
      if (Result<Agreement> same =
              agree("the save of step " + std::to_string(step), {});
          !same)
        return same.takeError();
    Result<std::optional<TrainEnd>> end = saver.save(isLast);
    if (!end || *end)
      return end;
  }
  return agreed.stop;
}

//===----------------------------------------------------------------------===//
// What ends a run
//===----------------------------------------------------------------------===//

/// The state is the one after a whole step, which is saved unless its data is
/// damaged.
Error StepLoop::endOnData() {
  std::string text = guard.describeFailure(samples.status());
  return guard.isDamaged() ? guard.damaged(text) : saver.saveUnreadable(text);
}

/// The first gradient of this rank that is not finite; empty if all are. The
/// update cleared the gradients, and changed nothing else: the same passes give
/// the same gradients again.
Result<std::string> StepLoop::findFirstNonFinite() {
  std::string first;
  // Ranks that share sequences, gradients or weights take every pass together.
  bool together = run.plan.ranksOfGroup > 1 || run.model.sharingRanks() > 0;
  for (int64_t pass = 0; pass < run.plan.passes && (first.empty() || together);
       ++pass) {
    samples.load(pass, run.binding);
    NSA_RETURN_IF_ERROR(run.model.run(training::accumulateEntry));
    if (!first.empty())
      continue;
    NSA_ASSIGN_OR_RETURN(first,
                         firstNonFiniteGradient(run.model, run.ranks.rank()));
    if (!first.empty())
      first += " in pass " + std::to_string(pass + 1);
  }
  return first;
}

/// The other ranks may wait for a reduction.
void StepLoop::reportStopped(const std::string &found) {
  saver.endOwnSave();
  run.journal.say("step " + std::to_string(run.state.step + 1) + ": " + found);
  run.journal.say("no update was applied; last good checkpoint: " +
                  run.saved.name());
  run.journal.publish({.step = run.state.step + 1,
                       .heartbeat = "nan_loss: " + found,
                       .anomaly = AnomalyKind::NanLoss});
}

Result<TrainEnd> StepLoop::reportNonFinite(const StepRecord &record) {
  // The checkpoint to go back to is said below.
  if (Result<std::optional<TrainEnd>> end = saver.endSave(/*isLast=*/false);
      !end)
    return end.takeError();
  NSA_ASSIGN_OR_RETURN(std::string found, findFirstNonFinite());
  // What every rank found: the sums over ranks say nothing of the source.
  NSA_ASSIGN_OR_RETURN(
      std::vector<std::string> all,
      run.ranks.exchange("gradients that are not finite", found));
  std::string firstNonFinite;
  for (int rank = run.ranks.size() - 1; rank >= 0; --rank)
    if (const std::string &text = all[size_t(rank)]; !text.empty())
      firstNonFinite = run.ranks.size() > 1
                           ? text + " on rank " + std::to_string(rank)
                           : text;
  if (firstNonFinite.empty()) {
    NSA_ASSIGN_OR_RETURN(std::string largest, largestGradient(run.model));
    firstNonFinite = std::isfinite(record.loss)
                         ? "the norm overflows, most in " + largest
                         : "the loss, while every gradient is finite";
  }
  run.journal.publish({.step = record.step,
                       .heartbeat = "nan_loss: " + firstNonFinite,
                       .record = &record,
                       .anomaly = AnomalyKind::NanLoss});
  if (!run.ranks.isFirst())
    return TrainEnd::NonFinite;
  run.journal.say("step " + std::to_string(record.step) + ": loss " +
                  shortest(record.loss) + ", gradient norm " +
                  shortest(record.gradNorm) +
                  "; first tensor that is not finite: " + firstNonFinite);
  run.journal.say("the update was not applied; last good checkpoint: " +
                  run.saved.name());
  return TrainEnd::NonFinite;
}

Status StepLoop::dumpState(const StepRecord &record) {
  Json json;
  json["step"] = record.step;
  json["samples"] = run.state.samples;
  if (run.data.sources.empty())
    json["epoch"] = sampler->epoch(run.state.samples);
  json["loss"] = record.loss;
  json["grad_norm"] = record.gradNorm;
  json["lr"] = record.lr;
  json["toks_per_s"] = record.toksPerSecond;
  ProcessMemory memory = processMemory();
  json["memory"] = memory.resident;
  json["memory_peak"] = memory.peak;
  json["last_checkpoint"] = run.saved.path;
  // Parameters come to where a save may read them.
  saver.join();
  for (const TensorView &tensor :
       tensorsOfRole(run.model, TensorRole::Parameter)) {
    // This rank has a part only.
    if (tensor.sharded)
      continue;
    NSA_RETURN_IF_ERROR(run.model.toHost(tensor));
    double squares = 0;
    for (uint64_t i = 0, count = tensor.elements(); i < count; ++i) {
      double value = elementAt(tensor, i);
      squares += value * value;
    }
    json["parameter_norms"][tensor.name] = std::sqrt(squares);
  }
  std::string name = "state_dump_" + std::to_string(record.step) + ".json";
  Status written =
      run.journal.directory().write(name, jsonText(json, 2) + "\n");
  run.journal.noteWrite(written);
  if (written)
    run.journal.say("wrote " + run.journal.directory().file(name));
  return {};
}

} // namespace nsa
