//===- FuseUpdates.h - one update of many tensors ---------------*- C++ -*-===//

#ifndef NSA_PASSES_GRAPH_FUSEUPDATES_H
#define NSA_PASSES_GRAPH_FUSEUPDATES_H

#include "passes/Graph/FlatGroupLayout.h"

namespace nsa {

/// Turns the elementwise updates of a function that have the same optimizer,
/// attributes and scalars into one on flat groups, and its `nn.gradient_norm`
/// and the fills of gradients into one of each on the flat group of all
/// gradients. Returns how many operations were replaced.
unsigned fuseUpdates(mlir::func::FuncOp function, FlatGroupLayout &layout);

} // namespace nsa

#endif // NSA_PASSES_GRAPH_FUSEUPDATES_H
