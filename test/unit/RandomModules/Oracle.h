//===- Oracle.h - what a function may give --------------------*- C++ -*-===//
//
// Evaluates a function of nn and nsa operations in fp64 and says how far a
// compiled one may be from it.
//
// The bound comes from the rules for single kernels: an fp32 result may be off
// by 1e-5 of its largest element, a bf16 one by a rounding besides. Evaluating
// the function again with random errors of that size in every result of every
// operation shows what a chain of kernels may make of them, however well or
// badly conditioned it is. A result of the function may be off by the largest
// distance that such evaluations reach, twice that where bf16 is involved.
//
// Block selection is a discontinuity. Evaluations with errors keep the choice
// and measure how far scores move. A choice is decided where the gap between
// the scores of the last block chosen and the best one left is larger than
// that; where it is not, either the program's own choice is taken, if it is a
// good one, or what depends on it is not compared.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_RANDOMMODULES_ORACLE_H
#define NSA_TEST_UNIT_RANDOMMODULES_ORACLE_H

#include "lib/Reference/Evaluator.h"
#include "lib/Reference/Kernels/Attention.h"

#include <map>
#include <optional>
#include <random>

namespace nsa::test {

/// One nsa.select of a function.
struct Selection {
  mlir::Operation *op;
  reference::SelectionRule rule;
  reference::Tensor scores, indices;
  /// How far an evaluation with errors moved a score.
  double deviation = 0.0;
};

class Oracle {
public:
  explicit Oracle(mlir::func::FuncOp function);

  /// Evaluates exactly. With `choices`, the selections at these positions are
  /// taken from there. Emits an error where an operation has no meaning.
  llvm::LogicalResult
  evaluate(const std::vector<reference::Tensor> &arguments,
           const std::map<size_t, reference::Tensor> &choices = {});

  /// The results of the last evaluation.
  const std::vector<reference::Tensor> &getResults() const { return results; }
  const std::vector<Selection> &getSelections() const { return selections; }

  /// The results for other arguments with the selections of the last
  /// evaluation.
  std::vector<reference::Tensor>
  evaluateNear(const std::vector<reference::Tensor> &arguments);

  /// The largest distance of result `index` from the exact one that a correct
  /// program may have. A distance of `enough` is not looked at any closer.
  double getTolerance(size_t index, double enough, uint64_t seed);

  /// Whether rounding cannot change the selection.
  bool isDecided(const Selection &selection) const;
  /// Why these indices are no good choice, or nothing.
  std::string findBadChoice(const Selection &selection,
                            const reference::Tensor &indices) const;

  /// For each result, whether it depends on a selection of `open`.
  std::vector<bool> findDependent(const std::vector<mlir::Operation *> &open);

  /// Whether some value is bf16.
  bool isNarrow() const { return narrow; }

  /// Evaluates with errors until there are `count` evaluations.
  void addErrors(unsigned count, uint64_t seed);

private:
  void disturb(mlir::Operation *op,
               llvm::MutableArrayRef<reference::Tensor> tensors);
  reference::Tensor select(mlir::Operation *op, const reference::Tensor &q,
                           const reference::Tensor &k,
                           const reference::Tensor &lse,
                           const reference::SelectionRule &rule);
  std::vector<reference::Tensor>
  run(const std::vector<reference::Tensor> &arguments);

  mlir::func::FuncOp function;
  reference::Evaluator evaluator;
  bool narrow = false;

  std::vector<reference::Tensor> inputs, results;
  std::vector<Selection> selections;
  std::map<size_t, reference::Tensor> given;
  /// The distances of the evaluations with errors so far, by result.
  std::vector<double> distances;
  unsigned evaluations = 0;

  // The evaluation that is going on.
  enum class Mode { Exact, Near, Errors } mode = Mode::Exact;
  size_t nextSelection = 0;
  std::mt19937_64 random;
};

} // namespace nsa::test

#endif // NSA_TEST_UNIT_RANDOMMODULES_ORACLE_H
