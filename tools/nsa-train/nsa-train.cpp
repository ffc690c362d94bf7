//===- nsa-train.cpp - trains an artefact on token shards -----------------===//

#include "lib/Support/CommandLine.h"
#include "lib/Support/Config.h"
#include "lib/Support/Files.h"
#include "runtime/Train/Agreement.h"
#include "runtime/Train/Trainer.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <unistd.h>

using namespace nsa;

static constexpr const char *toolName = "nsa-train";

static constexpr const char *exitCodes =
    "Exit codes:\n"
    "  0  finished, or halted by .HALT or --stop-after (checkpoint saved)\n"
    "  1  error: the message says what does not work\n"
    "  2  wrong command line\n"
    "  3  the loss or the gradient norm was not finite; the update was not\n"
    "     applied, .anomaly_type is written, the last checkpoint is kept\n"
    "  4  stopped by SIGINT or SIGTERM (checkpoint saved)\n"
    "SIGUSR1 writes state_dump_STEP.json into the run directory.\n"
    "A file .HALT there with the run's id, or an empty one made after the\n"
    "start, stops the run after the step.";

static int exitCode(TrainEnd end) {
  switch (end) {
  case TrainEnd::Finished:
  case TrainEnd::Halted:
    return 0;
  case TrainEnd::NonFinite:
    return 3;
  case TrainEnd::Interrupted:
    return 4;
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
  int gpu = 0;
  bool noGraph = false;
  bool checkFinite = false;
  /// Steps to profile; 0 for none.
  int64_t profileSteps = 0;
  TrainOptions train;
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
                 "Folder of the run below train.out_dir [time and config]");
  app.add_option("--resume", line.train.resume,
                 "Checkpoint or run to continue, or auto for the newest one "
                 "of this artefact and data below train.out_dir");
  app.add_option("--stop-after", line.train.stopAfter,
                 "Save and stop after this many steps of this process")
      ->check(CLI::PositiveNumber);
  app.add_flag("--separate-update", line.train.separateUpdate,
               "Run accumulate and update instead of the fused step");
  app.add_option("--stall-seconds", line.train.stallSeconds,
                 "A step that takes longer is the anomaly heartbeat_stall; 0 "
                 "allows any time")
      ->check(CLI::NonNegativeNumber)
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
      ->check(CLI::Range(int64_t(1), int64_t(1) << 20));
  app.add_option("--blas", line.blasLibrary,
                 "OpenBLAS or, on a GPU, cuBLASLt: the library, or the folder "
                 "that holds it");
  app.add_option("--gpu", line.gpu, "Number of the GPU to use")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--no-graph", line.noGraph,
               "On a GPU, run one command after the other instead of a CUDA "
               "graph, wait for each and check its outputs: what fails is "
               "named (slow)");
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

static int train(CommandLine &line) {
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
  RuntimeOptions runtime;
  runtime.threads = int(config->runtime.threads);
  runtime.seed = uint64_t(config->train.seed);
  runtime.blasLibrary = line.blasLibrary;
  runtime.device = line.gpu;
  runtime.noGraph = line.noGraph;
  runtime.checkFinite = line.checkFinite;
  runtime.profile = line.profileSteps > 0;
  Result<Program> program = Program::create(*artifact, runtime);
  if (!program)
    return fail(program.message());
  line.train.configPath = line.config;
  line.train.facts.emplace_back("artefact", line.artefact);
  line.train.facts.emplace_back("threads", std::to_string(program->threads()));
  line.train.facts.emplace_back("gemm", program->gemmLibrary());
  if (!program->gpu().empty())
    line.train.facts.emplace_back("gpu", program->gpu());
  line.train.facts.emplace_back("program_bytes",
                                std::to_string(program->memory().allocated));
  std::optional<StepProfile> profile;
  if (runtime.profile) {
    Result<std::optional<GPUPeaks>> gpu = program->measureGPU();
    if (!gpu)
      return fail(gpu.message());
    profile.emplace(line.profileSteps, program->threads(), std::move(*gpu));
  }
  ProgramModel model(std::move(*program), profile ? &*profile : nullptr);
  Console console(stdout, !line.noProgress && ::isatty(STDOUT_FILENO));
  Trainer trainer(model, *data, *config, line.train, console);
  Result<TrainEnd> end = trainer.run();
  if (!end)
    return fail(end.message());
  if (profile)
    if (Status status =
            reportProfile(*profile, model.get(), trainer.runDirectory());
        !status)
      return fail(status.message());
  return exitCode(*end);
}

int main(int argc, char **argv) {
  CLI::App app("Trains a compiled model on token shards", toolName);
  app.set_version_flag("--version", std::string("nsa-train ") + NSA_VERSION);
  app.footer(exitCodes);
  CommandLine line;
  addOptions(app, line);
  if (std::optional<int> code = parseCommandLine(app, argc, argv))
    return *code;
  std::string command;
  for (int i = 0; i < argc; ++i)
    command += (i ? " " : "") + std::string(argv[i]);
  line.train.facts = {{"tool", std::string("nsa-train ") + NSA_VERSION},
                      {"command", command}};
  return train(line);
}
