//===- TrainerOpen.cpp - before the first step ----------------------------===//

#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/Train/Environment.h"
#include "runtime/Train/Preflight.h"
#include "runtime/Train/SampleText.h"
#include "runtime/Train/Trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <unistd.h>

namespace nsa {

Status Trainer::openText() {
  NSA_ASSIGN_OR_RETURN(
      tokenizer, checkVocabulary(data, config.data.tokenizer, binding.vocab));
  if (tokenizer)
    state.tokenizerHash = tokenizer->hash();
  state.endOfText = data.manifest.endOfText;
  return checkSamples();
}

/// Reports before training what configured samples will lack.
Status Trainer::checkSamples() {
  if (!tokenizer || config.train.sampleBytes == 0)
    return {};
  NSA_ASSIGN_OR_RETURN(
      std::string found,
      checkSample(binding, *tokenizer,
                  makeSampleOptions(config.train, /*step=*/0)));
  if (!found.empty())
    notes.push_back(found);
  return {};
}

Status Trainer::prepare() {
  NSA_ASSIGN_OR_RETURN(binding, TrainBinding::create(model));
  NSA_ASSIGN_OR_RETURN(statistics, StatisticsBinding::create(model));
  NSA_ASSIGN_OR_RETURN(plan, planBatch(config.train, binding.microBatch,
                                       binding.seqLen, ranks.size()));
  NSA_RETURN_IF_ERROR(openText());
  // Checkpoints say it: that they cannot must not come out after hours.
  if (Result<std::vector<StateRange>> kept = model.stateRanges(ranks.rank());
      !kept)
    return kept.takeError();
  state.seed = uint64_t(config.train.seed);
  state.artefactHash = model.hash();
  state.dataDigest = data.digest();
  NSA_RETURN_IF_ERROR(checkSameRun());
  NSA_ASSIGN_OR_RETURN(sampler,
                       TrainSampler::create(data, plan.seqLen, state.seed));
  NSA_ASSIGN_OR_RETURN(windows,
                       ValidationWindows::create(data.val, plan.seqLen));
  NSA_RETURN_IF_ERROR(openDocuments());
  NSA_RETURN_IF_ERROR(openMarks());
  NSA_RETURN_IF_ERROR(checkTargets());
  samples.start(*sampler, plan, ranks.rank(), binding.starts != nullptr);
  NSA_RETURN_IF_ERROR(verifyAtStart());
  NSA_RETURN_IF_ERROR(model.run(training::initEntry));
  state.history.setBatch(0, 0, plan.sequencesPerStep(),
                         config.stages.empty() ? 0 : plan.seqLen);
  state.history.setData(0, state.dataDigest);
  NSA_RETURN_IF_ERROR(loadInitial());
  if (Status status = openRun(); !status || !finishedRun.empty())
    return status;
  firstStep = state.step;
  NSA_RETURN_IF_ERROR(planMeasures());
  printHeader();
  return {};
}

/// The fields of progress lines besides the loss.
Status Trainer::planMeasures() {
  uint64_t passes = uint64_t(plan.passes) - usesStep();
  utilization.flops =
      passes * model.flops(training::accumulateEntry) +
      model.flops(usesStep() ? training::stepEntry : training::updateEntry);
  utilization.peak = config.runtime.peakTflops > 0
                         ? config.runtime.peakTflops * 1e12
                         : options.peakFlops;
  if (data.manifest.isBytes())
    bytesPerToken = 1;
  Status status;
  if (tokenizer && !data.manifest.isBytes() && ranks.isFirst()) {
    Result<TextSize> size = measureHeldOut(chooseWindows(config, *windows));
    if (size && size->targets > 0)
      bytesPerToken = double(size->bytes) / double(size->targets);
    status = size ? Status() : Error{size.message()};
  }
  return ranks.synchronizeStatus("the held-out text is measured", status);
}

/// Where the artefact takes the starts of documents, so must the configuration.
Status Trainer::openDocuments() {
  bool isIsolated = binding.starts != nullptr;
  if (isIsolated != config.data.isolateDocuments)
    return Error{std::string("data.isolate_documents is ") +
                 (isIsolated ? "false" : "true") +
                 ", the artefact was compiled from a model with " +
                 (isIsolated ? "true" : "false")};
  bool beginsAtThem = config.data.window == "document";
  if (!isIsolated && !beginsAtThem)
    return {};
  NSA_ASSIGN_OR_RETURN(Documents train, Documents::open(data.trainDocuments));
  NSA_ASSIGN_OR_RETURN(Documents val, Documents::open(data.valDocuments));
  trainDocuments = std::move(train);
  valDocuments = std::move(val);
  if (isIsolated) {
    sampler->isolate(trainDocuments);
    windows->isolate(valDocuments);
  }
  if (!beginsAtThem)
    return {};
  NSA_RETURN_IF_ERROR(sampler->beginAt(trainDocuments));
  return windows->beginAt(valDocuments);
}

Status Trainer::openMarks() {
  if (config.data.targets != "marked")
    return {};
  NSA_ASSIGN_OR_RETURN(TargetMarks train,
                       TargetMarks::open(data.trainDocuments));
  NSA_ASSIGN_OR_RETURN(TargetMarks val, TargetMarks::open(data.valDocuments));
  trainMarks = std::move(train);
  valMarks = std::move(val);
  sampler->countMarked(trainMarks);
  windows->countMarked(valMarks);
  return {};
}

/// Losses of splits whose tokens are all ignored would be means of nothing.
Status Trainer::checkTargets() const {
  bool isMarked = config.data.targets == "marked";
  if (!config.data.isolateDocuments && !isMarked)
    return {};
  std::string all = std::to_string(data.train.size());
  if (isMarked && !trainMarks.isAnySet())
    return Error{"the training split has no target: none of its " + all +
                 " tokens is marked, and data.targets is marked"};
  NSA_ASSIGN_OR_RETURN(bool trained, config.data.isolateDocuments
                                         ? trainDocuments.hasTargets(data.train)
                                         : Result<bool>(true));
  if (!trained)
    return Error{"the training split has no target: each of its " + all +
                 " tokens is the first of its document, and "
                 "data.isolate_documents is true"};
  if (config.train.evalEvery > 0)
    NSA_RETURN_IF_ERROR(checkTargets(chooseWindows(config, *windows)));
  return checkTargets(finalWindows());
}

/// The same of windows that are evaluated.
Status Trainer::checkTargets(const std::vector<uint64_t> &chosen) const {
  std::vector<int32_t> tokens(size_t(plan.seqLen)), targets = tokens,
                                                    starts = tokens;
  for (uint64_t window : chosen) {
    NSA_RETURN_IF_ERROR(
        windows->read(window, tokens.data(), targets.data(), starts.data()));
    if (std::any_of(targets.begin(), targets.end(),
                    [](int32_t target) { return target >= 0; }))
      return {};
  }
  return Error{"the validation split has no target in the " +
               std::to_string(chosen.size()) + " windows of " +
               std::to_string(plan.seqLen) +
               " tokens that are evaluated: each token is " +
               (config.data.targets == "marked"
                    ? "without a mark, and data.targets is marked"
                    : "the first of its document, and data.isolate_documents "
                      "is true")};
}

/// Decisions of the first rank for all.
struct Trainer::RunChoice {
  /// Of the checkpoint to continue from; empty to begin anew.
  std::string checkpoint;
  /// The same, where it was verified while it was chosen.
  std::optional<Checkpoint> opened;
  /// The run directory to begin in.
  std::string directory;
  /// That the run to go on with is finished; empty if it is not.
  std::string finished;
};

/// The checkpoint to go on from; no path if a new run begins.
Result<FoundCheckpoint> Trainer::findStart() {
  if (options.found)
    return *options.found;
  std::string from = options.resume;
  if (!options.restart.empty()) {
    NSA_ASSIGN_OR_RETURN(bool saved, hasCheckpoint(options.restart));
    from = saved ? options.restart : "";
  }
  if (from.empty())
    return FoundCheckpoint();
  return findResume(from, config,
                    [&](const std::string &folder, const TrainState &saved) {
                      return isOfThisRun(folder, saved);
                    });
}

Result<Trainer::RunChoice> Trainer::chooseRun() {
  RunChoice choice;
  NSA_ASSIGN_OR_RETURN(FoundCheckpoint found, findStart());
  for (const std::string &text : found.warnings)
    warn(text);
  choice.opened = std::move(found.opened);
  choice.checkpoint = found.path;
  choice.directory = options.restart;
  bool isNamed = options.restart.empty() && options.resume != "auto";
  if (!found.path.empty()) {
    NSA_RETURN_IF_ERROR(checkInRun(found.path));
    NSA_ASSIGN_OR_RETURN(TrainState saved, readTrainState(found.path));
    // Nothing is wrong with a finished run that was not asked for by name.
    if (!isNamed)
      choice.finished = describeFinished(found.path, saved, config);
    return choice;
  }
  if (!options.restart.empty())
    return choice;
  if (!isNamed)
    notes.push_back("resume auto: no checkpoint of these parameters and data "
                    "below '" +
                    config.train.outDir + "' (" + std::to_string(found.others) +
                    " of others), starting at step 0");
  std::string label = std::filesystem::path(options.configPath).stem();
  NSA_ASSIGN_OR_RETURN(
      RunDirectory created,
      RunDirectory::create(config.train.outDir, options.runName, label));
  choice.directory = created.path();
  return choice;
}

/// Makes this process, of the first rank, the only one that writes the run.
Status Trainer::lockRun(const RunChoice &choice) {
  std::string path = choice.directory;
  if (!choice.checkpoint.empty())
    path = runOf(choice.checkpoint);
  NSA_ASSIGN_OR_RETURN(FileLock taken, RunDirectory::lock(path));
  if (!taken.isHeld())
    notes.push_back("the file system of '" + path +
                    "' has no locks: no other process may continue this run");
  else
    for (const std::string &text : removeUnfinished(path))
      warn(text);
  lock.emplace(std::move(taken));
  return {};
}

/// Takes up the run that the first rank chose. The directory of a rank on a
/// machine with a file system of its own may have to be made.
Status Trainer::enterRun(const RunChoice &choice) {
  if (!choice.checkpoint.empty()) {
    if (Status status = resumeFrom(choice.checkpoint, choice.opened); !status)
      return status;
  } else {
    std::error_code code;
    std::filesystem::create_directories(choice.directory, code);
    NSA_ASSIGN_OR_RETURN(RunDirectory opened,
                         RunDirectory::reopen(choice.directory));
    directory = std::move(opened);
  }
  bool isComplete = state.step == config.train.steps;
  NSA_ASSIGN_OR_RETURN(RunLog opened,
                       RunLog::open(*directory, state.step, ranks.rank(),
                                    isComplete ? state.step - 1 : state.step));
  log.emplace(std::move(opened));
  for (float loss : log->lastLosses()) {
    recentLoss.add(loss);
    lastLoss = loss;
  }
  if (!ranks.isFirst())
    return {};
  if (options.onRunDirectory)
    options.onRunDirectory(directory->path());
  NSA_RETURN_IF_ERROR(console.logTo(directory->file("train.log")));
  // Of the process that this one continues.
  for (const char *name : {".anomaly_type", "metrics.json"})
    ::unlink(directory->file(name).c_str());
  return writeRunFiles();
}

Status Trainer::openRun() {
  RunChoice choice;
  Status status;
  if (ranks.isFirst()) {
    Result<RunChoice> chosen = chooseRun();
    if (chosen)
      choice = *chosen;
    status = chosen ? Status() : Error{chosen.message()};
    if (chosen && choice.finished.empty())
      status = lockRun(choice);
  }
  status = ranks.synchronizeStatus("the run is chosen", status);
  if (!status)
    return status;
  for (std::string *text :
       {&choice.checkpoint, &choice.directory, &choice.finished}) {
    NSA_ASSIGN_OR_RETURN(std::vector<std::string> all,
                         ranks.exchange("the place of the run", *text));
    *text = all[0];
  }
  finishedRun = choice.finished;
  if (!finishedRun.empty())
    return {};
  return ranks.synchronizeStatus("the run is open", enterRun(choice));
}

Status Trainer::writeRunFiles() const {
  std::vector<std::pair<std::string, std::string>> facts = options.facts;
  facts.emplace_back("run_id", directory->id());
  facts.emplace_back("config", options.configPath);
  facts.emplace_back("config_hash", configHash(config));
  facts.emplace_back("artefact_hash", toHex(state.artefactHash));
  facts.emplace_back("data", data.name());
  facts.emplace_back("data_digest", toHex(state.dataDigest));
  if (!state.history.initFrom.empty()) {
    facts.emplace_back("init_from", state.history.initFrom);
    facts.emplace_back("init_hash", toHex(state.history.initHash));
  }
  if (tokenizer && !tokenizer->text().empty()) {
    facts.emplace_back("tokenizer_hash", toHex(tokenizer->hash()));
    NSA_RETURN_IF_ERROR(directory->write(tokenizerName, tokenizer->text()));
  }
  for (const auto &[name, text] :
       {std::pair<const char *, std::string>{"config.yaml",
                                             printConfigYaml(config)},
        {"config.json", printConfigJson(config) + "\n"},
        {"env.json", describeEnvironment(facts)},
        {"dtypes_report.txt", describeTensors(model)}})
    NSA_RETURN_IF_ERROR(directory->write(name, text));
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
  console.line("run " + directory->path() + " | id " + directory->id() +
               " | config " + options.configPath + " " + configHash(config) +
               " | artefact " + toHex(state.artefactHash) + " | data " +
               data.name() + " " + toHex(state.dataDigest));
  for (const std::string &line : configLines(config))
    console.line(line);
  for (const std::string &note : notes)
    console.line(note);
  if (ranks.isFirst())
    checkSpace();
  for (const std::string &text : warnings)
    console.line("warning: " + text);
  if (!config.stages.empty())
    console.line(describeStage(config, options.stage));
  hasHeader = true;
  uint64_t lastSample = state.samples + uint64_t(lastStep() - state.step) *
                                            uint64_t(plan.sequencesPerStep());
  auto describeEpochs = [&](size_t source) {
    return formatted("%.2f epochs", sampler->epochs(lastSample, source));
  };
  double weights = 0;
  for (const DataSource &source : data.sources)
    weights += source.weight;
  for (size_t i = 0; i < data.sources.size(); ++i)
    console.line(
        "source " + data.sources[i].name + ": " +
        shortest(std::round(1e4 * data.sources[i].weight / weights) / 100) +
        " % of the samples, " + grouped(data.sources[i].tokens) +
        " training tokens, " + describeEpochs(i));
  console.line(
      grouped(parameterCount(model)) + " parameters | " +
      grouped(uint64_t(plan.tokensPerStep())) + " tokens per step = " +
      (ranks.size() > 1 ? std::to_string(ranks.size()) + " ranks x " : "") +
      std::to_string(plan.passes) + " x " + std::to_string(plan.microBatch) +
      " sequences of " + std::to_string(plan.seqLen) + " | " +
      grouped(data.train.size()) + " training and " + grouped(data.val.size()) +
      " validation tokens | " + std::to_string(lastStep()) + " steps" +
      (data.sources.empty() ? " = " + describeEpochs(0) : ""));
  for (const std::string &line : describeMemory(model.memory()))
    console.line(line);
  if (utilization.flops > 0) {
    std::string line =
        formatted("a step executes %.4g floating-point operations on each rank",
                  double(utilization.flops));
    if (utilization.peak > 0) {
      line += formatted(" | mfu is of %.4g TFLOP/s", utilization.peak / 1e12);
    } else if (config.runtime.device == "cuda") {
      line += " | no mfu: the peak of this device is not known "
              "(runtime.peak_tflops)";
    }
    console.line(line);
  }
  console.line("to stop: Ctrl-C, or echo " + directory->id() + " > " +
               directory->file(".HALT"));
  noteWrite(log->logHeartbeat(state.step, "start"));
}

} // namespace nsa
