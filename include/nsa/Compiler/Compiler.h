//===- Compiler.h - from MLIR text to an artefact ---------------*- C++ -*-===//
//
// The whole compiler as one call. Nothing of LLVM shows here, so that code
// with exceptions or run-time type information (the Python module) can use it.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_COMPILER_COMPILER_H
#define NSA_COMPILER_COMPILER_H

#include "nsa/Compiler/Options.h"

#include <optional>

namespace nsa {

/// Debug output of a compilation; the artefact depends on none of it.
struct DebugOptions {
  /// Folder for the IR after each phase, as NN-phase.mlir; created if needed.
  /// Empty: not saved.
  std::string savePhases;
  /// Folder for each kernel of the artefact at each level, created if needed:
  /// NAME.tile.mlir, NAME.llvm.mlir, NAME.ll, and NAME.s, or NAME.ptx and, with
  /// a cuobjdump beside ptxas, NAME.sass. Empty: not saved.
  std::string saveKernels;
  /// Regular expression: passes whose name it matches report what they decided.
  /// Empty: none.
  std::string remarks;
  /// Options of MLIR's pass managers, as mlir-opt has them, for the passes of
  /// every phase: "--mlir-timing", "--mlir-print-ir-after=nsa-fuse".
  std::vector<std::string> passManagers;
  /// Columns after which lines of IR are broken; 0 leaves them as they are.
  unsigned columns = 0;
  /// Takes warnings and remarks of a compilation that succeeds, one per line;
  /// may be null.
  std::string *messages = nullptr;
};

/// What one command of an entry does.
struct CommandReport {
  std::string entry;
  /// Position in the entry, from 0.
  unsigned number = 0;
  /// "launch", "gemm", "fill", "copy" or "initialize".
  std::string kind;
  /// The kernel, or the library function with its sizes; empty for a kind that
  /// needs neither.
  std::string call;
  /// Floating-point operations; nothing where unknown.
  std::optional<uint64_t> flops;
  /// Bytes of all operands: what the command reads and writes, each once.
  uint64_t bytes = 0;
  /// 32-bit registers of a thread of the kernel; nothing on a CPU, and where no
  /// assembler has run.
  std::optional<uint64_t> registers;
  /// Where in the source it comes from, with the tags of passes.
  std::string location;
  /// The layer of the model that it belongs to, from 0; nothing outside of
  /// layers. Layers are found in the graph as nsa-recompute finds them.
  std::optional<unsigned> layer;
  /// Whether it belongs to the backward graph, recomputation included.
  bool backward = false;
};

/// Commands that one layer of the model has in an entry, matmuls included.
struct LayerCommands {
  std::string entry;
  unsigned layers = 0;
  /// The largest and the smallest number of all layers.
  unsigned forward = 0, leastForward = 0;
  unsigned backward = 0, leastBackward = 0;
};

/// Bytes of persistent tensors by what they are for, each rounded up to the
/// alignment of its segment.
struct PersistentMemory {
  uint64_t weights = 0;
  /// What the optimizer keeps for weights.
  uint64_t optimizer = 0;
  uint64_t gradients = 0;
  uint64_t constants = 0;
  /// Other state.
  uint64_t state = 0;
};

/// What the activations of one entry take.
struct ActivationPeak {
  std::string entry;
  /// Bytes of the arena that the entry uses.
  uint64_t bytes = 0;
  /// The largest number of bytes alive at one command: no plan takes less.
  uint64_t liveBytes = 0;
};

/// Statistics of a compilation.
struct CompileReport {
  uint64_t kernels = 0;
  /// Commands of all entries together.
  uint64_t commands = 0;
  /// Bytes that a loaded program allocates, by segment kind.
  uint64_t persistentBytes = 0;
  uint64_t ioBytes = 0;
  uint64_t arenaBytes = 0;
  /// The most bytes of the arena that hold a value at once: no plan of the same
  /// commands needs less.
  uint64_t liveBytes = 0;
  uint64_t workspaceBytes = 0;
  /// Of the host: whole weights of which ranks keep parts.
  uint64_t hostBytes = 0;
  /// Elements of all parameters.
  uint64_t parameters = 0;
  /// `persistentBytes` by kind.
  PersistentMemory persistent;
  /// One for each entry with activations.
  std::vector<ActivationPeak> peaks;
  /// Bytes of the kernels' machine code.
  uint64_t binaryBytes = 0;
  /// One for each command, by entry and position.
  std::vector<CommandReport> table;
  /// Wall-clock seconds of each phase in order, "parse" and "write" included.
  std::vector<std::pair<std::string, double>> seconds;

  /// The sum of `seconds`.
  double totalSeconds() const;
};

/// One for each entry that has commands of layers, in the order of entries.
std::vector<LayerCommands> countLayerCommands(const CompileReport &report);

/// A human-readable report: commands per layer, then each command by entry and
/// falling cost (flops, or 8 per byte where memory takes longer), then sums by
/// entry and kind. Registers are those of a kernel on targets that report them,
/// else n/a.
std::string formatCommands(const CompileReport &report);

/// The memory of a report, human-readable: by segment and kind, the sum, and
/// the peak of each entry beside the lower bound, with its flops. nsa-train
/// reads it.
std::string formatMemory(const CompileReport &report);

/// An artefact in memory.
struct CompiledArtifact {
  /// The contents of a .nsax file. Equal source and options give equal bytes.
  std::string bytes;
  CompileReport report;
};

/// The phases in order: "precision", "gradient", "optimizer", "kernel",
/// "buffer", "schedule", "collective", "plan", "binary".
const std::vector<std::string> &compilerPhases();

/// What a GPU has between "plan" and "binary": "layout", "nvvm" and "ptx". The
/// last one is text for ptxas and not IR.
const std::vector<std::string> &gpuPhases();

/// Compiles MLIR text (or bytecode). `name` stands for the source in locations
/// and messages. A failure's message is what the compiler reported, one
/// `name:line:column: error: ...` per problem with the source lines.
Result<CompiledArtifact> compile(const std::string &source,
                                 const std::string &name,
                                 const CompilerOptions &options,
                                 const DebugOptions &debug = {});

/// Runs the phases up to and including `phase`, one of `compilerPhases` or
/// `gpuPhases`, and returns the IR as text.
Result<std::string> compileTo(const std::string &phase,
                              const std::string &source,
                              const std::string &name,
                              const CompilerOptions &options,
                              const DebugOptions &debug = {});

/// Runs every phase but the last, which makes machine code: what a program
/// needs is known without it.
Result<CompileReport> estimate(const std::string &source,
                               const std::string &name,
                               const CompilerOptions &options,
                               const DebugOptions &debug = {});

/// The text of the model that a configuration describes, YAML or JSON, as
/// nsa-model writes it. `name` stands for its file in messages, and names the
/// model; overrides are "section.key=value". Of a configuration with stages, it
/// is the model of stage number `stage`.
Result<std::string>
makeModelText(const std::string &config, const std::string &name,
              const std::vector<std::string> &overrides = {}, size_t stage = 1);

/// What an artefact depends on besides the source and its name, as text: the
/// build of the compiler, options, ptxas and, for the processor "native", what
/// that is here. Equal texts give equal artefacts.
Result<std::string> describeInputs(const CompilerOptions &options);

} // namespace nsa

#endif // NSA_COMPILER_COMPILER_H
