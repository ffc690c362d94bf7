//===- FuseGradients.h - one sum of many gradients --------------*- C++ -*-===//

#ifndef NSA_PASSES_GRAPH_FUSEGRADIENTS_H
#define NSA_PASSES_GRAPH_FUSEGRADIENTS_H

#include "passes/Graph/FlatGroupLayout.h"

namespace nsa {

/// Where the rows of one matmul are added to gradients of several
/// parameters, makes them the accumulator of the matmul as a flat group.
/// Returns how many sums were replaced.
unsigned fuseGradients(mlir::func::FuncOp function, FlatGroupLayout &layout);

} // namespace nsa

#endif // NSA_PASSES_GRAPH_FUSEGRADIENTS_H
