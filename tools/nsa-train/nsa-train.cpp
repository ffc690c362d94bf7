//===- nsa-train.cpp - trains an artefact on token shards -----------------===//

#include "Options.h"
#include "lib/Support/CommandLine.h"
#include "lib/Support/Files.h"
#include "lib/Support/Process.h"
#include "lib/Support/Stages.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/CPU/CPUFeatures.h"
#include "runtime/Distributed/Launcher.h"
#include "runtime/Distributed/Ranks.h"
#include "runtime/Distributed/Token.h"
#include "runtime/Train/Agreement.h"
#include "runtime/Train/CompileConfig.h"
#include "runtime/Train/InitialWeights.h"
#include "runtime/Train/Preflight.h"
#include "runtime/Train/SampleText.h"
#include "runtime/Train/Schedule.h"
#include "runtime/Train/Signals.h"
#include "runtime/Train/Trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

using namespace nsa;

static constexpr const char *toolName = "nsa-train";

static int exitCode(TrainEnd end) {
  switch (end) {
  case TrainEnd::Finished:
  case TrainEnd::StageEnded:
  case TrainEnd::Halted:
    return 0;
  case TrainEnd::NonFinite:
    return exitNonFinite;
  case TrainEnd::Interrupted:
    return exitInterrupted;
  }
  return 1;
}

static int fail(const std::string &message) {
  return reportError(toolName, message);
}

/// Writes the trace and prints what took longest.
static Status reportProfile(StepProfile &profile, const Program &program,
                            const std::string &directory) {
  if (profile.steps() == 0)
    return Error{"--profile recorded no step: the first " +
                 std::to_string(StepProfile::warmUpSteps) +
                 " steps of a run warm up"};
  profile.measureAgain();
  std::string path = directory + "/profile.json";
  NSA_RETURN_IF_ERROR(writeFileAtomically(path, profile.trace(program)));
  std::printf("%swrote %s\n", profile.table(program).c_str(), path.c_str());
  return {};
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

/// Versions before this one averaged micro-batches by their number, and not by
/// their targets: their programs add up something else.
static Result<Artifact> openArtifact(const std::string &path) {
  Result<Artifact> artifact = Artifact::open(path);
  if (!artifact)
    return artifact;
  auto has = [&](const char *name) {
    const auto &tensors = *artifact->root().tensors();
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto *tensor) {
      return tensor->name()->string_view() == name;
    });
  };
  if (has(training::lossSumState) && !has(training::targetFractionSumState))
    return Error{"the artefact '" + path +
                 "' was compiled by an earlier version, whose steps are no "
                 "means over targets; compile it again"};
  return artifact;
}

/// Starts the ranks with this command line, and waits for them.
static Result<int> launchRanks(const CommandLine &line, int argc, char **argv) {
  // All would say the same.
  if (!line.artefact.empty())
    if (Result<Artifact> artifact = openArtifact(line.artefact); !artifact)
      return artifact.takeError();
  LaunchOptions options;
  options.endsProcess = true;
  options.ranks = line.numRanks;
  options.command = {executablePath()};
  for (int i = 1; i < argc; ++i)
    if (std::string argument = argv[i]; argument == "--nproc")
      ++i;
    else if (argument.rfind("--nproc=", 0) != 0)
      options.command.push_back(argument);
  return launch(options);
}

/// Ends at once: where another rank was lost, threads of libraries may wait for
/// it still.
[[noreturn]] static void endWithout(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

[[noreturn]] static void endWithout(Ranks &ranks, int code,
                                    const std::string &why = "") {
  ranks.fail(why);
  endWithout(code);
}

/// What tells this run from others that could meet at the same port, as far as
/// what started the ranks says.
static std::string findRun(const RankEnvironment &environment) {
  if (std::optional<std::string> elastic = readVariable("TORCHELASTIC_RUN_ID"))
    return *elastic;
  bool isSlurm = std::string(environment.source).rfind("SLURM", 0) == 0;
  return isSlurm ? readVariable("SLURM_JOB_ID").value_or("") : "";
}

/// Meets the other ranks, if there are some.
static Result<std::unique_ptr<Ranks>> joinRanks(const CommandLine &line,
                                                const RunConfig &config) {
  NSA_ASSIGN_OR_RETURN(RankEnvironment environment,
                       readRankEnvironment(readVariable));
  NSA_RETURN_IF_ERROR(checkEffect(line, config, environment));
  RanksOptions options;
  options.identity.run = findRun(environment);
  options.trustNetwork = line.trustNetwork;
  if (std::optional<std::string> token = readVariable(tokenVariable)) {
    if (environment.size > 1)
      NSA_RETURN_IF_ERROR(checkToken(*token));
    options.identity.token = *token;
  }
  options.timeout = Milliseconds(std::llround(line.rankSeconds * 1000));
  options.sequenceRanks = int(config.train.contextParallel);
  if (config.runtime.device == "cpu")
    options.plugin =
        !line.gloo.empty()
            ? line.gloo
            : (std::filesystem::path(executablePath()).parent_path() /
               "../lib/nsa-gloo.so")
                  .lexically_normal()
                  .string();
  // Before the others wait for this rank, since all would fail alike, and
  // before the stages that are trained first.
  size_t stage = 0;
  do {
    TrainConfig train = withStage(config, stage).train;
    if (Result<BatchPlan> plan =
            planBatch(train, train.microBatch, train.seqLen, environment.size);
        !plan)
      return Error{(stage ? "stage " + std::to_string(stage + 1) + ": " : "") +
                   plan.message()};
  } while (++stage < config.stages.size());
  StoreFailure failure = StoreFailure::Mistake;
  Result<std::unique_ptr<Ranks>> ranks =
      Ranks::join(environment, options, &failure);
  if (ranks)
    return ranks;
  int code = fail(ranks.message());
  endWithout(failure == StoreFailure::Loss ? exitLostRank : code);
}

/// The threads of a rank: its share of the processors of its machine, unless
/// the configuration says otherwise.
static int threadsOf(const RunConfig &config, const Ranks &ranks) {
  if (config.runtime.threads != 0 || ranks.size() == 1)
    return int(config.runtime.threads);
  return std::max(1, availableProcessors() / ranks.localSize());
}

/// The GPU of a rank: each takes its own, unless it sees one only.
static int gpuOf(const CommandLine &line, const Ranks &ranks) {
  if (line.gpu >= 0)
    return line.gpu;
  std::optional<std::string> visible = readVariable("CUDA_VISIBLE_DEVICES");
  bool seesOne =
      visible && !visible->empty() && visible->find(',') == std::string::npos;
  return seesOne ? 0 : ranks.localRank();
}

//===----------------------------------------------------------------------===//
// Training
//===----------------------------------------------------------------------===//

static void addFacts(CommandLine &line, const Program &program,
                     const Ranks &ranks) {
  auto &facts = line.train.facts;
  facts.emplace_back("artefact", line.artefact);
  facts.emplace_back("threads", std::to_string(program.threads()));
  facts.emplace_back("gemm", program.gemmLibrary());
  if (ranks.size() > 1)
    facts.emplace_back("ranks", std::to_string(ranks.size()));
  if (!program.gpu().empty())
    facts.emplace_back("gpu", program.gpu());
  if (!program.reductionLibrary().empty())
    facts.emplace_back("reductions", program.reductionLibrary());
  facts.emplace_back("program_bytes",
                     std::to_string(program.memory().allocated));
}

/// Opens the artefact, which must be that of the configuration.
static Result<Artifact> openArtifact(const CommandLine &line,
                                     const RunConfig &config) {
  Result<Artifact> artifact = openArtifact(line.artefact);
  if (!artifact)
    return artifact;
  NSA_RETURN_IF_ERROR(checkAgreement(config, *artifact));
  return artifact;
}

/// What is compiled for a stage of the configuration, which has its values.
static CompileRequest requestStage(const CommandLine &line,
                                   const RunConfig &config, size_t stage) {
  CompileRequest request;
  request.config = line.config;
  request.overrides = line.overrides();
  request.options = line.compileOptions;
  int64_t context = getSampleContext(config.train);
  request.options.push_back(
      context > 0 ? "sample-context=" + std::to_string(context) : "no-forward");
  if (!line.train.replaySelection.empty())
    request.options.push_back("replay-selection");
  request.stage = stage;
  return request;
}

/// Compiles a stage of the configuration, which has its values, or finds what
/// was compiled before.
static Result<Artifact> compileStage(CommandLine &line, const RunConfig &config,
                                     size_t stage, Ranks &ranks) {
  CompileRequest request = requestStage(line, config, stage);
  request.gpu = gpuOf(line, ranks);
  NSA_ASSIGN_OR_RETURN(request.memory,
                       deviceMemory(config, request.gpu, ranks.localSize()));
  auto say = [](const std::string &text) {
    std::fprintf(stderr, "%s: %s\n", toolName, text.c_str());
  };
  NSA_ASSIGN_OR_RETURN(
      line.artefact,
      compileForRanks(request, config, readVariable, say, ranks));
  Result<Artifact> artifact = openArtifact(line, config);
  if (!artifact)
    return artifact;
  NSA_RETURN_IF_ERROR(checkPlan(*artifact, request.memory));
  return artifact;
}

static Result<TrainEnd> trainRank(CommandLine &line, const RunConfig &config,
                                  const Artifact &artifact, const Dataset &data,
                                  Ranks &ranks) {
  line.artefact = artifact.name();
  RuntimeOptions runtime;
  runtime.threads = threadsOf(config, ranks);
  runtime.seed = uint64_t(config.train.seed);
  runtime.blasLibrary = line.blasLibrary;
  runtime.device = gpuOf(line, ranks);
  runtime.noGraph = line.noGraph;
  runtime.checkFinite = line.checkFinite;
  runtime.profile = line.profileSteps > 0;
  runtime.communicator = ranks.communicator();
  runtime.ranks = ranks.processGroup();
  runtime.ncclLibrary = line.nccl;
  NSA_ASSIGN_OR_RETURN(Program program, Program::create(artifact, runtime));
  line.train.configPath = line.config;
  // Checks or waits of one rank alone would block the others.
  line.train.sameOnAllRanks = {
      {"--check-finite", line.checkFinite ? "on" : "off"},
      {"--no-graph", line.noGraph ? "on" : "off"},
      {"--rank-seconds", shortest(line.rankSeconds)},
      {"--replay-selection", line.train.replaySelection}};
  addFacts(line, program, ranks);
  // Data sheets' numbers are of 16-bit operands.
  if (config.runtime.precision != "fp32")
    line.train.peakFlops = findPeakFlops(program.gpu()).value_or(0);
  std::optional<StepProfile> profile;
  if (runtime.profile) {
    NSA_ASSIGN_OR_RETURN(std::optional<GPUPeaks> gpu, program.measureGPU());
    profile.emplace(line.profileSteps, program.threads(), std::move(gpu),
                    ranks.size());
  }
  ProgramModel model(std::move(program), profile ? &*profile : nullptr);
  std::FILE *out = ranks.isFirst() ? stdout : std::fopen("/dev/null", "w");
  Console console(out, !line.noProgress && ranks.isFirst() &&
                           ::isatty(STDOUT_FILENO));
  Trainer trainer(model, data, config, line.train, console, ranks);
  Result<TrainEnd> end = trainer.run();
  // Reductions of this rank may be running, in memory of the program.
  if (!ranks.stopReason().empty())
    endWithout(ranks, end ? exitCode(*end) : fail(end.message()));
  if (!end)
    return Error{end.message()};
  if (profile && ranks.isFirst())
    NSA_RETURN_IF_ERROR(
        reportProfile(*profile, model.get(), trainer.runDirectory()));
  if (*end == TrainEnd::StageEnded) {
    // The next stage goes on with this run.
    line.train.resume = trainer.runDirectory();
    line.train.found.reset();
    line.train.runName.clear();
    line.train.initFrom.clear();
    if (line.train.stopAfter > 0)
      line.train.stopAfter -= trainer.stepsDone();
  }
  return *end;
}

//===----------------------------------------------------------------------===//
// A configuration
//===----------------------------------------------------------------------===//

namespace {

/// The initial state of a run of a configuration.
struct Start {
  size_t stage = 0;
  /// That there is nothing to do; empty if there is.
  std::string finished;
};

} // namespace

/// Finds what the command line asks to go on from, which must be possible.
static Result<Start> findStart(CommandLine &line, const RunConfig &config,
                               const Dataset &data,
                               const Tokenizer *tokenizer) {
  TrainOptions &train = line.train;
  Start start;
  ResumeRequest request = {config, data.digest(), tokenizer,
                           train.allowChangedBatch, train.allowChangedData};
  auto isOfThisRun = [&](const std::string &folder,
                         const TrainState &saved) -> Result<bool> {
    if (saved.dataDigest != request.dataDigest && !train.allowChangedData)
      return false;
    return hasModelOf(folder, saved.step, config);
  };
  if (train.resume.empty()) {
    if (train.initFrom.empty())
      return start;
    Result<InitialWeights> weights =
        findInitialWeights(train.initFrom, config, tokenizer);
    return weights ? Result<Start>(start) : weights.takeError();
  }
  NSA_ASSIGN_OR_RETURN(FoundCheckpoint found,
                       findResume(train.resume, config, isOfThisRun));
  if (!found.path.empty()) {
    NSA_RETURN_IF_ERROR(checkInRun(found.path));
    NSA_ASSIGN_OR_RETURN(Checkpoint opened,
                         found.opened ? Result<Checkpoint>(*found.opened)
                                      : Checkpoint::open(found.path));
    if (train.resume == "auto")
      start.finished = describeFinished(found.path, opened.state, config);
    if (!start.finished.empty())
      return start;
    if (Result<std::vector<std::string>> changes =
            checkResumable(opened, request);
        !changes)
      return changes.takeError();
    const std::vector<DataFile> &files = opened.state.history.files;
    if (!files.empty() && !train.allowChangedData)
      train.verifier->expect(files, "the checkpoint '" + found.path + "'");
    start.stage = findStage(config, opened.state.step + 1);
    found.opened = std::move(opened);
  }
  train.found = std::move(found);
  return start;
}

/// What is compiled for some ranks runs on as many.
static Status checkShardRanks(const CommandLine &line, int64_t ranks) {
  for (const std::string &option : line.compileOptions)
    if (option.rfind("shard-ranks=", 0) == 0 &&
        option.substr(12) != std::to_string(ranks))
      return Error{"--compile-option " + option +
                   " is for as many ranks, not " + std::to_string(ranks)};
  return {};
}

/// Checks what can be known before anything is compiled.
static Status checkBefore(const CommandLine &line, const RunConfig &config,
                          const Dataset &data, const Ranks &ranks,
                          std::optional<Tokenizer> &tokenizer) {
  NSA_RETURN_IF_ERROR(checkShardRanks(line, ranks.size()));
  NSA_ASSIGN_OR_RETURN(tokenizer, checkVocabulary(data, config.data.tokenizer,
                                                  config.model.vocabSize));
  return checkWindows(data, config);
}

/// The same, and what there is to begin with, which the first rank looks for.
static Result<Start> checkStart(CommandLine &line, const RunConfig &config,
                                const Dataset &data, Ranks &ranks) {
  Start start;
  std::optional<Tokenizer> tokenizer;
  Status status = checkBefore(line, config, data, ranks, tokenizer);
  if (status && ranks.isFirst()) {
    Result<Start> found =
        findStart(line, config, data, tokenizer ? &*tokenizer : nullptr);
    status = found ? Status() : Error{found.message()};
    if (found)
      start = *found;
  }
  if (status && start.finished.empty())
    status = line.train.verifier->wait(line.train.verifySeconds);
  if (status = ranks.synchronizeStatus("the start is checked", status); !status)
    return Error{status.message()};
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> all,
                       ranks.exchange("the stage", std::to_string(start.stage) +
                                                       " " + start.finished));
  const std::string &first = all[0];
  size_t space = first.find(' ');
  return Start{size_t(std::stoul(first.substr(0, space))),
               first.substr(space + 1)};
}

/// Compiles all stages that are left, then trains one after the other, each
/// with a program of its own.
static Result<TrainEnd> runConfig(CommandLine &line, const RunConfig &config,
                                  const Dataset &data, Ranks &ranks) {
  NSA_ASSIGN_OR_RETURN(Start start, checkStart(line, config, data, ranks));
  if (!start.finished.empty()) {
    if (ranks.isFirst())
      std::printf("%s\n", start.finished.c_str());
    return TrainEnd::Finished;
  }
  std::vector<Artifact> artifacts;
  size_t stages = std::max<size_t>(config.stages.size(), 1);
  for (size_t stage = start.stage; stage < stages; ++stage) {
    Result<Artifact> made =
        compileStage(line, withStage(config, stage), stage, ranks);
    if (!made)
      return Error{
          (stages > 1 ? "stage " + std::to_string(stage + 1) + ": " : "") +
          made.message()};
    artifacts.push_back(std::move(*made));
  }
  Result<TrainEnd> end = TrainEnd::StageEnded;
  for (size_t i = 0; end && *end == TrainEnd::StageEnded; ++i) {
    line.train.stage = start.stage + i;
    end = trainRank(line, withStage(config, line.train.stage), artifacts[i],
                    data, ranks);
  }
  return end;
}

/// Prints what the run would take.
static Result<int> printCost(const CommandLine &line) {
  NSA_ASSIGN_OR_RETURN(RunConfig config,
                       loadConfig(line.config, line.overrides()));
  NSA_RETURN_IF_ERROR(checkShardRanks(line, line.ranks));
  std::vector<Estimate> stages;
  do {
    RunConfig now = withStage(config, stages.size());
    CompileRequest request = requestStage(line, now, stages.size());
    request.gpu = std::max(line.gpu, 0);
    request.target = line.target;
    Result<Estimate> estimate = estimateConfig(request, now, readVariable);
    if (!estimate)
      return Error{estimate.message() +
                   (line.target.empty() && config.runtime.device != "cpu"
                        ? "; --target=sm_90a, say, needs none"
                        : "")};
    stages.push_back(*estimate);
  } while (stages.size() < config.stages.size());
  NSA_ASSIGN_OR_RETURN(std::string text,
                       describeCost(config, line.ranks, stages));
  std::printf("%s", text.c_str());
  return 0;
}

static Result<int> train(CommandLine &line) {
  // Until the run begins there is nothing to save.
  SignalScope signals(exitInterrupted);
  NSA_ASSIGN_OR_RETURN(RunConfig config,
                       loadConfig(line.config, line.overrides()));
  std::optional<Artifact> artifact;
  if (!config.stages.empty() && !line.artefact.empty())
    return Error{"the configuration has stages, each of which is compiled: "
                 "give it in place of the artefact '" +
                 line.artefact + "'"};
  if (!line.artefact.empty()) {
    NSA_ASSIGN_OR_RETURN(artifact, openArtifact(line, config));
  }
  NSA_ASSIGN_OR_RETURN(Dataset data,
                       Dataset::openMixture(line.data, line.dataWeights,
                                            config.model.vocabSize));
  NSA_ASSIGN_OR_RETURN(std::unique_ptr<Ranks> ranks, joinRanks(line, config));
  // It reads while models are compiled and loaded.
  DataVerifier verifier(data);
  verifier.start(verifierThreads(ranks->localSize()));
  line.train.verifier = &verifier;
  Result<TrainEnd> end = artifact
                             ? trainRank(line, config, *artifact, data, *ranks)
                             : runConfig(line, config, data, *ranks);
  if (end) {
    ranks->leave();
    return exitCode(*end);
  }
  if (ranks->size() == 1)
    return end.takeError();
  int code = fail(end.message());
  endWithout(*ranks, ranks->lostSomeone() ? exitLostRank : code, end.message());
}

static int runMain(int argc, char **argv) {
  CommandLine line;
  if (std::optional<int> code = parseOptions(line, argc, argv))
    return *code;
  if (Status status = checkLaunch(line); !status)
    return fail(status.message());
  std::string command;
  for (int i = 0; i < argc; ++i)
    command += (i ? " " : "") + std::string(argv[i]);
  line.train.facts = {{"tool", std::string("nsa-train ") + NSA_VERSION},
                      {"command", command}};
  Result<int> code = line.estimate       ? printCost(line)
                     : line.numRanks > 0 ? launchRanks(line, argc, argv)
                                         : train(line);
  return code ? *code : fail(code.message());
}

int main(int argc, char **argv) {
  return runTool(toolName, [&] { return runMain(argc, argv); });
}
