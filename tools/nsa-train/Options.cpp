//===- Options.cpp - the command line of nsa-train ------------------------===//

#include "Options.h"
#include "lib/Support/CommandLine.h"
#include "lib/Support/Text.h"
#include "runtime/Distributed/Token.h"
#include "runtime/Train/Checkpoint.h"
#include "runtime/Train/CheckpointLayout.h"
#include "runtime/Train/CompileConfig.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>

using namespace nsa;

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
    "environment: any process that knows it may join the run. --nproc makes "
    "its own.\n"
    "An artefact holds machine code, which runs with your rights: train only\n"
    "those that you trust.";

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
}

/// Refuses an empty value: the variable of a script may not be set.
static std::string notEmpty(const std::string &text) {
  return text.empty() ? "the value is empty" : "";
}

static void addOptions(CLI::App &app, CommandLine &line) {
  app.add_option("model", line.model,
                 "Run configuration (.yaml), which nsa-model and nsa-compile "
                 "make a model of, unless that was done before; or a compiled "
                 "model (.nsax); --resume RUN has its own");
  app.add_option("--config", line.config,
                 "Run configuration (YAML) of a compiled model");
  app.add_option("--data", line.data,
                 "Folder of token shards (nsa-data), or .bin files of llm.c or "
                 "Megatron; several are mixed (repeatable); needed unless "
                 "--estimate is given")
      ->allow_extra_args(false);
  CLI::Option *estimate = app.add_flag(
      "--estimate", line.estimate,
      "Print parameters, memory and, for a GPU, time of the run, and train "
      "nothing; needs neither data nor the GPU");
  app.add_option("--ranks", line.ranks,
                 "With --estimate: how many share the batch")
      ->check(between(1, 1 << 20))
      ->needs(estimate);
  app.add_option("--target", line.target,
                 "With --estimate: the kind of machine, cpu or a GPU such as "
                 "sm_90a [this machine]")
      ->needs(estimate);
  app.add_option("--data-weights", line.dataWeights,
                 "Shares of the samples that the sources have, as 0.7,0.3 "
                 "[their tokens]")
      ->delimiter(',')
      ->allow_extra_args(false);
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
  app.add_flag("--fine-tune", line.fineTune,
               "Of a run or checkpoint in place of the configuration: train "
               "its weights on with its own, but for 1000 steps with a "
               "learning rate of 2e-5, 30 steps of warm-up and linear decay; "
               "--set changes these");
  app.add_option("--stop-after", line.train.stopAfter,
                 "Save and stop after this many steps of this process")
      ->check(atLeast(1));
  app.add_option("--replay-selection", line.train.replaySelection,
                 "Selected blocks of nsa-generate --save-selection (.npy): "
                 "layers attend to them in place of those that they select, in "
                 "sequences that begin with one of its prompts");
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
  app.add_option("--compile-option", line.compileOptions,
                 "Of a configuration: an option of nsa-compile that the "
                 "artefact depends on, NAME or NAME=VALUE, such as "
                 "logits-mib=128 (repeatable)")
      ->allow_extra_args(false);
  addRankOptions(app, line);
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
  for (const auto &[given, name] :
       {std::pair(train.allowChangedBatch, "--allow-changed-batch"),
        {train.allowChangedData, "--allow-changed-data"}})
    if (given && train.resume.empty())
      return Error{std::string(name) + " has no effect without --resume"};
  return {};
}

/// A run that begins with the weights of a run or checkpoint, and its
/// configuration but for what suits weights that are trained already; --set
/// says otherwise.
static Status beginFineTuning(CommandLine &line) {
  if (!std::filesystem::is_directory(line.model))
    return Error{"--fine-tune begins with a run or a checkpoint, and " +
                 quote(line.model) + " is no folder"};
  if (!line.train.initFrom.empty())
    return Error{"--init-from has no effect with --fine-tune, which begins "
                 "with the weights of " +
                 line.model};
  NSA_ASSIGN_OR_RETURN(FoundCheckpoint found, findCheckpoint(line.model));
  line.train.initFrom = found.path;
  line.model = found.path + "/" + checkpoint::configFile;
  const char *settings[] = {"train.lr=2e-5", "train.lr_schedule=linear",
                            "train.lr_min=0", "train.warmup_steps=30",
                            "train.steps=1000"};
  line.settings.insert(line.settings.begin(), std::begin(settings),
                       std::end(settings));
  return {};
}

/// A run that goes on with the configuration of its checkpoint.
static Status takeOwnConfiguration(CommandLine &line) {
  const std::string &run = line.train.resume;
  if (run.empty() || run == "auto")
    return Error{"a run configuration (.yaml) or a compiled model (.nsax) is "
                 "required, unless --resume names a run, which has its own"};
  NSA_ASSIGN_OR_RETURN(FoundCheckpoint found, findCheckpoint(run));
  line.model = found.path + "/" + checkpoint::configFile;
  return {};
}

/// Checks the options of a configuration, or of an artefact.
static Status checkModel(CommandLine &line) {
  if (line.model.empty())
    NSA_RETURN_IF_ERROR(takeOwnConfiguration(line));
  else if (line.fineTune)
    NSA_RETURN_IF_ERROR(beginFineTuning(line));
  else if (std::filesystem::is_directory(line.model))
    return Error{line.model +
                 " is a folder: --fine-tune begins with the "
                 "weights of a run or checkpoint, and --resume, after the "
                 "configuration, goes on with one"};
  if (line.data.empty() && !line.estimate)
    return Error{"--data is required"};
  if (namesConfiguration(line.model)) {
    if (line.given.count("--config"))
      return Error{"--config " + line.config +
                   " has no effect: the configuration is " + line.model};
    for (const std::string &option : line.compileOptions)
      NSA_RETURN_IF_ERROR(checkCompileOption(option));
    line.config = line.model;
    return {};
  }
  if (line.estimate)
    return Error{
        "--estimate is of a configuration; nsa-dump --memory says what "
        "the compiled model " +
        line.model + " takes"};
  if (!line.given.count("--config"))
    return Error{"the compiled model " + line.model +
                 " needs --config, its run configuration"};
  if (!line.compileOptions.empty())
    return Error{"--compile-option has no effect on " + line.model +
                 ", which is compiled"};
  line.artefact = line.model;
  return {};
}

std::vector<std::string> CommandLine::overrides() const {
  std::vector<std::string> all = settings;
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}

std::optional<int> nsa::parseOptions(CommandLine &line, int argc, char **argv) {
  const std::string tool = "nsa-train";
  CLI::App app("Trains a model on token shards", tool);
  app.set_version_flag("--version", tool + " " + NSA_VERSION);
  app.footer(exitCodes);
  addOptions(app, line);
  if (std::optional<int> code = parseCommandLine(app, argc, argv))
    return code;
  for (const CLI::Option *option : app.get_options())
    if (option->count() > 0)
      line.given.insert(option->get_name());
  for (const Status &status : {checkModel(line), checkBeginning(line.train)})
    if (!status) {
      reportError(tool, status.message());
      return exitUsage;
    }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// What would have no effect
//===----------------------------------------------------------------------===//

Status nsa::checkLaunch(const CommandLine &line) {
  if (!line.given.count("--nproc"))
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

Status nsa::checkEffect(const CommandLine &line, const RunConfig &config,
                        const RankEnvironment &environment) {
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
    if (line.given.count(option) && environment.size == 1)
      return Error{std::string(option) + " has no effect on one rank"};
  if (line.given.count("--trust-network") && readVariable(tokenVariable))
    return Error{std::string("--trust-network has no effect where ") +
                 tokenVariable + " is set"};
  if (line.given.count("--gpu") && environment.localSize > 1)
    return Error{"--gpu names one GPU for the " +
                 std::to_string(environment.localSize) +
                 " ranks of this machine, which take one each"};
  return {};
}
