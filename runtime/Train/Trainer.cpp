//===- Trainer.cpp - the training loop ------------------------------------===//

#include "runtime/Train/Trainer.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace nsa {

const char *endName(TrainEnd end) {
  switch (end) {
  case TrainEnd::Finished:
    return "finished";
  case TrainEnd::StageEnded:
    return "stage_ended";
  case TrainEnd::Halted:
    return "halted";
  case TrainEnd::Interrupted:
    return "interrupted";
  case TrainEnd::NonFinite:
    return "nan_loss";
  }
  return "finished";
}

Result<TrainEnd> Trainer::run() {
  started = steadyClock();
  NSA_RETURN_IF_ERROR(prepare());
  if (!finishedRun.empty()) {
    console.line(finishedRun);
    return TrainEnd::Finished;
  }
  Result<TrainEnd> end = trainAndFinish();
  if (end)
    return end;
  // What --check-finite and --no-graph stop at is a planned end too.
  if (model.foundNonFinite())
    return stopAll(end.message());
  if (std::string why = ranks.stopReason(); !why.empty())
    return reportStopped(why);
  return end;
}

Result<TrainEnd> Trainer::trainAndFinish() {
  if (state.step < lastStep() && options.stage == 0)
    NSA_RETURN_IF_ERROR(showSample("before training", 3.0));
  NSA_RETURN_IF_ERROR(evaluateAfterSwitch());
  Result<TrainEnd> end = loop();
  if (!end)
    return end;
  if (*end == TrainEnd::StageEnded) {
    NSA_RETURN_IF_ERROR(endStage());
    return end;
  }
  NSA_RETURN_IF_ERROR(finish(*end));
  return end;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Result<StepRecord> Trainer::runStep() {
  double begin = steadyClock();
  auto waitedSeconds = [&] {
    return ranks.waitedSeconds() + model.waitedSeconds();
  };
  double waited = waitedSeconds();
  std::array<float, training::numHyper> hyper =
      hyperParameters(config.train, state.step);
  std::memcpy(binding.hyper, hyper.data(), sizeof hyper);
  // `step` is an accumulation with the update after it: in the last pass,
  // reductions over ranks run beside backward.
  bool fused = usesStep();
  samples.advance();
  for (int64_t pass = 0; pass < plan.passes; ++pass) {
    samples.load(pass, binding);
    bool last = pass + 1 == plan.passes;
    NSA_RETURN_IF_ERROR(model.start(fused && last ? training::stepEntry
                                                  : training::accumulateEntry));
  }
  if (!fused)
    NSA_RETURN_IF_ERROR(model.start(training::updateEntry));
  // A GPU is at work meanwhile. What fails is for after the step.
  if (state.step + 1 < lastStep())
    (void)samples.readAhead(state.samples + uint64_t(plan.sequencesPerStep()));
  // The one wait of a step, for the few numbers that it leaves.
  NSA_RETURN_IF_ERROR(
      model.finish(fused ? training::stepEntry : training::updateEntry));
  StepRecord record;
  record.step = state.step + 1;
  record.dataSeconds = samples.seconds();
  dataSeconds += record.dataSeconds;
  record.hasTargets = *binding.fractionSum > 0;
  record.loss = *binding.lossSum / *binding.fractionSum;
  record.lr = learningRate(config.train, state.step);
  record.gradNorm = *binding.gradNorm / *binding.fractionSum;
  if (binding.lossScale)
    record.lossScale = *binding.lossScale;
  addSeconds(record, steadyClock() - begin);
  if (ranks.size() > 1)
    record.ownSeconds = record.seconds - (waitedSeconds() - waited);
  ++recentSteps;
  return record;
}

/// Counts time as a part of a step.
void Trainer::addSeconds(StepRecord &record, double seconds) {
  record.seconds += seconds;
  record.toksPerSecond = double(plan.tokensPerStep()) / record.seconds;
  stepSeconds += seconds;
  recentSeconds += seconds;
}

//===----------------------------------------------------------------------===//
// What goes wrong and does not end the run
//===----------------------------------------------------------------------===//

/// Says once what is wrong, and again at the end.
void Trainer::warn(const std::string &text) {
  if (std::find(warnings.begin(), warnings.end(), text) != warnings.end())
    return;
  warnings.push_back(text);
  if (!ranks.isFirst())
    std::fprintf(stderr, "nsa-train: warning: rank %d: %s\n", ranks.rank(),
                 text.c_str());
  else if (hasHeader)
    console.line("warning: " + text);
}

/// A record that could not be written, of which no weight depends.
void Trainer::noteWrite(const Status &status) {
  if (!status)
    warn(status.message() + "; training goes on");
}

bool Trainer::isLogged(int64_t step) const {
  return step % config.train.logEvery == 0 || step == firstStep + 1 ||
         step == lastStep();
}

/// Statistics of the last pass, with the new weights: `eval` computes what
/// training leaves out, and changes nothing that lasts.
Status Trainer::addStatistics(StepRecord &record) {
  if (statistics.empty() || !isLogged(record.step))
    return {};
  NSA_RETURN_IF_ERROR(model.run(training::evalEntry));
  record.attention = statistics.read();
  return {};
}

void Trainer::reportAnomaly(const Anomaly &anomaly, int64_t step) {
  std::string name = anomalyName(anomaly.kind);
  console.line("anomaly " + name + " at step " + std::to_string(step) + ": " +
               anomaly.text);
  noteWrite(log->logHeartbeat(step, name + ": " + anomaly.text));
  if (ranks.isFirst())
    noteWrite(writeAnomaly(anomaly.kind));
}

/// Whether the gradients were too large for f16 at the scale of the step, and a
/// smaller one is left to try. The device has updated nothing then.
static bool isOverflow(const StepRecord &record) {
  return std::isfinite(record.loss) && !std::isfinite(record.gradNorm) &&
         record.lossScale >= 1;
}

Status Trainer::afterStep(StepRecord record) {
  NSA_RETURN_IF_ERROR(addStatistics(record));
  uint64_t epoch = sampler->epoch(state.samples);
  state.step = record.step;
  state.samples += uint64_t(plan.sequencesPerStep());
  if (record.hasTargets)
    lastLoss = record.loss;
  else
    console.line("step " + std::to_string(record.step) +
                 ": no token of its sequences has a target, no update");
  bool overflow = isOverflow(record);
  if (overflow)
    console.line("step " + std::to_string(record.step) +
                 ": gradients beyond fp16 at loss scale " +
                 shortest(2 * record.lossScale) + ", no update; now " +
                 shortest(record.lossScale));
  record.mfu = utilization.of(1, record.seconds);
  noteWrite(log->step(record, overflow            ? "overflow"
                              : record.hasTargets ? "step"
                                                  : "no_targets"));
  bool logged = isLogged(record.step);
  showProgress(record, logged);
  if (logged && ranks.size() > 1)
    console.line("step " + std::to_string(record.step) + ": ranks differ by " +
                 shortest(std::round(1000 * recentSpread) / 10) +
                 " % of a step at most, rank " + std::to_string(slowestRank) +
                 " is the slowest");
  if (logged) {
    recentSeconds = 0;
    recentSteps = 0;
    recentSpread = 0;
  }
  for (const Anomaly &anomaly : monitor.update(record))
    reportAnomaly(anomaly, state.step);
  if (uint64_t used = sampler->epoch(state.samples);
      used != epoch && data.sources.empty())
    console.line("epoch " + std::to_string(used + 1) + " begins after step " +
                 std::to_string(record.step) +
                 ": the training split was used " +
                 (used == 1 ? "once" : std::to_string(used) + " times"));
  if (signals.takeDumpRequest() && ranks.isFirst())
    return dumpState(record);
  return {};
}

void Trainer::showProgress(const StepRecord &record, bool logged) {
  double perStep = stepSeconds / double(state.step - firstStep);
  Progress shown = {record.step,
                    config.train.steps,
                    record.loss,
                    record.lr,
                    double(plan.tokensPerStep()) * double(recentSteps) /
                        recentSeconds,
                    perStep * double(config.train.steps - record.step)};
  if (record.hasTargets)
    recentLoss.add(record.loss);
  shown.meanLoss = recentLoss.mean();
  if (bytesPerToken > 0)
    shown.bitsPerByte = *shown.meanLoss / std::log(2.0) / bytesPerToken;
  shown.mfu = utilization.of(double(recentSteps), recentSeconds);
  console.progress(shown, logged);
}

std::optional<TrainEnd> Trainer::stopReason() {
  if (int signal = signals.stopRequested()) {
    console.line(std::string("stopping after ") + strsignal(signal));
    return TrainEnd::Interrupted;
  }
  if (!ranks.isFirst())
    return std::nullopt;
  HaltRequest request = directory->checkHalt();
  if (!request.ignored.empty())
    console.line(request.ignored);
  if (request.halt) {
    directory->clearHalt();
    return TrainEnd::Halted;
  }
  if (options.stopAfter > 0 && state.step + 1 - firstStep >= options.stopAfter)
    return TrainEnd::Halted;
  return std::nullopt;
}

Result<TrainEnd> Trainer::loop() {
  const TrainConfig &train = config.train;
  Anomaly stall{AnomalyKind::HeartbeatStall,
                "a step took more than " + shortest(options.stallSeconds) +
                    " seconds"};
  // People see the file while the step hangs, the console line only after it.
  Watchdog watchdog(options.stallSeconds, [&] {
    if (ranks.isFirst())
      (void)directory->write(".anomaly_type",
                             std::string(anomalyName(stall.kind)) + "\n");
  });
  if (state.step < lastStep())
    NSA_RETURN_IF_ERROR(ranks.synchronizeStatus(
        "the first samples are read", samples.readAhead(state.samples)));
  lastSave = steadyClock();
  while (state.step < lastStep()) {
    watchdog.start();
    Result<StepRecord> record = runStep();
    bool stalled = watchdog.stop();
    if (!record)
      return record.takeError();
    if (stalled)
      reportAnomaly(stall, state.step + 1);
    bool finite =
        std::isfinite(record->loss) && std::isfinite(record->gradNorm);
    if (!finite && record->hasTargets && !isOverflow(*record))
      return reportNonFinite(*record);
    NSA_ASSIGN_OR_RETURN(std::optional<TrainEnd> stop,
                         synchronizeStep(*record));
    NSA_RETURN_IF_ERROR(directory->check());
    NSA_RETURN_IF_ERROR(afterStep(*record));
    if (isSaveWritten) {
      NSA_ASSIGN_OR_RETURN(std::optional<TrainEnd> end, continueSave());
      if (end)
        return *end;
    }
    if (dataHealth.failure != DataHealth::None)
      return endOnData();
    bool last = state.step == lastStep();
    if (state.step < train.steps && train.evalEvery > 0 &&
        state.step % train.evalEvery == 0)
      NSA_RETURN_IF_ERROR(validate());
    if (state.step < train.steps && train.sampleEvery > 0 &&
        state.step % train.sampleEvery == 0)
      NSA_RETURN_IF_ERROR(showSample("during training", 3.0));
    bool due = train.saveEvery > 0 && state.step % train.saveEvery == 0;
    if (last || stop || due || saveDueByTime) {
      NSA_ASSIGN_OR_RETURN(std::optional<TrainEnd> end, save(last || stop));
      if (end)
        return *end;
    }
    if (stop)
      return *stop;
  }
  return state.step < train.steps ? TrainEnd::StageEnded : TrainEnd::Finished;
}

} // namespace nsa
