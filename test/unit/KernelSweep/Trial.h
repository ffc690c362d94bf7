//===- Trial.h - one combination, compiled ----------------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_KERNELSWEEP_TRIAL_H
#define NSA_TEST_UNIT_KERNELSWEEP_TRIAL_H

#include "test/unit/CompiledModule.h"
#include "test/unit/KernelSweep/Combination.h"

#include <functional>
#include <limits>
#include <random>

namespace nsa::test {

/// Otherwise, and for 16 bits: how much larger than the error of the same
/// formula in the kernel's types an error may be.
constexpr double kSameFormulaFactor = 2.0;

/// Evaluates a formula in a kernel's types, with products of rows summed in the
/// order of that number.
using SameFormula = std::function<reference::Tensor(unsigned order)>;

/// The largest distance from `expected` that a kernel's result may have. `same`
/// gives the formula in the kernel's types; it is asked for only when the fp32
/// tolerance does not apply: for 16 bits, for scores beyond 100, and for a
/// tensor that is all 0 but for the rounding of its inputs. Its error is the
/// largest of 16 orders of summation: with scores of 1e4 the largest error of a
/// tensor is that of one pair of nearly tied keys, which a single order may
/// happen to round well. No further ones are tried once the result reaches
/// `enough`. `terms` is the largest magnitude of what cancels in it: a sum of
/// c.dv products that should be 0 has that many rounding errors. A bound of
/// `enough` is not looked at any closer.
double allowedError(const Combination &c, const reference::Tensor &expected,
                    const SameFormula &same,
                    const std::function<double()> &terms = {},
                    double enough = std::numeric_limits<double>::infinity());

/// One compiled combination and its source of random tensors.
class Trial {
public:
  explicit Trial(const Combination &c, Compile compile = {})
      : c(c), random(c.seed), compile(std::move(compile)) {}

  /// Compiles and loads the module; `only` restricts it to some entries.
  Status prepare(const std::vector<std::string> &only = {});

  /// Normally distributed, rounded to the combination's storage type.
  reference::Tensor normal(std::vector<int64_t> shape, double scale = 1.0);

  /// In the storage type of the combination, or in fp32.
  reference::Tensor stored(reference::Tensor t) const;
  static reference::Tensor single(reference::Tensor t);

  void set(const std::string &name, const reference::Tensor &value) {
    module->set(name, value);
  }
  reference::Tensor get(const std::string &name) const {
    return module->get(name);
  }
  void run(const std::string &entry) { module->run(entry); }

  /// Expects the tensor `name` within allowedError of `expected`; without
  /// `same`, the formula is exact but for rounding its result.
  void compare(const std::string &name, const reference::Tensor &expected,
               const SameFormula &same,
               const std::function<double()> &terms = {});
  void compare(const std::string &name, const reference::Tensor &expected);

  const Combination &c;
  std::mt19937_64 random;

private:
  Compile compile;
  std::optional<CompiledModule> module;
};

/// Inputs of the whole operation.
struct Inputs {
  explicit Inputs(Trial &trial);

  /// Replaces everything from token `t` on.
  void changeFuture(Trial &trial, int64_t t);

  reference::Tensor q, kCmp, kSlc, kWin, vCmp, vSlc, vWin, dout, gates;
  double scale;
};

/// Runs the entry `full`, the whole operation.
reference::Tensor runFull(Trial &trial, const Inputs &in);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_KERNELSWEEP_TRIAL_H
