//===- FuseKernels.h - several operations in one kernel ---------*- C++ -*-===//
//
// Parts of `nsa-fuse`. Each returns how many operations it put into others.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_GRAPH_FUSEKERNELS_H
#define NSA_PASSES_GRAPH_FUSEKERNELS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace nsa {

/// Puts elementwise operations into `nn.fused`, together with each other and
/// with at most one operation that reads or writes the same elements.
unsigned fuseKernels(mlir::func::FuncOp function);

/// Turns casts of parameters into `nn.cast_all` of many.
unsigned fuseCasts(mlir::func::FuncOp function);

/// Turns additions of sums over rows to persistent tensors into one
/// `nn.accumulate_rows`.
unsigned fuseRowSums(mlir::func::FuncOp function, int64_t mostPartialSums);

} // namespace nsa

#endif // NSA_PASSES_GRAPH_FUSEKERNELS_H
