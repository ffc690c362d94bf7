//===- nsa-train.cpp - trains an artefact on token shards -----------------===//

#include "lib/Support/CommandLine.h"
#include "lib/Support/Config.h"
#include "lib/Support/Files.h"
#include "lib/Support/Text.h"
#include "runtime/CPU/CPUFeatures.h"
#include "runtime/Distributed/Launcher.h"
#include "runtime/Distributed/Ranks.h"
#include "runtime/Distributed/Token.h"
#include "runtime/Train/Agreement.h"
#include "runtime/Train/Schedule.h"
#include "runtime/Train/Signals.h"
#include "runtime/Train/Trainer.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <unistd.h>

using namespace nsa;

static constexpr const char *toolName = "nsa-train";

static constexpr const char *exitCodes =
    "Exit codes:\n"
    "  0  finished, or halted by .HALT or --stop-after (checkpoint saved)\n"
    "  1  error: the message says what does not work\n"
    "  2  wrong command line\n"
    "  3  the loss or the gradient norm was not finite, and the update was "
    "not\n"
    "     applied, or a weight or a moment was not, and it was not saved;\n"
    "     .anomaly_type is written, the last good checkpoint is kept\n"
    "  4  stopped by SIGINT, SIGTERM or SIGHUP (checkpoint saved, unless the\n"
    "     hashes of the shards take 10 seconds longer); a second Ctrl-C, "
    "after\n"
    "     a second, ends the process at once\n"
    "  5  another rank was lost, or did not come in time; it is named\n"
    "SIGUSR1 writes state_dump_STEP.json into the run directory.\n"
    "A file .HALT there with the run's id, or an empty one made after the\n"
    "start, stops the run after the step.\n"
    "Ranks of several machines need the same NSA_RENDEZVOUS_TOKEN in their\n"
    "environment: whoever knows it may join the run. --nproc makes its own.\n"
    "An artefact holds machine code, which runs with your rights: train only\n"
    "those that you trust.";

static int exitCode(TrainEnd end) {
  switch (end) {
  case TrainEnd::Finished:
  case TrainEnd::Halted:
    return 0;
  case TrainEnd::NonFinite:
    return exitNonFinite;
  case TrainEnd::Interrupted:
    return exitInterrupted;
  }
  return 1;
}

namespace {

struct CommandLine {
  std::string artefact;
  std::string config;
  std::string data;
  /// From --set, and from the flags that stand for a key.
  std::vector<std::string> settings;
  std::vector<std::string> flags;
  bool noProgress = false;
  std::string blasLibrary;
  /// -1: the rank's number on its machine.
  int gpu = -1;
  bool noGraph = false;
  bool checkFinite = false;
  /// Steps to profile; 0 for none.
  int64_t profileSteps = 0;
  /// Ranks to start; 0 to be a rank.
  int numRanks = 0;
  int maxRestarts = 0;
  double rankSeconds = 300;
  bool trustNetwork = false;
  std::string gloo;
  std::string nccl;
  TrainOptions train;
  /// Names of the options that were given.
  std::set<std::string> given;
};

} // namespace

/// An option that sets a key of the configuration.
static void addOverride(CLI::App &app, CommandLine &line,
                        const std::string &flag, const std::string &key) {
  app.add_option_function<std::string>(
         flag,
         [&line, key](const std::string &value) {
           line.flags.push_back(key + "=" + value);
         },
         "The same as --set " + key + "=...")
      ->type_name("VALUE");
}

static void addRankOptions(CLI::App &app, CommandLine &line) {
  app.add_option("--nproc", line.numRanks,
                 "Start this many ranks on this machine, which share the "
                 "batch; torchrun, mpirun and srun start them too")
      ->check(between(1, 1024));
  app.add_option("--max-restarts", line.maxRestarts,
                 "With --nproc: how often all ranks go on from the last "
                 "checkpoint after one was lost")
      ->check(atLeast(0))
      ->capture_default_str();
  app.add_option("--rank-seconds", line.rankSeconds,
                 "How long a rank may keep the others waiting")
      ->check(checkFinite)
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  app.add_flag("--trust-network", line.trustNetwork,
               "Without NSA_RENDEZVOUS_TOKEN: let anybody who reaches "
               "MASTER_ADDR join the run, also from other machines");
  app.add_option("--gloo", line.gloo,
                 "The plug-in that connects ranks on the CPU "
                 "[lib/nsa-gloo.so beside bin/]");
  app.add_option("--nccl", line.nccl,
                 "NCCL, which connects ranks on GPUs: a file, or a folder to "
                 "search [the system's]");
  // Of the launcher, for ranks that it starts again.
  app.add_option("--restart", line.train.restart)->group("");
}

/// What a script passes from a variable that is not set.
static std::string notEmpty(const std::string &text) {
  return text.empty() ? "the value is empty" : "";
}

static void addOptions(CLI::App &app, CommandLine &line) {
  app.add_option("artefact", line.artefact, "Compiled model (.nsax)")
      ->required();
  app.add_option("--config", line.config, "Run configuration (YAML)")
      ->required();
  app.add_option("--data", line.data, "Folder of token shards (nsa-data)")
      ->required();
  app.add_option("--set", line.settings,
                 "Override a key: section.key=value (repeatable)")
      ->allow_extra_args(false);
  addOverride(app, line, "--out-dir", "train.out_dir");
  addOverride(app, line, "--threads", "runtime.threads");
  addOverride(app, line, "--sample-bytes", "train.sample_bytes");
  addOverride(app, line, "--sample-prompt", "train.sample_prompt");
  app.add_option("--run-name", line.train.runName,
                 "Folder of the run below train.out_dir [time and config]")
      ->check(notEmpty);
  app.add_option("--resume", line.train.resume,
                 "Checkpoint or run to continue, or auto for the newest one "
                 "with the same parameters and data below train.out_dir")
      ->check(notEmpty);
  app.add_flag("--allow-changed-batch", line.train.allowChangedBatch,
               "With --resume: go on with another train.batch_size");
  app.add_flag("--allow-changed-data", line.train.allowChangedData,
               "With --resume: go on with other data");
  app.add_option("--init-from", line.train.initFrom,
                 "Checkpoint, run or model.safetensors whose weights a new run "
                 "begins with, at step 0")
      ->check(notEmpty);
  app.add_flag("--init-partial", line.train.initPartial,
               "With --init-from: take the parameters that both have, and "
               "leave the others");
  app.add_option("--stop-after", line.train.stopAfter,
                 "Save and stop after this many steps of this process")
      ->check(atLeast(1));
  app.add_flag("--separate-update", line.train.separateUpdate,
               "Run accumulate and update instead of the fused step");
  app.add_option("--stall-seconds", line.train.stallSeconds,
                 "A step that takes longer is the anomaly heartbeat_stall; 0 "
                 "allows any time")
      ->check(checkFinite)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--verify-seconds", line.train.verifySeconds,
                 "How long to wait for the hashes of the shards before the "
                 "first step; the rest is hashed while training, and no "
                 "checkpoint is saved before all are")
      ->check(checkFinite)
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--no-progress", line.noProgress,
               "Plain lines every train.log_every steps on a terminal too");
  app.add_flag("--check-finite", line.checkFinite,
               "Check the outputs of every command (slow)");
  app.add_option(
         "--profile", line.profileSteps,
         "Measure every command of this many steps: writes profile.json "
         "(Chrome trace) into the run directory and prints the most "
         "expensive commands")
      ->check(between(1, 1 << 20));
  app.add_option("--blas", line.blasLibrary,
                 "OpenBLAS or, on a GPU, cuBLASLt: the library, or the folder "
                 "that holds it");
  app.add_option("--gpu", line.gpu,
                 "Number of the GPU to use [0, or with several ranks the "
                 "rank's number on its machine]")
      ->check(atLeast(0));
  app.add_flag("--no-graph", line.noGraph,
               "On a GPU, run one command after the other instead of a CUDA "
               "graph, wait for each and check its outputs: what fails is "
               "named (slow)");
  addRankOptions(app, line);
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
  if (Status status = writeFileAtomically(path, profile.trace(program));
      !status)
    return status;
  std::printf("%swrote %s\n", profile.table(program).c_str(), path.c_str());
  return {};
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

static std::optional<std::string> readVariable(const std::string &name) {
  const char *value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

/// Options that would have no effect are mistakes: those of the launcher,
static Status checkLaunch(const CommandLine &line) {
  bool launches = line.given.count("--nproc");
  if (line.given.count("--max-restarts") && !launches)
    return Error{"--max-restarts has no effect without --nproc, which starts "
                 "ranks again"};
  if (!launches)
    return {};
  for (const char *name : {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                           "MASTER_ADDR", "MASTER_PORT"})
    if (std::optional<std::string> value = readVariable(name))
      return Error{std::string("--nproc starts all ranks on this machine and "
                               "says where they meet, but ") +
                   name + " is set to " + quote(*value)};
  if (line.given.count("--trust-network"))
    return Error{"--trust-network has no effect with --nproc, which gives its "
                 "ranks a token"};
  if (line.given.count("--gpu") && line.numRanks > 1)
    return Error{"--gpu names one GPU, --nproc starts " +
                 std::to_string(line.numRanks) +
                 " ranks, which take one each; CUDA_VISIBLE_DEVICES chooses"};
  return {};
}

/// and those of one device, or of several ranks.
static Status checkEffect(const CommandLine &line, const RunConfig &config,
                          const RankPlace &place) {
  const std::string &device = config.runtime.device;
  std::vector<const char *> ofOthers = {"--gloo"};
  if (device == "cpu")
    ofOthers = {"--nccl", "--gpu", "--no-graph"};
  for (const char *option : ofOthers)
    if (line.given.count(option))
      return Error{std::string(option) +
                   " has no effect where runtime.device is " + device};
  for (const char *option :
       {"--gloo", "--nccl", "--rank-seconds", "--trust-network"})
    if (line.given.count(option) && place.size == 1)
      return Error{std::string(option) + " has no effect on one rank"};
  if (line.given.count("--trust-network") && readVariable(tokenVariable))
    return Error{std::string("--trust-network has no effect where ") +
                 tokenVariable + " is set"};
  if (line.given.count("--gpu") && place.localSize > 1)
    return Error{"--gpu names one GPU for the " +
                 std::to_string(place.localSize) +
                 " ranks of this machine, which take one each"};
  return {};
}

/// Those that say how a run goes on, or what it begins with.
static Status checkBeginning(const TrainOptions &train) {
  if (!train.runName.empty() && !train.resume.empty() && train.resume != "auto")
    return Error{"--run-name names a new run, and --resume " + train.resume +
                 " continues one: give one of them"};
  if (!train.initFrom.empty() && !train.resume.empty())
    return Error{"--init-from begins a new run, and --resume " + train.resume +
                 " continues one: give one of them"};
  if (train.initPartial && train.initFrom.empty())
    return Error{"--init-partial has no effect without --init-from"};
  bool resumes = !train.resume.empty() || !train.restart.empty();
  for (const auto &[given, name] :
       {std::pair(train.allowChangedBatch, "--allow-changed-batch"),
        {train.allowChangedData, "--allow-changed-data"}})
    if (given && !resumes)
      return Error{std::string(name) + " has no effect without --resume"};
  return {};
}

static std::string executablePath() {
  std::error_code code;
  return std::filesystem::read_symlink("/proc/self/exe", code).string();
}

/// The arguments without options that have a value.
static std::vector<std::string>
withoutOptions(const std::vector<std::string> &arguments,
               const std::vector<std::string> &options) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto isOption = [&](const std::string &option) {
      return arguments[i].substr(0, arguments[i].find('=')) == option;
    };
    if (std::none_of(options.begin(), options.end(), isOption))
      kept.push_back(arguments[i]);
    else if (arguments[i].find('=') == std::string::npos)
      ++i;
  }
  return kept;
}

/// Starts the ranks with this command line, and waits for them.
static int launchRanks(const CommandLine &line, int argc, char **argv) {
  LaunchOptions options;
  options.endsProcess = true;
  options.ranks = line.numRanks;
  options.maxRestarts = line.maxRestarts;
  options.command =
      withoutOptions({argv + 1, argv + argc}, {"--nproc", "--max-restarts"});
  options.command.insert(options.command.begin(), executablePath());
  options.resume = [&](const std::string &directory) {
    std::vector<std::string> again = withoutOptions(
        options.command, {"--resume", "--run-name", "--restart"});
    again.insert(again.end(), {"--restart", directory});
    return again;
  };
  Result<int> code = launch(options);
  return code ? *code : fail(code.message());
}

/// Tells the launcher where the run is.
static void tellLauncher(const std::string &directory) {
  std::optional<std::string> text = readVariable(launcherVariable);
  if (!text)
    return;
  int fd = -1;
  std::from_chars(text->data(), text->data() + text->size(), fd);
  std::string message = directory + "\n";
  (void)!::write(fd, message.data(), message.size());
  ::close(fd);
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
static std::string findRun(const RankPlace &place) {
  if (std::optional<std::string> own = readVariable(runVariable))
    return *own;
  if (std::optional<std::string> elastic = readVariable("TORCHELASTIC_RUN_ID"))
    return *elastic;
  bool isSlurm = std::string(place.source).rfind("SLURM", 0) == 0;
  return isSlurm ? readVariable("SLURM_JOB_ID").value_or("") : "";
}

/// Meets the other ranks, if there are some. Sets `code` on failure.
static std::unique_ptr<Ranks> joinRanks(const CommandLine &line,
                                        const RunConfig &config, int &code) {
  Result<RankPlace> place = findRank(readVariable);
  if (!place) {
    code = fail(place.message());
    return nullptr;
  }
  if (Status status = checkEffect(line, config, *place); !status) {
    code = fail(status.message());
    return nullptr;
  }
  RanksOptions options;
  options.identity.run = findRun(*place);
  options.trustNetwork = line.trustNetwork;
  if (std::optional<std::string> token = readVariable(tokenVariable)) {
    if (Status status = checkToken(*token); !status && place->size > 1) {
      code = fail(status.message());
      return nullptr;
    }
    options.identity.token = *token;
  }
  options.timeout = Milliseconds(std::llround(line.rankSeconds * 1000));
  if (place->size > 1 && config.runtime.device == "cpu") {
    options.plugin = line.gloo;
    if (options.plugin.empty())
      options.plugin = (std::filesystem::path(executablePath()).parent_path() /
                        "../lib/nsa-gloo.so")
                           .lexically_normal();
    if (Status status = checkReducer(options.plugin); !status) {
      code = fail(status.message());
      return nullptr;
    }
  }
  // Before the others wait for this rank, since all would fail alike.
  const TrainConfig &train = config.train;
  if (Result<BatchPlan> plan =
          planBatch(train, train.microBatch, train.seqLen, place->size);
      !plan) {
    code = fail(plan.message());
    return nullptr;
  }
  StoreFailure failure = StoreFailure::Mistake;
  Result<std::unique_ptr<Ranks>> ranks = Ranks::join(*place, options, &failure);
  if (ranks)
    return std::move(*ranks);
  code = fail(ranks.message());
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

static Result<int> trainRank(CommandLine &line, const RunConfig &config,
                             const Artifact &artifact, const Dataset &data,
                             Ranks &ranks) {
  // It reads while the program is loaded.
  DataVerifier verifier(data);
  verifier.start(verifierThreads(ranks.localSize()));
  line.train.verifier = &verifier;
  RuntimeOptions runtime;
  runtime.threads = threadsOf(config, ranks);
  runtime.seed = uint64_t(config.train.seed);
  runtime.blasLibrary = line.blasLibrary;
  runtime.device = gpuOf(line, ranks);
  runtime.noGraph = line.noGraph;
  runtime.checkFinite = line.checkFinite;
  runtime.profile = line.profileSteps > 0;
  runtime.communicator = ranks.communicator();
  runtime.ranks = ranks.link();
  runtime.ncclLibrary = line.nccl;
  Result<Program> program = Program::create(artifact, runtime);
  if (!program)
    return Error{program.message()};
  line.train.configPath = line.config;
  // What a rank alone would check, or wait for, stops the others.
  line.train.sameOnAllRanks = {
      {"--check-finite", line.checkFinite ? "on" : "off"},
      {"--no-graph", line.noGraph ? "on" : "off"},
      {"--rank-seconds", shortest(line.rankSeconds)}};
  addFacts(line, *program, ranks);
  std::optional<StepProfile> profile;
  if (runtime.profile) {
    Result<std::optional<GPUPeaks>> gpu = program->measureGPU();
    if (!gpu)
      return Error{gpu.message()};
    profile.emplace(line.profileSteps, program->threads(), std::move(*gpu),
                    ranks.size());
  }
  ProgramModel model(std::move(*program), profile ? &*profile : nullptr);
  std::FILE *out = ranks.isFirst() ? stdout : std::fopen("/dev/null", "w");
  Console console(out, !line.noProgress && ranks.isFirst() &&
                           ::isatty(STDOUT_FILENO));
  line.train.onRunDirectory = tellLauncher;
  Trainer trainer(model, data, config, line.train, console, ranks);
  Result<TrainEnd> end = trainer.run();
  // Reductions of this rank may be running, in memory of the program.
  if (!ranks.stopReason().empty())
    endWithout(ranks, end ? exitCode(*end) : fail(end.message()));
  if (!end)
    return Error{end.message()};
  if (profile && ranks.isFirst())
    if (Status status =
            reportProfile(*profile, model.get(), trainer.runDirectory());
        !status)
      return Error{status.message()};
  return exitCode(*end);
}

static int train(CommandLine &line) {
  // Until the run begins there is nothing to save.
  SignalScope signals(exitInterrupted);
  std::vector<std::string> overrides = line.settings;
  overrides.insert(overrides.end(), line.flags.begin(), line.flags.end());
  Result<RunConfig> config = loadConfig(line.config, overrides);
  if (!config)
    return fail(config.message());
  Result<Artifact> artifact = Artifact::open(line.artefact);
  if (!artifact)
    return fail(artifact.message());
  if (Status status = checkAgreement(*config, *artifact); !status)
    return fail(status.message());
  Result<Dataset> data = Dataset::open(line.data);
  if (!data)
    return fail(data.message());
  int code = 1;
  std::unique_ptr<Ranks> ranks = joinRanks(line, *config, code);
  if (!ranks)
    return code;
  Result<int> end = trainRank(line, *config, *artifact, *data, *ranks);
  if (end) {
    ranks->leave();
    return *end;
  }
  code = fail(end.message());
  if (ranks->size() == 1)
    return code;
  endWithout(*ranks, ranks->lostSomeone() ? exitLostRank : code, end.message());
}

static int runMain(int argc, char **argv) {
  CLI::App app("Trains a compiled model on token shards", toolName);
  app.set_version_flag("--version", std::string("nsa-train ") + NSA_VERSION);
  app.footer(exitCodes);
  CommandLine line;
  addOptions(app, line);
  if (std::optional<int> code = parseCommandLine(app, argc, argv))
    return *code;
  if (Status status = checkBeginning(line.train); !status) {
    fail(status.message());
    return exitUsage;
  }
  std::string command;
  for (int i = 0; i < argc; ++i)
    command += (i ? " " : "") + std::string(argv[i]);
  for (const CLI::Option *option : app.get_options())
    if (option->count() > 0)
      line.given.insert(option->get_name());
  if (Status status = checkLaunch(line); !status)
    return fail(status.message());
  if (line.numRanks > 0)
    return launchRanks(line, argc, argv);
  line.train.facts = {{"tool", std::string("nsa-train ") + NSA_VERSION},
                      {"command", command}};
  return train(line);
}

int main(int argc, char **argv) {
  return runTool(toolName, [&] { return runMain(argc, argv); });
}
