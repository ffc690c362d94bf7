//===- TrainerFinish.cpp - around and after the steps ---------------------===//

#include "lib/Support/Json.h"
#include "lib/Support/Text.h"
#include "runtime/Train/Environment.h"
#include "runtime/Train/SampleText.h"
#include "runtime/Train/Trainer.h"

#include <cinttypes>
#include <cmath>

namespace nsa {

using Json = nlohmann::ordered_json;

Status Trainer::dumpState(const StepRecord &record) {
  Json json;
  json["step"] = record.step;
  json["samples"] = state.samples;
  if (data.sources.empty())
    json["epoch"] = sampler->epoch(state.samples);
  json["loss"] = record.loss;
  json["grad_norm"] = record.gradNorm;
  json["lr"] = record.lr;
  json["toks_per_s"] = record.toksPerSecond;
  ProcessMemory memory = processMemory();
  json["memory"] = memory.resident;
  json["memory_peak"] = memory.peak;
  json["last_checkpoint"] = lastCheckpoint;
  // Parameters come to where a save may read them.
  writer.join();
  for (const TensorView &tensor : tensorsOfRole(model, TensorRole::Parameter)) {
    NSA_RETURN_IF_ERROR(model.toHost(tensor));
    double squares = 0;
    for (uint64_t i = 0, count = tensor.elements(); i < count; ++i) {
      double value = elementAt(tensor, i);
      squares += value * value;
    }
    json["parameter_norms"][tensor.name] = std::sqrt(squares);
  }
  std::string name = "state_dump_" + std::to_string(record.step) + ".json";
  Status written = directory->write(name, jsonText(json, 2) + "\n");
  noteWrite(written);
  if (written)
    console.line("wrote " + directory->file(name));
  return {};
}

Status Trainer::showSample(const std::string &title, double secondsAllowed) {
  const TrainConfig &train = config.train;
  if (train.sampleBytes == 0 || !ranks.isFirst())
    return {};
  if (!tokenizer) {
    bool isText =
        data.manifest.kind == "text" || data.manifest.isOfUnknownTokenizer();
    console.line("no sample " + title +
                 (isText ? ": what the " +
                               grouped(uint64_t(data.manifest.vocabSize)) +
                               " tokens of the data stand for is not known"
                         : ": the data is not text but " + data.manifest.kind));
    return {};
  }
  SampleOptions sample = makeSampleOptions(train, state.step);
  sample.end = state.endOfText >= 0 ? state.endOfText : tokenizer->endOfText();
  console.busy("sampling");
  double begin = steadyClock(), end = begin + secondsAllowed;
  bool cut = false;
  Result<SampleText> made = generate(model, binding, *tokenizer, sample, [&] {
    cut = cut || steadyClock() >= end;
    return !cut && !signals.stopRequested();
  });
  if (!made)
    return made.takeError();
  sampleSeconds += steadyClock() - begin;
  std::string heading =
      "sample " + title + " (step " + std::to_string(state.step) +
      (cut            ? ", cut short to save time"
       : made->isFull ? ", cut short: the artefact takes no more tokens"
                      : "") +
      "):";
  console.line(heading);
  console.line("| " + [&] {
    std::string shown = printable(made->text);
    for (size_t at = 0; (at = shown.find('\n', at)) != std::string::npos;)
      shown.replace(at, 1, "\n| "), at += 3;
    return shown;
  }());
  noteWrite(writeSample("== " + heading + "\n" + made->text + "\n"));
  return {};
}

Status Trainer::writeSample(const std::string &text) {
  Result<OutputFile> file = OutputFile::append(directory->file("samples.txt"));
  return file ? file->write(text) : file.takeError();
}

//===----------------------------------------------------------------------===//
// After the last step
//===----------------------------------------------------------------------===//

/// Leaves the run, which is saved, to the trainer of the next stage.
Status Trainer::endStage() {
  NSA_RETURN_IF_ERROR(evaluateBeforeSwitch());
  NSA_RETURN_IF_ERROR(directory->check());
  noteWrite(log->logHeartbeat(state.step, endName(TrainEnd::StageEnded)));
  for (const Status &status : log->finish())
    warn(status.message());
  console.line(describeStage(config, options.stage) + ": ended at step " +
               std::to_string(state.step));
  if (Status status = console.finish(); !status)
    warn(status.message());
  return ranks.synchronizeStatus("the end of the stage", {});
}

Status Trainer::finish(TrainEnd end) {
  if (end == TrainEnd::Finished) {
    NSA_RETURN_IF_ERROR(finalEvaluation());
    NSA_RETURN_IF_ERROR(showSample("after training", 30.0));
  }
  NSA_RETURN_IF_ERROR(directory->check());
  if (ranks.isFirst())
    NSA_RETURN_IF_ERROR(writeMetrics(end));
  noteWrite(log->logHeartbeat(state.step, endName(end)));
  for (const Status &status : log->finish())
    warn(status.message());
  if (Status status = console.finish(); !status)
    warn(status.message());
  printSummary(end);
  if (!ranks.stopReason().empty()) {
    ranks.awaitEnd();
    return {};
  }
  // Where ranks end with another code than 0, what started them may kill the
  // rest. After the last step rank 0 may evaluate for long, and no rank waits.
  return end == TrainEnd::Finished ? Status()
                                   : ranks.synchronizeStatus("the end", {});
}

Status Trainer::writeMetrics(TrainEnd end) const {
  Json json;
  json["end"] = endName(end);
  json["step"] = state.step;
  json["tokens"] = state.samples * uint64_t(plan.seqLen);
  json["train_loss"] = lastLoss;
  json["train_loss_mean"] = recentLoss.mean();
  json["loss_unit"] = data.manifest.lossUnit();
  int64_t steps = state.step - firstStep;
  json["seconds"] = steadyClock() - started;
  json["step_seconds"] = stepSeconds;
  json["data_seconds"] = dataSeconds;
  json["save_seconds"] = saveSeconds;
  json["sample_seconds"] = sampleSeconds;
  if (stepSeconds > 0)
    json["toks_per_s"] =
        double(steps) * double(plan.tokensPerStep()) / stepSeconds;
  if (utilization.flops > 0)
    json["flops_per_step"] = utilization.flops;
  if (std::optional<double> mfu = utilization.of(double(steps), stepSeconds)) {
    json["peak_flops"] = utilization.peak;
    json["mfu"] = *mfu;
  }
  if (binding.skippedUpdates)
    json["skipped_updates"] = *binding.skippedUpdates;
  json["parameters"] = parameterCount(model);
  json["memory_peak"] = processMemory().peak;
  if (MemoryUse use = model.memory(); use.inUse > 0) {
    json["gpu_memory_planned"] = use.plannedBytes();
    json["gpu_memory"] = use.inUse;
  }
  json["checkpoint"] = lastCheckpoint;
  if (final) {
    json["val_loss"] = final->loss;
    json["val_ppl"] = std::exp(final->loss);
    json["val_tokens"] = final->tokens;
    if (final->bitsPerByte)
      json["val_bits_per_byte"] = *final->bitsPerByte;
    if (final->bitsPerByte && !tokenizer->changes().empty())
      json["val_text_after"] = tokenizer->changes();
    if (final->order1) {
      json["ngram_order1"] = *final->order1;
      json["ngram_order2"] = *final->order2;
    }
  }
  if (std::optional<double> entropy = data.manifest.fact("entropy"))
    json["source_entropy"] = *entropy;
  return directory->write("metrics.json", jsonText(json, 2) + "\n");
}

void Trainer::printSummary(TrainEnd end) {
  int64_t steps = state.step - firstStep;
  double speed =
      stepSeconds > 0
          ? double(steps) * double(plan.tokensPerStep()) / stepSeconds
          : 0.0;
  console.line(formatted("%s at step %" PRId64 " of %" PRId64
                         " | %.0f toks/s | %s in steps, %s in all",
                         endName(end), state.step, config.train.steps, speed,
                         Console::duration(stepSeconds).c_str(),
                         Console::duration(steadyClock() - started).c_str()));
  console.line("run directory: " + directory->path());
  if (failedSaves > 0)
    console.line("saves that failed for lack of room: " +
                 std::to_string(failedSaves));
  for (const std::string &warning : warnings)
    console.line("warning: " + warning);
  if (!final)
    return;
  if (!final->ngramNote.empty())
    console.line(final->ngramNote);
  if (std::optional<double> entropy = reachableEntropy(
          data.manifest, plan.seqLen, config.data.window == "document",
          config.data.isolateDocuments, config.data.targets == "marked")) {
    console.line(
        formatted("source entropy %.4f nats/token, the model is %.4f above",
                  *entropy, final->loss - *entropy));
  } else if (data.manifest.fact("entropy")) {
    console.line("the source's entropy is that of whole documents, which "
                 "windows of " +
                 std::to_string(plan.seqLen) +
                 " tokens do not show (data.window: document, and a multiple "
                 "of their length)");
  }
  std::string last = formatted("validation loss %.4f %s", final->loss,
                               data.manifest.lossUnit());
  if (final->bitsPerByte)
    last += bitsText(*final->bitsPerByte);
  if (final->order1)
    last += formatted(" (order-1 %.4f, order-2 %.4f)", *final->order1,
                      *final->order2);
  console.line(last);
}

} // namespace nsa
