//===- Compiler.h - from MLIR text to an artefact ---------------*- C++ -*-===//
//
// The whole compiler behind one call. Nothing of LLVM shows here, so that code
// with exceptions or run-time type information (the Python module) can use it.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_COMPILER_COMPILER_H
#define NSA_COMPILER_COMPILER_H

#include "nsa/Support/Result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// What to compile for. Every field ends up in the artefact's options.
struct CompilerOptions {
  /// The kind of machine. Only "cpu" exists.
  std::string target = "cpu";
  /// The processor: "x86-64-v2", "x86-64-v3", "x86-64-v4", or "native" for the
  /// one that compiles.
  std::string cpu = "x86-64-v3";
  /// Sequences per call of the model; 0 keeps what the source says.
  int64_t microBatch = 0;
  /// Tokens per sequence; 0 keeps what the source says.
  int64_t seqLen = 0;
  /// Compute type of the model: "fp32" or "bf16" (fp32 statistics, sums and
  /// master weights either way).
  std::string precision = "fp32";
  /// Threads that compile. The artefact does not depend on it.
  unsigned threads = 2;
};

/// What a compilation made, in numbers.
struct CompileReport {
  uint64_t kernels = 0;
  /// Commands of all entries together.
  uint64_t commands = 0;
  /// Bytes that a loaded program allocates, by segment kind.
  uint64_t persistentBytes = 0;
  uint64_t ioBytes = 0;
  uint64_t arenaBytes = 0;
  uint64_t workspaceBytes = 0;
  /// Bytes of the kernels' shared object.
  uint64_t binaryBytes = 0;
  /// Wall-clock seconds of each phase in order, "parse" and "write" included.
  std::vector<std::pair<std::string, double>> seconds;

  double totalSeconds() const;
};

/// An artefact in memory.
struct CompiledArtifact {
  /// The contents of a .nsax file. Equal source and options give equal bytes.
  std::string bytes;
  CompileReport report;
  /// Warnings and remarks, one per line; usually empty.
  std::string messages;
};

/// The phases in order: "precision", "gradient", "optimizer", "kernel",
/// "buffer", "schedule", "plan", "binary".
const std::vector<std::string> &compilerPhases();

/// Compiles MLIR text (or bytecode). `name` stands for the source in locations
/// and messages. A failure's message is what the compiler reported, one
/// `name:line:column: error: ...` per problem with the source lines.
Result<CompiledArtifact> compile(const std::string &source,
                                 const std::string &name,
                                 const CompilerOptions &options);

/// Runs the phases up to and including `phase` and returns the IR as text.
Result<std::string> compileTo(const std::string &phase,
                              const std::string &source,
                              const std::string &name,
                              const CompilerOptions &options);

/// Runs every phase but the last, which makes machine code: what a program
/// needs is known without it.
Result<CompileReport> estimate(const std::string &source,
                               const std::string &name,
                               const CompilerOptions &options);

} // namespace nsa

#endif // NSA_COMPILER_COMPILER_H
