//===- Trainer.cpp - one run of training ----------------------------------===//

#include "runtime/Train/Trainer.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/Train/Environment.h"
#include "runtime/Train/Preflight.h"

#include <cinttypes>
#include <cmath>

namespace nsa {

using Json = nlohmann::ordered_json;

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
  if (!session.finishedRun().empty()) {
    context.journal.say(session.finishedRun());
    return TrainEnd::Finished;
  }
  Result<TrainEnd> end = takeSteps();
  if (end)
    return end;
  // What --check-finite and --no-graph stop at is a planned end too.
  std::string found = context.ranks.stopReason();
  if (context.model.foundNonFinite()) {
    found = end.message();
    if (context.ranks.size() > 1)
      found += " on rank " + std::to_string(context.ranks.rank());
    context.ranks.stop(found);
  }
  if (found.empty())
    return end;
  steps.reportStopped(found);
  NSA_RETURN_IF_ERROR(finish(TrainEnd::NonFinite));
  return TrainEnd::NonFinite;
}

Result<TrainEnd> Trainer::takeSteps() {
  if (context.state.step < context.lastStep() && context.options.stage == 0)
    NSA_RETURN_IF_ERROR(sampleWriter.show("before training", 3.0));
  NSA_RETURN_IF_ERROR(evaluator.evaluateAfterSwitch());
  NSA_ASSIGN_OR_RETURN(TrainEnd end, steps.loop());
  if (end == TrainEnd::StageEnded)
    NSA_RETURN_IF_ERROR(endStage());
  else
    NSA_RETURN_IF_ERROR(finish(end));
  return end;
}

//===----------------------------------------------------------------------===//
// Before the first step
//===----------------------------------------------------------------------===//

Status Trainer::openText() {
  NSA_ASSIGN_OR_RETURN(context.tokenizer,
                       checkVocabulary(context.data,
                                       context.config.data.tokenizer,
                                       context.binding.vocab));
  if (context.tokenizer)
    context.state.tokenizerHash = context.tokenizer->hash();
  context.state.endOfText = context.data.manifest.endOfText;
  return sampleWriter.check();
}

Status Trainer::prepare() {
  NSA_ASSIGN_OR_RETURN(context.binding, TrainBinding::create(context.model));
  NSA_ASSIGN_OR_RETURN(context.statistics,
                       StatisticsBinding::create(context.model));
  NSA_ASSIGN_OR_RETURN(
      context.plan, planBatch(context.config.train, context.binding.microBatch,
                              context.binding.seqLen, context.ranks.size()));
  if (context.binding.sequenceRanks != context.plan.ranksOfGroup)
    return Error{"train.context_parallel is " +
                 std::to_string(context.plan.ranksOfGroup) +
                 ", the artefact was compiled for " +
                 std::to_string(context.binding.sequenceRanks) +
                 " (nsa-compile --context-parallel)"};
  NSA_RETURN_IF_ERROR(openText());
  // Checkpoints say it: that they cannot must not come out after hours.
  if (Result<std::vector<StateRange>> kept =
          context.model.stateRanges(context.ranks.rank());
      !kept)
    return kept.takeError();
  context.state.seed = uint64_t(context.config.train.seed);
  context.state.artefactHash = context.model.hash();
  context.state.dataDigest = context.data.digest();
  NSA_RETURN_IF_ERROR(checkSameRun());
  bool isIsolated = context.binding.starts != nullptr;
  if (isIsolated != context.config.data.isolateDocuments)
    return Error{std::string("data.isolate_documents is ") +
                 (isIsolated ? "false" : "true") +
                 ", the artefact was compiled from a model with " +
                 (isIsolated ? "true" : "false")};
  NSA_RETURN_IF_ERROR(steps.open());
  NSA_RETURN_IF_ERROR(evaluator.open());
  NSA_RETURN_IF_ERROR(evaluator.checkTargets());
  NSA_RETURN_IF_ERROR(guard.verifyAtStart());
  NSA_RETURN_IF_ERROR(context.model.run(training::initEntry));
  context.state.history.setBatch(
      0, 0, context.plan.sequencesPerStep(),
      context.config.stages.empty() ? 0 : context.plan.seqLen);
  context.state.history.setData(0, context.state.dataDigest);
  NSA_RETURN_IF_ERROR(session.loadInitial());
  if (Status status = session.open(); !status || !session.finishedRun().empty())
    return status;
  if (context.model.hasEntry(training::scatterEntry))
    NSA_RETURN_IF_ERROR(context.model.run(training::scatterEntry));
  discardSharded(context.model);
  context.firstStep = context.state.step;
  NSA_RETURN_IF_ERROR(steps.prepare());
  printHeader();
  return {};
}

/// Ranks that do not run the same program on the same data with the same
/// configuration are no run.
Status Trainer::checkSameRun() {
  std::vector<std::pair<std::string, std::string>> all = {
      {"the artefact", toHex(context.state.artefactHash)},
      {"the configuration", configHash(context.config)},
      {"the data", toHex(context.state.dataDigest)},
      // It decides which reductions there are, and when.
      {"--separate-update", context.options.separateUpdate ? "on" : "off"},
      // Rank 0 decides for all: of another one these would have no effect.
      {"--stop-after", std::to_string(context.options.stopAfter)},
      {"--resume",
       context.options.resume.empty() ? "none" : context.options.resume},
      {"--run-name",
       context.options.runName.empty() ? "none" : context.options.runName},
      {"--init-from",
       context.options.initFrom.empty() ? "none" : context.options.initFrom},
      {"--init-partial", context.options.initPartial ? "on" : "off"},
      {"--allow-changed-batch",
       context.options.allowChangedBatch ? "on" : "off"},
      {"--allow-changed-data",
       context.options.allowChangedData ? "on" : "off"}};
  all.insert(all.end(), context.options.sameOnAllRanks.begin(),
             context.options.sameOnAllRanks.end());
  for (const auto &[what, value] : all)
    NSA_RETURN_IF_ERROR(context.ranks.checkSame(what, value));
  return {};
}

/// The resolved configuration, one line per section.
static std::vector<std::string> configLines(const RunConfig &config) {
  std::vector<std::string> lines;
  std::string text = printConfigYaml(config);
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    std::string line = text.substr(at, end - at);
    if (line[0] != ' ')
      lines.push_back("config " + line);
    else
      lines.back() +=
          (lines.back().back() == ':' ? " " : ", ") + line.substr(2);
    at = end + 1;
  }
  return lines;
}

void Trainer::printHeader() {
  context.journal.say(
      "run " + context.journal.directory().path() + " | id " +
      context.journal.directory().id() + " | config " +
      context.options.configPath + " " + configHash(context.config) +
      " | artefact " + toHex(context.state.artefactHash) + " | data " +
      context.data.name() + " " + toHex(context.state.dataDigest));
  for (const std::string &line : configLines(context.config))
    context.journal.say(line);
  context.journal.sayNotes();
  if (context.ranks.isFirst())
    saver.checkSpace();
  context.journal.sayWarnings();
  if (!context.config.stages.empty())
    context.journal.say(describeStage(context.config, context.options.stage));
  uint64_t lastSample = context.state.samples +
                        uint64_t(context.lastStep() - context.state.step) *
                            uint64_t(context.plan.sequencesPerStep());
  auto describeEpochs = [&](size_t source) {
    return formatted("%.2f epochs",
                     steps.trainSampler().epochs(lastSample, source));
  };
  double weights = 0;
  for (const DataSource &source : context.data.sources)
    weights += source.weight;
  for (size_t i = 0; i < context.data.sources.size(); ++i)
    context.journal.say(
        "source " + context.data.sources[i].name + ": " +
        shortest(std::round(1e4 * context.data.sources[i].weight / weights) /
                 100) +
        " % of the samples, " + grouped(context.data.sources[i].tokens) +
        " training tokens, " + describeEpochs(i));
  context.journal.say(
      grouped(parameterCount(context.model)) + " parameters | " +
      grouped(uint64_t(context.plan.tokensPerStep())) + " tokens per step = " +
      (context.plan.groups > 1
           ? std::to_string(context.plan.groups) +
                 (context.plan.ranksOfGroup > 1 ? " groups of " : " ranks x ")
           : "") +
      (context.plan.ranksOfGroup > 1
           ? std::to_string(context.plan.ranksOfGroup) +
                 " ranks for each sequence: "
           : "") +
      std::to_string(context.plan.passes) + " x " +
      std::to_string(context.plan.microBatch) + " sequences of " +
      std::to_string(context.plan.seqLen) + " | " +
      grouped(context.data.train.size()) + " training and " +
      grouped(context.data.val.size()) + " validation tokens | " +
      std::to_string(context.lastStep()) + " steps" +
      (context.data.sources.empty() ? " = " + describeEpochs(0) : ""));
  for (const std::string &line : describeMemory(context.model.memory()))
    context.journal.say(line);
  if (steps.deviceUse().flops > 0) {
    std::string line =
        formatted("a step executes %.4g floating-point operations on each rank",
                  double(steps.deviceUse().flops));
    if (steps.deviceUse().peak > 0) {
      line +=
          formatted(" | mfu is of %.4g TFLOP/s", steps.deviceUse().peak / 1e12);
    } else if (context.config.runtime.device == "cuda") {
      line += " | no mfu: the peak of this device is not known "
              "(runtime.peak_tflops)";
    }
    context.journal.say(line);
  }
  context.journal.say("to stop: Ctrl-C, or echo " +
                      context.journal.directory().id() + " > " +
                      context.journal.directory().file(".HALT"));
  context.journal.heartbeat(context.state.step, "start");
}

//===----------------------------------------------------------------------===//
// After the last step
//===----------------------------------------------------------------------===//

/// Leaves the run, which is saved, to the trainer of the next stage.
Status Trainer::endStage() {
  NSA_RETURN_IF_ERROR(evaluator.evaluateBeforeSwitch());
  NSA_RETURN_IF_ERROR(context.journal.directory().check());
  context.journal.heartbeat(context.state.step, endName(TrainEnd::StageEnded));
  context.journal.say(describeStage(context.config, context.options.stage) +
                      ": ended at step " + std::to_string(context.state.step));
  context.journal.finish();
  return context.ranks.synchronizeStatus("the end of the stage", {});
}

Status Trainer::finish(TrainEnd end) {
  if (end == TrainEnd::Finished) {
    NSA_RETURN_IF_ERROR(evaluator.evaluateAtEnd());
    NSA_RETURN_IF_ERROR(sampleWriter.show("after training", 30.0));
  }
  NSA_RETURN_IF_ERROR(context.journal.directory().check());
  if (context.ranks.isFirst())
    NSA_RETURN_IF_ERROR(writeMetrics(end));
  context.journal.heartbeat(context.state.step, endName(end));
  context.journal.finish();
  printSummary(end);
  if (!context.ranks.stopReason().empty()) {
    context.ranks.awaitEnd();
    return {};
  }
  // Where ranks end with another code than 0, what started them may kill the
  // rest. After the last step rank 0 may evaluate for long, and no rank waits.
  return end == TrainEnd::Finished
             ? Status()
             : context.ranks.synchronizeStatus("the end", {});
}

Status Trainer::writeMetrics(TrainEnd end) const {
  const std::optional<FinalLosses> &final = evaluator.finalLosses();
  Json json;
  json["end"] = endName(end);
  json["step"] = context.state.step;
  json["tokens"] = context.state.samples * uint64_t(context.plan.seqLen);
  json["train_loss"] = steps.lastTrainLoss();
  json["train_loss_mean"] = steps.meanTrainLoss();
  json["loss_unit"] = context.data.manifest.lossUnit();
  int64_t count = context.state.step - context.firstStep;
  json["seconds"] = steadyClock() - started;
  json["step_seconds"] = steps.stepTimes().all;
  json["data_seconds"] = steps.stepTimes().data;
  json["save_seconds"] = saver.seconds();
  json["sample_seconds"] = sampleWriter.seconds();
  if (steps.stepTimes().all > 0)
    json["toks_per_s"] = double(count) * double(context.plan.tokensPerStep()) /
                         steps.stepTimes().all;
  if (steps.deviceUse().flops > 0)
    json["flops_per_step"] = steps.deviceUse().flops;
  if (std::optional<double> mfu =
          steps.deviceUse().of(double(count), steps.stepTimes().all)) {
    json["peak_flops"] = steps.deviceUse().peak;
    json["mfu"] = *mfu;
  }
  if (context.binding.skippedUpdates)
    json["skipped_updates"] = *context.binding.skippedUpdates;
  json["parameters"] = parameterCount(context.model);
  json["memory_peak"] = processMemory().peak;
  if (MemoryUse use = context.model.memory(); use.inUse > 0) {
    json["gpu_memory_planned"] = use.plannedBytes();
    json["gpu_memory"] = use.inUse;
  }
  json["checkpoint"] = context.saved.path;
  if (final) {
    json["val_loss"] = final->loss;
    json["val_ppl"] = std::exp(final->loss);
    json["val_tokens"] = final->tokens;
    if (final->bitsPerByte)
      json["val_bits_per_byte"] = *final->bitsPerByte;
    if (final->bitsPerByte && !context.tokenizer->changes().empty())
      json["val_text_after"] = context.tokenizer->changes();
    if (final->order1) {
      json["ngram_order1"] = *final->order1;
      json["ngram_order2"] = *final->order2;
    }
  }
  if (std::optional<double> entropy = context.data.manifest.fact("entropy"))
    json["source_entropy"] = *entropy;
  return context.journal.directory().write("metrics.json",
                                           jsonText(json, 2) + "\n");
}

void Trainer::printSummary(TrainEnd end) {
  const std::optional<FinalLosses> &final = evaluator.finalLosses();
  int64_t count = context.state.step - context.firstStep;
  double speed = steps.stepTimes().all > 0
                     ? double(count) * double(context.plan.tokensPerStep()) /
                           steps.stepTimes().all
                     : 0.0;
  context.journal.say(
      formatted("%s at step %" PRId64 " of %" PRId64
                " | %.0f toks/s | %s in steps, %s in all",
                endName(end), context.state.step, context.config.train.steps,
                speed, Console::duration(steps.stepTimes().all).c_str(),
                Console::duration(steadyClock() - started).c_str()));
  const std::string &path = context.journal.directory().path();
  context.journal.say("run directory: " + path);
  if (end == TrainEnd::Halted || end == TrainEnd::Interrupted)
    context.journal.say("to go on: the same command with --resume " + path);
  if (saver.failures() > 0)
    context.journal.say("saves that failed for lack of room: " +
                        std::to_string(saver.failures()));
  context.journal.sayWarnings();
  if (!final)
    return;
  if (!final->ngramNote.empty())
    context.journal.say(final->ngramNote);
  if (std::optional<double> entropy =
          reachableEntropy(context.data.manifest, context.plan.seqLen,
                           context.config.data.window == "document",
                           context.config.data.isolateDocuments,
                           context.config.data.targets == "marked")) {
    context.journal.say(
        formatted("source entropy %.4f nats/token, the model is %.4f above",
                  *entropy, final->loss - *entropy));
  } else if (context.data.manifest.fact("entropy")) {
    context.journal.say(
        "the source's entropy is that of whole documents, which "
        "windows of " +
        std::to_string(context.plan.seqLen) +
        " tokens do not show (data.window: document, and a multiple "
        "of their length)");
  }
  std::string last = formatted("validation loss %.4f %s", final->loss,
                               context.data.manifest.lossUnit());
  if (final->bitsPerByte)
    last += evaluator.bitsText(*final->bitsPerByte);
  if (final->order1)
    last += formatted(" (order-1 %.4f, order-2 %.4f)", *final->order1,
                      *final->order2);
  context.journal.say(last);
}

} // namespace nsa
