//===- OverlapLaunches.h - kernels that begin early -------------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_OVERLAPLAUNCHES_H
#define NSA_PASSES_CONVERSION_TILETONVVM_OVERLAPLAUNCHES_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace nsa::cuda {

/// Waits for the launches before, on each path in front of the first access to
/// global memory other than reads of the arguments `settled`. Lets the launch
/// behind begin when all blocks of this one run, or `late`: when they have
/// waited.
void overlapLaunches(mlir::LLVM::LLVMFuncOp function,
                     llvm::ArrayRef<int64_t> settled, bool late);

/// Lets each program of a kernel ask for its share of some arguments, `ranges`
/// of their number, first byte and bytes, to come to the L2 cache.
void prefetchArguments(mlir::LLVM::LLVMFuncOp function,
                       llvm::ArrayRef<int64_t> ranges,
                       llvm::ArrayRef<int32_t> grid);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_OVERLAPLAUNCHES_H
