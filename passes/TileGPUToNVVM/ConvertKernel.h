//===- ConvertKernel.h - one tile kernel to threads of a block --*- C++ -*-===//

#ifndef NSA_PASSES_TILEGPUTONVVM_CONVERTKERNEL_H
#define NSA_PASSES_TILEGPUTONVVM_CONVERTKERNEL_H

#include "dialects/Tile/TileOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace nsa::cuda {

/// The CUDA kernel of a tile kernel whose tiles have layouts and whose buffers
/// have offsets, built before it; the rest of it is to be erased. Fails,
/// with an error, if the kernel has an operation that CUDA has no code for.
mlir::FailureOr<mlir::LLVM::LLVMFuncOp> convertKernel(tile::KernelOp kernel);

/// Waits for earlier launches, on each path before the first access to
/// global memory other than reads of the arguments `settled`. Lets the next
/// launch begin when all blocks of this one run, or `late`: when they have
/// waited.
void overlapLaunches(mlir::LLVM::LLVMFuncOp function,
                     llvm::ArrayRef<int64_t> settled, bool late);

/// Lets each program of a kernel ask for its share of some arguments, `ranges`
/// of their number, first byte and bytes, to come to the L2 cache.
void prefetchArguments(mlir::LLVM::LLVMFuncOp function,
                       llvm::ArrayRef<int64_t> ranges,
                       llvm::ArrayRef<int32_t> grid);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPUTONVVM_CONVERTKERNEL_H
