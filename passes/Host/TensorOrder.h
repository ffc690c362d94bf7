//===- TensorOrder.h - the order of named tensors in memory -----*- C++ -*-===//

#ifndef NSA_PASSES_HOST_TENSORORDER_H
#define NSA_PASSES_HOST_TENSORORDER_H

#include "dialects/RT/RTOps.h"

#include "mlir/IR/BuiltinOps.h"

namespace nsa {

/// The tensors of one segment in the order in which `nsa-plan` lays them out:
/// by role, decaying parameters first, so that they are one range, and those of
/// a flat view one after the other. Where flat views share tensors, the longest
/// counts; the verifier of `rt.flat_view` finds contradictions.
llvm::SmallVector<rt::TensorOp>
getMemoryOrder(llvm::ArrayRef<rt::TensorOp> tensors,
               llvm::ArrayRef<rt::FlatViewOp> views);

/// All flat views of a module's entries.
llvm::SmallVector<rt::FlatViewOp> getFlatViews(mlir::ModuleOp module);

} // namespace nsa

#endif // NSA_PASSES_HOST_TENSORORDER_H
