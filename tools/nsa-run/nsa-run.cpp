//===- nsa-run.cpp - runs an entry of an artefact -------------------------===//

#include "lib/Support/CommandLine.h"
#include "lib/Support/Files.h"
#include "lib/Support/Suggest.h"
#include "lib/Support/Text.h"
#include "nsa/Runtime/Runtime.h"
#include "runtime/CPU/Convert.h"
#include "runtime/Core/TensorFiles.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

using namespace nsa;

static constexpr const char *toolName = "nsa-run";
static constexpr const char *initEntry = "init";

namespace {

struct Options {
  std::string artifact;
  std::string entry;
  std::vector<std::string> inputs;
  std::string outputDirectory;
  uint64_t repeat = 1;
  bool time = false;
  RuntimeOptions runtime;
};

} // namespace

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

using InputFiles = std::map<std::string, std::string>;

/// Splits "name=file" arguments.
static Result<InputFiles> parseInputs(const std::vector<std::string> &inputs) {
  InputFiles files;
  for (const std::string &input : inputs) {
    size_t equals = input.find('=');
    if (equals == 0 || equals == std::string::npos)
      return Error{"--input: " + quote(input) +
                   " is not of the form NAME=FILE.npy"};
    std::string name = input.substr(0, equals);
    if (!files.emplace(name, input.substr(equals + 1)).second)
      return Error{"--input: " + quote(name) + " is given twice"};
  }
  return files;
}

/// Whether a run needs a file for this input of its entry.
static bool needsFile(const Program &program, const TensorView &tensor) {
  if (tensor.role == TensorRole::Input)
    return true;
  bool weight = tensor.role == TensorRole::Parameter ||
                tensor.role == TensorRole::Constant;
  return weight && !program.findEntry(initEntry);
}

/// Fails when an input of the entry has no file.
static Status checkComplete(const Program &program, const EntryInfo &entry,
                            const InputFiles &files) {
  std::string missing;
  for (unsigned index : entry.inputs) {
    const TensorView &tensor = program.tensors()[index];
    if (needsFile(program, tensor) && !files.count(tensor.name))
      missing += (missing.empty() ? "" : ", ") + tensor.name + " (" +
                 typeName(tensor.type) + "[" + shapeText(tensor.shape) + "])";
  }
  if (missing.empty())
    return {};
  return Error{"entry " + quote(entry.name) + " needs --input for " + missing};
}

/// Reads the files into the tensors that they name.
static Status loadInputs(const Program &program, const EntryInfo &entry,
                         const InputFiles &files) {
  std::vector<std::string> names;
  names.reserve(entry.inputs.size());
  for (unsigned index : entry.inputs)
    names.push_back(program.tensors()[index].name);
  for (const auto &[name, path] : files) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      return Error{"entry " + quote(entry.name) + " has no input " +
                   quote(name) + suggestion(name, names)};
    NSA_ASSIGN_OR_RETURN(NpyArray array, readNpy(path));
    const TensorView &tensor = *program.findTensor(name);
    if (Status status = loadTensor(array, tensor); !status)
      return Error{path + ": " + status.message()};
    NSA_RETURN_IF_ERROR(program.toDevice(tensor));
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Outputs
//===----------------------------------------------------------------------===//

/// The value of a scalar in as few digits as it needs.
static std::string scalarText(const TensorView &tensor) {
  double value = elementAt(tensor.type, tensor.data, 0);
  return isFloat(tensor.type) ? shortest(float(value)) : shortest(value);
}

/// One line about a tensor's values.
static void printTensor(const TensorView &tensor) {
  std::printf("%s: %s", tensor.name.c_str(), typeName(tensor.type));
  if (tensor.shape.empty()) {
    std::printf(" %s\n", scalarText(tensor).c_str());
    return;
  }
  std::printf("[%s]", shapeText(tensor.shape).c_str());
  double low = INFINITY, high = -INFINITY, sum = 0;
  uint64_t finite = 0, count = tensor.elements();
  for (uint64_t i = 0; i < count; ++i) {
    double value = elementAt(tensor.type, tensor.data, int64_t(i));
    if (!std::isfinite(value))
      continue;
    low = std::min(low, value);
    high = std::max(high, value);
    sum += value;
    ++finite;
  }
  if (finite > 0)
    std::printf(" from %.6g to %.6g, mean %.6g", low, high,
                sum / double(finite));
  if (finite < count)
    std::printf(", %" PRIu64 " not finite", count - finite);
  std::printf("\n");
}

static Status writeOutputs(const Program &program, const EntryInfo &entry,
                           const std::string &directory) {
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  if (code)
    return Error{"cannot create " + quote(directory) + ": " + code.message()};
  for (unsigned index : entry.outputs) {
    const TensorView &tensor = program.tensors()[index];
    if (tensor.name.find('/') != std::string::npos)
      return Error{"output " + quote(tensor.name) + " is not a file name"};
    std::string path = directory + "/" + tensor.name + ".npy";
    NSA_RETURN_IF_ERROR(writeFileAtomically(path, formatTensor(tensor)));
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

/// Prints the commands that took longest, as times per run.
static void printProfile(const Program &program, const EntryInfo &entry,
                         uint64_t runs) {
  constexpr size_t shown = 20;
  std::vector<CommandProfile> commands = program.profile(entry);
  std::stable_sort(commands.begin(), commands.end(),
                   [](const CommandProfile &a, const CommandProfile &b) {
                     return a.nanoseconds > b.nanoseconds;
                   });
  uint64_t total = 0, rest = 0;
  for (const CommandProfile &command : commands)
    total += command.nanoseconds;
  for (size_t i = 0; i < commands.size(); ++i) {
    const CommandProfile &command = commands[i];
    if (i >= shown) {
      rest += command.nanoseconds;
      continue;
    }
    double milliseconds = double(command.nanoseconds) / 1e6 / double(runs);
    double share = 100.0 * double(command.nanoseconds) /
                   double(std::max<uint64_t>(total, 1));
    double speed =
        milliseconds > 0 ? double(command.flops) / milliseconds / 1e6 : 0;
    std::printf("%10.3f ms %5.1f%% %8.1f GFLOP/s  %s  %s\n", milliseconds,
                share, speed, command.command.c_str(),
                command.location.c_str());
  }
  if (commands.size() > shown)
    std::printf("%10.3f ms in %zu more commands\n",
                double(rest) / 1e6 / double(runs), commands.size() - shown);
}

static void printTimes(const Program &program, const EntryInfo &entry,
                       std::vector<double> milliseconds) {
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf("%s: fastest %.3f ms, median %.3f ms of %zu runs, %d threads\n",
              entry.name.c_str(), milliseconds.front(),
              milliseconds[milliseconds.size() / 2], milliseconds.size(),
              program.threads());
  printProfile(program, entry, milliseconds.size());
}

//===----------------------------------------------------------------------===//
// The run
//===----------------------------------------------------------------------===//

/// Initialises the program, sets the inputs and runs the entry.
static Status runEntry(Program &program, const EntryInfo &entry,
                       const Options &options) {
  NSA_ASSIGN_OR_RETURN(InputFiles files, parseInputs(options.inputs));
  NSA_RETURN_IF_ERROR(checkComplete(program, entry, files));
  if (entry.name != initEntry && program.findEntry(initEntry))
    NSA_RETURN_IF_ERROR(program.run(initEntry));
  NSA_RETURN_IF_ERROR(loadInputs(program, entry, files));
  std::vector<double> milliseconds;
  for (uint64_t i = 0; i < options.repeat; ++i) {
    auto start = std::chrono::steady_clock::now();
    NSA_RETURN_IF_ERROR(program.run(entry));
    milliseconds.push_back(std::chrono::duration<double, std::milli>(
                               std::chrono::steady_clock::now() - start)
                               .count());
  }
  for (unsigned index : entry.outputs) {
    const TensorView &tensor = program.tensors()[index];
    NSA_RETURN_IF_ERROR(program.toHost(tensor));
    printTensor(tensor);
  }
  if (options.time)
    printTimes(program, entry, milliseconds);
  if (!options.outputDirectory.empty())
    return writeOutputs(program, entry, options.outputDirectory);
  return {};
}

/// The artefact for tensors of the shapes in the input files, where these are
/// not known before.
static Result<Artifact> openArtifact(const Options &options) {
  Result<Artifact> artifact = Artifact::open(options.artifact);
  if (!artifact || !artifact->needsExtents())
    return artifact;
  NSA_ASSIGN_OR_RETURN(InputFiles files, parseInputs(options.inputs));
  std::map<std::string, std::vector<uint64_t>> shapes;
  for (const auto &[name, path] : files) {
    NSA_ASSIGN_OR_RETURN(NpyArray array, readNpy(path));
    shapes.emplace(name, array.shape);
  }
  return artifact->withShapes(shapes);
}

static Status run(const Options &options) {
  NSA_ASSIGN_OR_RETURN(Artifact artifact, openArtifact(options));
  NSA_ASSIGN_OR_RETURN(Program program,
                       Program::create(artifact, options.runtime));
  Result<const EntryInfo *> entry = program.entry(options.entry);
  if (!entry)
    return Error{options.artifact + ": " + entry.message()};
  return runEntry(program, **entry, options);
}

static void addOptions(CLI::App &app, Options &options) {
  app.add_option("artefact", options.artifact, "File made by nsa-compile")
      ->required();
  app.add_option("--entry", options.entry,
                 "Entry to run. The entry 'init' runs before any other")
      ->required();
  app.add_option("--input", options.inputs,
                 "C-ordered array for an input, of its shape (repeatable). f32 "
                 "rounds to bf16; other conversions must be "
                 "exact")
      ->type_name("NAME=FILE.npy")
      ->default_str("")
      ->expected(1)
      ->take_all();
  app.add_option("--output-dir", options.outputDirectory,
                 "Folder for NAME.npy of every output; bf16 is written as f32")
      ->type_name("FOLDER");
  app.add_option("--seed", options.runtime.seed, "Seed of initial values");
  app.add_option("--threads", options.runtime.threads,
                 "Threads; 0 takes one per processor");
  app.add_option("--blas", options.runtime.blasLibrary,
                 "OpenBLAS or, on a GPU, cuBLASLt: a file or a folder (also "
                 "from NSA_BLAS)");
  app.add_option("--gpu", options.runtime.device, "Number of the GPU to use")
      ->check(atLeast(0))
      ->capture_default_str();
  app.add_flag("--no-graph", options.runtime.noGraph,
               "On a GPU, run one command after the other instead of a CUDA "
               "graph, wait for each and check its outputs: what fails is "
               "named (slow)");
  app.add_option("--repeat", options.repeat,
                 "Runs; each goes on from the state that the last one left")
      ->check(between(1, 1ll << 32));
  app.add_flag("--time", options.time,
               "Print the time of a run and of its longest commands");
  app.add_flag("--check", options.runtime.checkFinite,
               "Stop at the first command that writes a NaN or an infinity, "
               "or that reads selected blocks beyond that of their token");
  app.add_flag("--poison", options.runtime.poison,
               "Fill scratch memory and outputs with NaNs before each run");
}

static int runMain(int argc, char **argv) {
  Options options;
  if (const char *blas = std::getenv("NSA_BLAS"))
    options.runtime.blasLibrary = blas;
  CLI::App app("Runs an entry of an artefact with arrays from .npy files and "
               "prints a line about each output",
               toolName);
  app.option_defaults()->always_capture_default();
  app.set_version_flag("--version", std::string(toolName) + " " + NSA_VERSION);
  app.footer("An artefact holds machine code, which runs with your rights: run "
             "only those that you trust.");
  addOptions(app, options);
  if (std::optional<int> code = parseCommandLine(app, argc, argv))
    return *code;
  options.runtime.profile = options.time;
  if (Status status = run(options); !status)
    return reportError(toolName, status.message());
  return 0;
}

int main(int argc, char **argv) {
  return runTool(toolName,
                 [&] { return finishOutput(toolName, runMain(argc, argv)); });
}
