//===- Inputs.h - random arguments of a function ----------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_RANDOMMODULES_INPUTS_H
#define NSA_TEST_UNIT_RANDOMMODULES_INPUTS_H

#include "lib/Reference/Kernels/Tensor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "test/unit/RandomModules/Graph.h"

namespace nsa::test {

/// As the program knows the argument or the result.
std::string argumentName(mlir::func::FuncOp function, unsigned index);
std::string resultName(mlir::func::FuncOp function, unsigned index);

/// One tensor for each argument of a function of the module, or of an entry
/// that the compiler made from one.
std::vector<reference::Tensor> makeArguments(const GraphModule &module,
                                             mlir::func::FuncOp function,
                                             uint64_t seed);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_RANDOMMODULES_INPUTS_H
