//===- Check.h - everything a compiled module must do -----------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_RANDOMMODULES_CHECK_H
#define NSA_TEST_UNIT_RANDOMMODULES_CHECK_H

#include "test/unit/RandomModules/Graph.h"

#include <optional>

namespace nsa::test {

/// What a module did wrong. Failures of the same kind are the same to the
/// shrinker.
struct Failure {
  std::string kind, message;
};

/// What was checked, summed over modules.
struct Coverage {
  size_t modules = 0, ops = 0, entries = 0, commands = 0, kernels = 0;
  /// Results compared with the reference; gradients compared with differences.
  size_t results = 0, gradients = 0;
  /// Results that depend on an undecided selection, and those whose tolerance
  /// says nothing.
  size_t undecided = 0, loose = 0;

  void operator+=(const Coverage &other);
  std::string describe() const;
};

/// Which programs a module is compiled to besides the one that its options ask
/// for: the same again, one that computes other values again in backward, and
/// one without fusion.
enum class Programs {
  All,
  /// One of these, by the seed.
  Sample,
};

/// Compiles the module, runs every entry on random inputs and compares what it
/// gives with the fp64 reference and among programs.
std::optional<Failure> checkModule(const GraphModule &module, Programs programs,
                                   Coverage &coverage);

/// A smaller module that fails in the same way, found within some seconds.
GraphModule shrink(GraphModule module, Programs programs,
                   const Failure &failure, double seconds);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_RANDOMMODULES_CHECK_H
