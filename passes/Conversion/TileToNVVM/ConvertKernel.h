//===- ConvertKernel.h - one tile kernel to threads of a block --*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_CONVERTKERNEL_H
#define NSA_PASSES_CONVERSION_TILETONVVM_CONVERTKERNEL_H

#include "dialects/Tile/TileOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace nsa::cuda {

/// The CUDA kernel of a tile kernel whose tiles have layouts and whose buffers
/// have offsets, in front of it; what is left of it is to be erased. Fails,
/// with an error, if the kernel has an operation that CUDA has no code for.
mlir::FailureOr<mlir::LLVM::LLVMFuncOp> convertKernel(tile::KernelOp kernel);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_CONVERTKERNEL_H
