//===- PrepareWeights.h - what follows from weights alone -------*- C++ -*-===//

#ifndef NSA_PASSES_GRAPH_PREPAREWEIGHTS_H
#define NSA_PASSES_GRAPH_PREPAREWEIGHTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace nsa {

/// Moves what `function` computes from parameters and constants alone, casts to
/// the compute type above all, to a new function before it, `prepare`,
/// whose results are states that take the place of the values. Does nothing
/// where there is no such thing.
void prepareWeights(mlir::func::FuncOp function);

} // namespace nsa

#endif // NSA_PASSES_GRAPH_PREPAREWEIGHTS_H
