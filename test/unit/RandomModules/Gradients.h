//===- Gradients.h - gradients against differences --------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_RANDOMMODULES_GRADIENTS_H
#define NSA_TEST_UNIT_RANDOMMODULES_GRADIENTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "test/unit/RandomModules/Graph.h"

#include <optional>

namespace nsa::test {

/// The result of a function that is to be differentiated.
std::optional<unsigned> findObjective(mlir::func::FuncOp model);

/// Compares the gradients of `function`, which was made from `model`, in a
/// random direction with central differences of the objective of `model`. Both
/// are evaluated in fp64, so this is about differentiation alone. Returns what
/// is wrong, or nothing.
std::string findWrongGradient(mlir::func::FuncOp model,
                              mlir::func::FuncOp function,
                              const GraphModule &module, uint64_t seed);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_RANDOMMODULES_GRADIENTS_H
