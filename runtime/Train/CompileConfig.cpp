//===- CompileConfig.cpp - a configuration to an artefact -----------------===//

#include "runtime/Train/CompileConfig.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Suggest.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/Format.h"
#include "runtime/CUDA/GPU.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace nsa;

bool nsa::namesConfiguration(const std::string &path) {
  std::string extension = fs::path(path).extension();
  return extension == ".yaml" || extension == ".yml" || extension == ".json";
}

Status nsa::checkCompileOption(const std::string &option) {
  static const std::vector<std::string> known = {
      "allow-slow-path", "bucket-mib", "cpu",   "line-info",
      "logits-mib",      "no-fuse",    "ptxas", "reduce-precision",
      "shard",           "shard-ranks"};
  std::string name = option.substr(0, option.find('='));
  if (std::find(known.begin(), known.end(), name) != known.end())
    return {};
  std::string list;
  for (const std::string &one : known)
    list += (list.empty() ? "" : ", ") + one;
  return Error{"unknown option of a compilation " + quote(name) +
               suggestion(name, known) + "; they are " + list +
               " (keys of the configuration stand for the others)"};
}

std::vector<std::string>
nsa::makeCompileOptions(const RunConfig &config, const std::string &target,
                        const std::vector<std::string> &options) {
  std::vector<std::string> all = {
      "--target=" + target, "--precision=" + config.runtime.precision,
      "--optimizer=" + config.train.optimizer,
      "--recompute=" + config.runtime.gradientCheckpointing};
  if (config.runtime.recomputeBudget)
    all.push_back("--recompute-budget=" +
                  std::to_string(config.runtime.recomputeBudget));
  if (config.train.contextParallel > 1)
    all.push_back("--context-parallel=" +
                  std::to_string(config.train.contextParallel));
  for (const std::string &option : options)
    all.push_back("--" + option);
  return all;
}

//===----------------------------------------------------------------------===//
// One process
//===----------------------------------------------------------------------===//

/// A program of the compiler.
static Result<std::string> findTool(const std::string &name,
                                    const Variables &variables) {
  std::string folder = fs::path(executablePath()).parent_path();
  if (std::string path = findProgram(name, {folder}, variables); !path.empty())
    return path;
  return Error{name +
               ", which a configuration needs to become an artefact, is "
               "neither in " +
               quote(folder) +
               " nor on the PATH; compile where it is installed, and give "
               "nsa-train the artefact with --config"};
}

/// Adds target and assembler. Fills `options` of `inputs`.
static Status chooseOptions(const CompileRequest &request,
                            const RunConfig &config, const Variables &variables,
                            CompileInputs &inputs) {
  std::vector<std::string> options = request.options;
  std::string target = request.target, ptxas;
  if (target.empty())
    target = artifact::cpuTarget;
  if (request.target.empty() && config.runtime.device != "cpu") {
    NSA_ASSIGN_OR_RETURN(cuda::GPU::Target gpu,
                         cuda::GPU::findTarget(request.gpu));
    target = gpu.name;
    auto given = std::find_if(options.begin(), options.end(),
                              [](const std::string &option) {
                                return option.rfind("ptxas=", 0) == 0;
                              });
    if (given != options.end())
      ptxas = given->substr(given->find('=') + 1);
    else if (gpu.isText)
      ptxas = "none";
    else
      ptxas = findPtxas(variables);
    if (given == options.end() && !ptxas.empty())
      options.push_back("ptxas=" + ptxas);
  }
  inputs.options = makeCompileOptions(config, target, options);
  if (ptxas.empty() || ptxas == "none")
    return {};
  NSA_ASSIGN_OR_RETURN(inputs.assembler, hashFile(ptxas));
  return {};
}

/// The text of the model that a configuration describes; `command` is what made
/// it.
static Result<std::string> makeModel(const CompileRequest &request,
                                     const Variables &variables,
                                     std::vector<std::string> &command) {
  NSA_ASSIGN_OR_RETURN(std::string program, findTool("nsa-model", variables));
  command = {program, request.config};
  for (const std::string &setting : request.overrides)
    command.insert(command.end(), {"--set", setting});
  if (request.stage != 0)
    command.push_back("--stage=" + std::to_string(request.stage + 1));
  return runProgram(command);
}

static std::string secondsSince(std::chrono::steady_clock::time_point start) {
  std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return formatted("%.1f s", time.count());
}

/// What the model in the file `text` needs.
static Result<Estimate> estimateModel(const CompileRequest &request,
                                      const RunConfig &config,
                                      const Variables &variables,
                                      const std::string &text) {
  NSA_ASSIGN_OR_RETURN(std::string compiler,
                       findTool("nsa-compile", variables));
  CompileInputs inputs;
  NSA_RETURN_IF_ERROR(chooseOptions(request, config, variables, inputs));
  std::vector<std::string> command = {
      compiler, text, "--estimate",
      "--micro-batch=" + std::to_string(config.train.microBatch)};
  command.insert(command.end(), inputs.options.begin(), inputs.options.end());
  NSA_ASSIGN_OR_RETURN(std::string said, runProgram(command));
  Result<Estimate> estimate = readEstimate(said);
  if (estimate)
    estimate->target = inputs.options[0].substr(std::strlen("--target="));
  return estimate;
}

Result<Estimate> nsa::estimateConfig(const CompileRequest &request,
                                     const RunConfig &config,
                                     const Variables &variables) {
  std::vector<std::string> command;
  NSA_ASSIGN_OR_RETURN(std::string model,
                       makeModel(request, variables, command));
  std::string text = fs::temp_directory_path() /
                     ("nsa-" + std::to_string(::getpid()) + ".mlir");
  NSA_RETURN_IF_ERROR(writeFileAtomically(text, model));
  Result<Estimate> estimate = estimateModel(request, config, variables, text);
  std::error_code ignored;
  fs::remove(text, ignored);
  return estimate;
}

Result<std::string> nsa::compileConfig(const CompileRequest &request,
                                       const RunConfig &config,
                                       const Variables &variables,
                                       const ArtifactCache::Say &say) {
  std::error_code code;
  if (!fs::is_regular_file(request.config, code))
    return Error{"cannot compile " + quote(request.config) +
                 ": nsa-model reads it once more, and it is no file"};
  NSA_ASSIGN_OR_RETURN(std::string compiler,
                       findTool("nsa-compile", variables));
  CompileInputs inputs;
  NSA_RETURN_IF_ERROR(chooseOptions(request, config, variables, inputs));
  NSA_ASSIGN_OR_RETURN(ArtifactCache cache, ArtifactCache::open(variables));
  std::vector<std::string> modelCommand;
  NSA_ASSIGN_OR_RETURN(inputs.model,
                       makeModel(request, variables, modelCommand));
  NSA_ASSIGN_OR_RETURN(inputs.compiler, hashFile(compiler));

  std::string name = fs::path(request.config).stem();
  auto compile = [&](const std::string &text,
                     const std::string &artifact) -> Status {
    if (request.memory)
      NSA_RETURN_IF_ERROR(checkMemory(
          config, double(request.memory), [&](const RunConfig &other) {
            return estimateModel(request, other, variables, text);
          }));
    auto start = std::chrono::steady_clock::now();
    std::vector<std::string> command = {compiler, text, "-o", artifact};
    command.insert(command.end(), inputs.options.begin(), inputs.options.end());
    say("compiling " + request.config + " (cached in " +
        cache.entry(name, inputs) + ")\n  " + quoteCommand(modelCommand) +
        " > " + quoteCommand({text}) + "\n  " + quoteCommand(command));
    if (Result<std::string> made = runProgram(command); !made)
      return Error{made.message()};
    say("compiled in " + secondsSince(start));
    return {};
  };
  return cache.get(name, inputs, compile, say);
}

//===----------------------------------------------------------------------===//
// Several ranks
//===----------------------------------------------------------------------===//

static std::string hostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

Result<std::string> nsa::compileForRanks(const CompileRequest &request,
                                         const RunConfig &config,
                                         const Variables &variables,
                                         const ArtifactCache::Say &say,
                                         Ranks &ranks) {
  // Compilers of large models take their time; who is lost ends the wait.
  constexpr Milliseconds most = std::chrono::hours(24);
  std::string own;
  Status status;
  if (ranks.localRank() == 0) {
    Result<std::string> path = compileConfig(request, config, variables, say);
    if (path)
      own = *path;
    else
      status = Error{path.message()};
  }
  if (ranks.size() == 1)
    return status ? Result<std::string>(own) : Error{status.message()};
  NSA_RETURN_IF_ERROR(ranks.synchronizeStatus("the compilation", status, most));
  NSA_ASSIGN_OR_RETURN(
      std::vector<std::string> paths,
      ranks.exchange("the artefact",
                     own.empty() ? "" : hostName() + "\n" + own));
  if (!own.empty())
    return own;
  std::string prefix = hostName() + "\n";
  for (const std::string &path : paths)
    if (path.rfind(prefix, 0) == 0)
      return path.substr(prefix.size());
  return Error{
      "no rank of this machine has compiled the model: none calls it " +
      quote(hostName()) + " and has the local rank 0"};
}
