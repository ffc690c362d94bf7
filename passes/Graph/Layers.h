//===- Layers.h - the layers of a model, found in its graph -----*- C++ -*-===//
//
// The IR does not mark layers. In the forward graph there are cuts across which
// exactly one value is live; a layer lies between two of them.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_GRAPH_LAYERS_H
#define NSA_PASSES_GRAPH_LAYERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

namespace nsa {

using OperationGroup = llvm::SmallVector<mlir::Operation *>;

/// The value whose elements `value` shows: views of it are stripped.
mlir::Value getViewRoot(mlir::Value value);

/// The operations of the forward graph of a straight-line function in order,
/// without views: all that are not tagged as backward or computed again.
OperationGroup getForwardOps(mlir::func::FuncOp function);

/// The operations of `forward` that depend on an input of the model.
llvm::DenseSet<mlir::Operation *>
findActivations(mlir::func::FuncOp function,
                llvm::ArrayRef<mlir::Operation *> forward);

/// Runs of activations that lie in one layer, each with the output last. A
/// range of several operations between two cuts lies inside a layer, and a
/// layer begins where a range holds an operation whose results are always
/// kept for the backward graph. Ranges of one operation belong to no layer.
llvm::SmallVector<OperationGroup>
findLayers(llvm::ArrayRef<mlir::Operation *> forward,
           const llvm::DenseSet<mlir::Operation *> &activations);

} // namespace nsa

#endif // NSA_PASSES_GRAPH_LAYERS_H
