//===- nsa-compile.cpp - model.mlir to model.nsax -------------------------===//

#include "lib/Support/Files.h"
#include "nsa/Compiler/Compiler.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

static cl::OptionCategory category("nsa-compile options");
static cl::opt<std::string> inputFile(cl::Positional, cl::Required,
                                      cl::desc("<model.mlir>"),
                                      cl::cat(category));
static cl::opt<std::string>
    outputFile("o", cl::desc("The file to write; - is the standard output"),
               cl::value_desc("model.nsax"), cl::cat(category));
static cl::opt<std::string> target("target",
                                   cl::desc("Kind of machine: cpu (default)"),
                                   cl::init("cpu"), cl::cat(category));
static cl::opt<std::string>
    cpu("cpu",
        cl::desc("Processor: x86-64-v2, x86-64-v3 (default), x86-64-v4, "
                 "native"),
        cl::init("x86-64-v3"), cl::cat(category));
static cl::opt<int64_t>
    microBatch("micro-batch",
               cl::desc("Sequences per call; 0 keeps what the source says"),
               cl::init(0), cl::cat(category));
static cl::opt<int64_t>
    seqLen("seq-len",
           cl::desc("Tokens per sequence; 0 keeps what the source says"),
           cl::init(0), cl::cat(category));
static cl::opt<std::string>
    precision("precision", cl::desc("Compute type: fp32 (default), bf16"),
              cl::init("fp32"), cl::cat(category));
static cl::opt<std::string>
    compileToPhase("compile-to",
                   cl::desc("Print the IR after a phase instead: precision, "
                            "gradient, optimizer, kernel, buffer, schedule, "
                            "plan, binary"),
                   cl::value_desc("phase"), cl::cat(category));
static cl::opt<bool>
    estimateOnly("estimate",
                 cl::desc("Print what the program needs; make no artefact"),
                 cl::cat(category));
static cl::opt<bool> timing("timing", cl::desc("Print the time of each phase"),
                            cl::cat(category));
static cl::opt<unsigned> threads("threads",
                                 cl::desc("Threads that compile (2)"),
                                 cl::init(2), cl::cat(category));

static int fail(const Twine &message) {
  errs() << "nsa-compile: error: " << message << "\n";
  return 1;
}

/// LLVM registers options of its own, which would pass without effect here.
static std::optional<StringRef> findForeignOption() {
  for (auto &[name, option] : cl::getRegisteredOptions()) {
    if (option->getNumOccurrences() == 0 ||
        is_contained(option->Categories, &category) || name == "version")
      continue;
    return name;
  }
  return std::nullopt;
}

static double toMiB(uint64_t bytes) { return double(bytes) / (1 << 20); }

static void printTimes(const nsa::CompileReport &report) {
  for (const auto &[phase, seconds] : report.seconds)
    errs() << format("  %-10s %8.3f s\n", phase.c_str(), seconds);
}

static void printSummary(const nsa::CompileReport &report) {
  errs() << report.kernels << " kernels, " << report.commands << " commands, "
         << format("arena %.1f MiB, persistent %.1f MiB, %.1f s\n",
                   toMiB(report.arenaBytes), toMiB(report.persistentBytes),
                   report.totalSeconds());
}

static void printEstimate(const nsa::CompileReport &report) {
  struct Line {
    const char *name;
    uint64_t bytes;
  };
  const Line lines[] = {{"persistent", report.persistentBytes},
                        {"io", report.ioBytes},
                        {"arena", report.arenaBytes},
                        {"workspace", report.workspaceBytes}};
  uint64_t total = 0;
  for (const Line &line : lines) {
    outs() << format("%-10s %12.2f MiB\n", line.name, toMiB(line.bytes));
    total += line.bytes;
  }
  outs() << format("%-10s %12.2f MiB\n", "total", toMiB(total))
         << report.kernels << " kernels, " << report.commands << " commands\n";
}

/// Writes to a file, or to the standard output for "-" or nothing.
static int write(const std::string &path, const std::string &contents) {
  if (path == "-" || path.empty()) {
    outs() << contents;
    return 0;
  }
  nsa::Status status = nsa::writeFileAtomically(path, contents);
  return status ? 0 : fail(status.message());
}

namespace {
/// The command line. The linker inside the compiler resets options to their
/// defaults, so they are read once, before.
struct Invocation {
  std::string input = inputFile;
  std::string output = outputFile;
  std::string phase = compileToPhase;
  bool estimate = estimateOnly;
  bool timing = ::timing;
  nsa::CompilerOptions options;
  std::string source;
};
} // namespace

static nsa::CompilerOptions getCompilerOptions() {
  nsa::CompilerOptions options;
  options.target = target;
  options.cpu = cpu;
  options.microBatch = microBatch;
  options.seqLen = seqLen;
  options.precision = precision;
  options.threads = threads;
  return options;
}

static int compileToText(const Invocation &invocation) {
  nsa::Result<std::string> text =
      nsa::compileTo(invocation.phase, invocation.source, invocation.input,
                     invocation.options);
  if (text)
    return write(invocation.output, *text);
  errs() << text.message() << "\n";
  return 1;
}

static int runEstimate(const Invocation &invocation) {
  nsa::Result<nsa::CompileReport> report =
      nsa::estimate(invocation.source, invocation.input, invocation.options);
  if (!report) {
    errs() << report.message() << "\n";
    return 1;
  }
  printEstimate(*report);
  if (invocation.timing)
    printTimes(*report);
  return 0;
}

static int compileToFile(const Invocation &invocation) {
  if (invocation.output.empty())
    return fail("no output file; name one with -o model.nsax");
  nsa::Result<nsa::CompiledArtifact> artifact =
      nsa::compile(invocation.source, invocation.input, invocation.options);
  if (!artifact) {
    errs() << artifact.message() << "\n";
    return 1;
  }
  errs() << artifact->messages;
  if (int code = write(invocation.output, artifact->bytes))
    return code;
  if (invocation.timing)
    printTimes(artifact->report);
  printSummary(artifact->report);
  return 0;
}

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv,
                              "Compiles a model to an executable artefact\n");
  if (std::optional<StringRef> foreign = findForeignOption())
    return fail("unknown option '--" + *foreign + "'");

  Invocation invocation;
  invocation.options = getCompilerOptions();
  if (invocation.estimate && !invocation.phase.empty())
    return fail("--estimate and --compile-to exclude each other");
  ErrorOr<std::unique_ptr<MemoryBuffer>> source =
      MemoryBuffer::getFileOrSTDIN(invocation.input);
  if (std::error_code error = source.getError())
    return fail("cannot read '" + invocation.input + "': " + error.message());
  invocation.source = (*source)->getBuffer().str();
  if (!invocation.phase.empty())
    return compileToText(invocation);
  return invocation.estimate ? runEstimate(invocation)
                             : compileToFile(invocation);
}
