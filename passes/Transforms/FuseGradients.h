//===- FuseGradients.h - one sum of many gradients --------------*- C++ -*-===//

#ifndef NSA_PASSES_TRANSFORMS_FUSEGRADIENTS_H
#define NSA_PASSES_TRANSFORMS_FUSEGRADIENTS_H

#include "passes/Transforms/BundleLayout.h"

namespace nsa {

/// Where the rows of one matrix product are added to gradients of several
/// parameters, makes them the accumulator of the product as a bundle. Returns
/// how many sums were replaced.
unsigned fuseGradients(mlir::func::FuncOp function, BundleLayout &layout);

} // namespace nsa

#endif // NSA_PASSES_TRANSFORMS_FUSEGRADIENTS_H
