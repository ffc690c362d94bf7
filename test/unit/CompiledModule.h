//===- CompiledModule.h - compiled MLIR with tensors as doubles -*- C++ -*-===//
//
// Compiles a module in memory, loads it and moves its named tensors in and out
// as tensors of doubles, whatever their element types.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_COMPILEDMODULE_H
#define NSA_TEST_UNIT_COMPILEDMODULE_H

#include "nsa/Compiler/Compiler.h"
#include "nsa/Runtime/Runtime.h"
#include "test/unit/Tensor.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>

namespace nsa::test {

/// NSA_TEST_SEED if that is set, else a random number; printed once.
uint64_t testSeed();

/// How many cases of a sweep to try: all of them in the full suite,
/// NSA_SWEEP_COUNT if that is set, else a sample.
size_t sweepCount(size_t full, size_t sample);

/// So many of a list, others with another seed.
template <typename T>
std::vector<T> sampleOf(std::vector<T> list, size_t sample, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::shuffle(list.begin(), list.end(), random);
  list.resize(std::min(list.size(), sweepCount(list.size(), sample)));
  return list;
}

/// Whether the tensors are the same bit by bit, but for the sign of NaN.
bool isSame(const Tensor &x, const Tensor &y);

/// The largest |x - y|, infinities equal to themselves; NaN if any is NaN.
double distance(const Tensor &x, const Tensor &y);

/// The largest finite |x|.
double magnitude(const Tensor &x);

/// `x` as the given element type holds it.
double roundTo(DataType type, double x);

/// What makes an artefact of a module's text; empty is compileHere.
using Compile = std::function<Result<CompiledArtifact>(
    const std::string &text, const CompilerOptions &options)>;

/// The compiler in this process.
Result<CompiledArtifact> compileHere(const std::string &text,
                                     const CompilerOptions &options);

/// A program whose arena and outputs are poisoned before every run.
class CompiledModule {
public:
  static Result<CompiledModule> load(const std::string &text,
                                     const CompilerOptions &compiler = {},
                                     const RuntimeOptions &runtime = poisoned(),
                                     const Compile &compile = {});
  static Result<CompiledModule>
  load(const CompiledArtifact &compiled,
       const RuntimeOptions &runtime = poisoned());
  static Result<CompiledModule>
  load(const Artifact &artifact, const RuntimeOptions &runtime = poisoned());

  /// Two threads and poison.
  static RuntimeOptions poisoned();

  /// Writes and reads a named tensor. An unknown name or another number of
  /// elements is a failure of the test.
  void set(const std::string &name, const Tensor &value);
  Tensor get(const std::string &name) const;

  /// A run that fails is a failure of the test.
  void run(const std::string &entry);

  Program &getProgram() { return program; }

private:
  explicit CompiledModule(Program program) : program(std::move(program)) {}

  Program program;
};

} // namespace nsa::test

#endif // NSA_TEST_UNIT_COMPILEDMODULE_H
