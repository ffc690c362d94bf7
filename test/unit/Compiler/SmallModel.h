//===- SmallModel.h - a small model, compiled -------------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_COMPILER_SMALLMODEL_H
#define NSA_TEST_UNIT_COMPILER_SMALLMODEL_H

#include "nsa/Compiler/Compiler.h"
#include "nsa/Runtime/Runtime.h"

#include <optional>
#include <random>

namespace nsa::test {

/// The text of a small model whose configuration `overrides` change, as in
/// "nsa.phi=linear". Wrong overrides are a failure of the test.
std::string modelText(const std::vector<std::string> &overrides);

/// Overrides of models that have, between them, what the plain one has not.
/// They are shared, because compiling a model is most of the time of a test. In
/// the linear one scores choose all blocks but the query's own.
std::vector<std::string> linearModel();
std::vector<std::string> mlpModel();

/// A two-layer model of 70 tokens, two sequences at a time: the compiled
/// program with its parameters initialised and random tokens, in documents of
/// several lengths where these are isolated. Memory is poisoned before every
/// run.
class SmallModel {
public:
  /// A failure to compile is a failure of the test and leaves no program.
  SmallModel(const std::vector<std::string> &overrides,
             const std::string &precision, uint64_t seed, bool fuse = true);

  void run(const std::string &entry);

  /// The program's tensor of this name.
  const TensorView &tensor(const std::string &name) const;

  std::mt19937_64 random;
  std::optional<Program> program;

private:
  void fillInputs();
};

} // namespace nsa::test

#endif // NSA_TEST_UNIT_COMPILER_SMALLMODEL_H
