//===- YieldChecks.h - what operations that fuse others give ----*- C++ -*-===//

#ifndef NSA_DIALECTS_INTERFACES_YIELDCHECKS_H
#define NSA_DIALECTS_INTERFACES_YIELDCHECKS_H

#include "mlir/IR/Operation.h"

namespace nsa {

/// Fails unless the operands of `yield`, the end of an operation that computes
/// what it holds as one, have the types of its results, and are neither inputs
/// of it nor the same value twice.
llvm::LogicalResult verifyYieldedValues(mlir::Operation *yield,
                                        mlir::TypeRange results);

} // namespace nsa

#endif // NSA_DIALECTS_INTERFACES_YIELDCHECKS_H
