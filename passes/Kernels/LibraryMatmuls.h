//===- LibraryMatmuls.h - matmuls as a GPU's library has them ---*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_LIBRARYMATMULS_H
#define NSA_PASSES_KERNELS_LIBRARYMATMULS_H

#include "mlir/IR/BuiltinOps.h"

namespace nsa {

class KernelCache;

/// Makes kernels of matmuls of a few rows by a matrix, which the library has
/// no fast form for, and of what computes these rows. For programs that
/// generate on GPUs, before the types of others are changed.
void launchVectorMatmuls(mlir::ModuleOp module, KernelCache &cache);

/// cuBLASLt's matmuls have results in fp32 or in the type of their operands.
/// One with another result, such as bf16 of fp32 operands, becomes one in fp32
/// and an `nn.cast`.
void useTypesOfLibrary(mlir::ModuleOp module);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_LIBRARYMATMULS_H
