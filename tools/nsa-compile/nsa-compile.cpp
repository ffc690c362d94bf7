//===- nsa-compile.cpp - model.mlir to model.nsax -------------------------===//
//
// Parses its command line without LLVM: LLVM's parser would also take the
// hundreds of options that LLVM registers, and they would do nothing here.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/CommandLine.h"
#include "lib/Support/Files.h"
#include "lib/Support/LineBreaks.h"
#include "lib/Support/Process.h"
#include "lib/Support/Text.h"
#include "nsa/Compiler/Compiler.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <cstring>

using namespace nsa;

static constexpr const char *toolName = "nsa-compile";

namespace {

struct Options {
  std::string input;
  std::string output;
  std::string phase;
  /// Where the report of commands goes; "-" is the standard output.
  std::string report;
  DebugOptions debug;
  bool estimate = false;
  bool timing = false;
  /// Whether PTX stays as it is because there is no ptxas.
  bool missesPtxas = false;
  CompilerOptions compiler;
};

} // namespace

/// A flag that turns off what is on without it, or the other way around.
static CLI::Option *addField(CLI::App &app, const OptionField &field,
                             bool &value) {
  if (!value)
    return app.add_flag("--" + field.name, value, field.help);
  return app.add_flag_callback(
      "--no-" + field.name, [&value] { value = false; }, field.help);
}

static CLI::Option *addField(CLI::App &app, const OptionField &field,
                             std::string &value) {
  return app.add_option("--" + field.name, value, field.help);
}

static CLI::Option *addField(CLI::App &app, const OptionField &field,
                             int64_t &value) {
  CLI::Option *option = app.add_option("--" + field.name, value, field.help);
  return field.values.empty() ? option->check(between(field.least, field.most))
                              : option->check(CLI::IsMember(field.values));
}

static CLI::Option *addField(CLI::App &app, const OptionField &field,
                             std::vector<std::string> &value) {
  return app.add_option("--" + field.name, value, field.help)
      ->default_str("")
      ->delimiter(',')
      ->allow_extra_args(false);
}

/// What the artefact depends on, and the assembler.
static void addModelOptions(CLI::App &app, CompilerOptions &compiler) {
  app.option_defaults()->group("Program")->always_capture_default();
  for (const OptionField &field : optionFields())
    std::visit([&](auto member) { addField(app, field, compiler.*member); },
               field.member);
  app.add_flag("-g", compiler.lineInfo, "The same as --line-info");
  app.add_option("--ptxas", compiler.ptxas,
                 "For a GPU: the program ptxas, or none to leave PTX to the "
                 "driver [that of $CUDA_HOME, of the PATH or, if "
                 "CUDA_HOME is not set, of /usr/local/cuda]")
      ->default_str("");
}

/// Output options.
static void addOutputOptions(CLI::App &app, Options &options) {
  app.option_defaults()->group("Output")->always_capture_default(false);
  app.add_option("-o,--output", options.output,
                 "Artefact or IR to write; - is the standard output")
      ->type_name("FILE");
  auto *phase =
      app.add_option("--compile-to", options.phase,
                     "Print the IR after a phase instead: precision, gradient, "
                     "optimizer, kernel, buffer, schedule, collective, plan, "
                     "binary and, for GPUs, layout, nvvm or ptx (the text "
                     "for ptxas)")
          ->type_name("PHASE");
  app.add_flag("--estimate", options.estimate,
               "Print the memory that the program needs; make no artefact")
      ->excludes(phase)
      ->excludes("--output");
  app.add_flag(
         "--report{-}", options.report,
         "Print kernel or library call, flops, bytes, flops per byte, "
         "registers (of a GPU's kernels that ptxas assembled, so with -o) "
         "and source of each command, and sums; --report=FILE writes it to "
         "a file. Without -o no artefact is made")
      ->excludes(phase)
      ->excludes("--estimate");
}

/// For looking into a compilation; the artefact depends on none of it.
static void addDebugOptions(CLI::App &app, Options &options) {
  app.option_defaults()->group("Compilation")->always_capture_default(false);
  app.add_option("--save-phases", options.debug.savePhases,
                 "Folder for the IR after each phase: NN-phase.mlir")
      ->type_name("FOLDER");
  app.add_option("--save-kernels", options.debug.saveKernels,
                 "Folder for each kernel of the artefact: NAME.tile.mlir, "
                 "NAME.llvm.mlir, NAME.ll and NAME.s, for a GPU NAME.ptx and, "
                 "if there is a cuobjdump beside ptxas, NAME.sass")
      ->type_name("FOLDER")
      ->excludes("--compile-to")
      ->excludes("--estimate");
  app.add_option("--remarks-filter", options.debug.remarks,
                 "Print what passes decided, for passes whose name this "
                 "regular expression matches: .* or nsa-recompute")
      ->type_name("REGEX");
  app.add_option("--columns", options.debug.columns,
                 "Break longer lines of IR; 0 leaves them as they are")
      ->capture_default_str();
  app.add_flag("--timing", options.timing, "Print the time of each phase");
  app.add_option("--threads", options.compiler.threads,
                 "Threads that compile; the artefact does not depend on them")
      ->capture_default_str();
}

/// Takes the options of MLIR's pass managers out of the arguments.
static std::vector<const char *> splitArguments(int argc, char **argv,
                                                DebugOptions &debug) {
  std::vector<const char *> own;
  for (int i = 0; i < argc; ++i)
    if (std::strncmp(argv[i], "--mlir-", 7) == 0)
      debug.passManagers.emplace_back(argv[i]);
    else
      own.push_back(argv[i]);
  return own;
}

/// Prints what the compiler reported. Reports on the source stand as they are;
/// they begin with its name and position.
static int reportMessages(const std::string &messages) {
  if (messages.find("error:") == std::string::npos)
    return reportError(toolName, messages);
  std::fprintf(stderr, "%s\n", messages.c_str());
  return 1;
}

static double toMiB(uint64_t bytes) { return double(bytes) / (1 << 20); }

static void printTimes(const CompileReport &report) {
  for (const auto &[phase, seconds] : report.seconds)
    std::fprintf(stderr, "  %-10s %8.3f s\n", phase.c_str(), seconds);
}

static void printSummary(const CompileReport &report) {
  std::fprintf(stderr,
               "%llu kernels, %llu commands, arena %.1f MiB, persistent "
               "%.1f MiB, io %.1f MiB, workspace %.1f MiB, %.1f s\n",
               static_cast<unsigned long long>(report.kernels),
               static_cast<unsigned long long>(report.commands),
               toMiB(report.arenaBytes), toMiB(report.persistentBytes),
               toMiB(report.ioBytes), toMiB(report.workspaceBytes),
               report.totalSeconds());
}

/// Prints warnings and remarks of a compilation that succeeded.
static void printMessages(const std::string &messages) {
  if (!messages.empty())
    std::fprintf(stderr, "%s\n", messages.c_str());
}

/// Says that registers of the kernels are unknown.
static void notePTX(const Options &options) {
  if (options.missesPtxas)
    std::fprintf(stderr,
                 "%s: note: no ptxas was found: the kernels stay PTX, "
                 "which the GPU's driver compiles, and are not checked "
                 "for spills (--ptxas=none does so without this note)\n",
                 toolName);
}

/// Prints what a report says besides the summary, as far as asked for.
static int printDetails(const Options &options, const CompileReport &report) {
  if (options.timing)
    printTimes(report);
  if (options.report.empty())
    return 0;
  Status status = writeOutput(options.report, formatCommands(report));
  return status ? 0 : reportError(toolName, status.message());
}

static int printPhase(const Options &options, const std::string &source) {
  Result<std::string> text = compileTo(options.phase, source, options.input,
                                       options.compiler, options.debug);
  if (!text)
    return reportMessages(text.message());
  printMessages(*options.debug.messages);
  Status status = writeOutput(options.output, *text);
  return status ? 0 : reportError(toolName, status.message());
}

static int printNeeds(const Options &options, const std::string &source) {
  Result<CompileReport> report =
      estimate(source, options.input, options.compiler, options.debug);
  if (!report)
    return reportMessages(report.message());
  printMessages(*options.debug.messages);
  if (options.estimate)
    if (Status status = writeOutput("", formatMemory(*report)); !status)
      return reportError(toolName, status.message());
  return printDetails(options, *report);
}

static int makeArtifact(const Options &options, const std::string &source) {
  if (options.output.empty())
    return reportError(toolName, "no output file; name one with -o model.nsax");
  Result<CompiledArtifact> artifact =
      compile(source, options.input, options.compiler, options.debug);
  if (!artifact)
    return reportMessages(artifact.message());
  printMessages(*options.debug.messages);
  notePTX(options);
  if (Status status = writeOutput(options.output, artifact->bytes); !status)
    return reportError(toolName, status.message());
  int code = printDetails(options, artifact->report);
  printSummary(artifact->report);
  return code;
}

/// Why options that were given have no effect for the target, or nothing.
static std::string findUnused(const CLI::App &app, const std::string &target) {
  bool isCPU = target == "cpu";
  const char *unused = isCPU ? "--ptxas" : "--cpu";
  if (app.get_option(unused)->count() == 0)
    return "";
  return std::string(unused) + " has no effect for the target " + quote(target);
}

int main(int argc, char **argv) {
  ignoreFileSizeSignal();
  CLI::App app("Compiles a model to an executable artefact", toolName);
  app.set_version_flag("--version", std::string(toolName) + " " + NSA_VERSION);
  Options options;
  options.compiler.ptxas = findPtxas(readVariable);
  options.debug.columns = kIRColumns;
  app.add_option("model", options.input,
                 "MLIR to compile; - is the standard input")
      ->type_name("model.mlir")
      ->required();
  addOutputOptions(app, options);
  addModelOptions(app, options.compiler);
  addDebugOptions(app, options);
  app.footer("Options that begin with --mlir-, such as --mlir-timing or "
             "--mlir-print-ir-after=PASS, are those of MLIR's pass managers in "
             "nsa-opt --help, for the passes of every phase");
  std::vector<const char *> arguments =
      splitArguments(argc, argv, options.debug);
  if (std::optional<int> code =
          parseCommandLine(app, int(arguments.size()), arguments.data()))
    return *code;
  if (std::string error = findUnused(app, options.compiler.target);
      !error.empty()) {
    reportError(toolName, error);
    return exitUsage;
  }
  options.missesPtxas =
      options.compiler.target != "cpu" && options.compiler.ptxas.empty();
  if (options.compiler.ptxas == "none")
    options.compiler.ptxas.clear();
  Result<std::string> source =
      readFile(options.input == "-" ? std::string("/dev/stdin") : options.input,
               mostPipedBytes);
  if (!source)
    return reportError(toolName, source.message());
  std::string messages;
  options.debug.messages = &messages;
  if (!options.phase.empty())
    return printPhase(options, *source);
  bool makesNothing = !options.report.empty() && options.output.empty();
  return options.estimate || makesNothing ? printNeeds(options, *source)
                                          : makeArtifact(options, *source);
}
