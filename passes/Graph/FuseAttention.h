//===- FuseAttention.h - parts of the pass nsa-fuse-attention ---*- C++ -*-===//

#ifndef NSA_PASSES_GRAPH_FUSEATTENTION_H
#define NSA_PASSES_GRAPH_FUSEATTENTION_H

#include "dialects/NSA/NSAOps.h"

namespace nsa {

/// A remark on what became of a pattern: fused where `obstacle` is empty.
void reportFusion(mlir::Operation *op, llvm::StringRef name,
                  llvm::StringRef obstacle);

/// Whether something reads a result of `producer` before `op`, an
/// operation of the same block.
bool isReadBefore(mlir::Operation *producer, mlir::Operation *op);

/// The operation of type OpT that is the only reader of `value`; null if there
/// is none.
template <typename OpT>
OpT getOnlyReader(mlir::Value value) {
  if (!value.hasOneUse())
    return nullptr;
  return mlir::dyn_cast<OpT>(*value.getUsers().begin());
}

/// Fuses the compression of `key` and of `value`, operands of one attention,
/// with the rotation of the keys; whether it did.
bool fuseCompression(mlir::Value key, mlir::Value value);
/// Fuses the gradients of the compression of keys and of values, which read the
/// results `keyGrad` and `valueGrad` of one attention; whether it did.
bool fuseCompressionBackward(mlir::Value keyGrad, mlir::Value valueGrad);

/// Makes the rotation of the queries part of `attention`, which is replaced,
/// and with it that of the keys to which other attention of the same queries
/// attends; whether it did.
bool fuseRotation(AttentionOp attention);
/// The inverse rotations of `queryGrad`, the sum of all gradients of the
/// queries, and of the gradients of keys that a kernel of these gradients can
/// do, which stands where `first` does.
llvm::SmallVector<mlir::Operation *>
findRotationsBack(mlir::Value queryGrad,
                  llvm::ArrayRef<AttentionBackwardOp> branches,
                  mlir::Operation *first);

} // namespace nsa

#endif // NSA_PASSES_GRAPH_FUSEATTENTION_H
