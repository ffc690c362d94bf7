//===- ArgumentAlignment.h - where the arguments of kernels lie -*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CUDA_ARGUMENTALIGNMENT_H
#define NSA_LIB_TARGET_CUDA_ARGUMENTALIGNMENT_H

#include "mlir/IR/BuiltinOps.h"

namespace nsa {

/// Notes on the arguments of the kernels of `module` of which number of bytes
/// their addresses are multiples in all launches, where that is not what
/// `nsa-tile-to-nvvm` supposes. The module is planned.
void noteArgumentAlignment(mlir::ModuleOp module);

} // namespace nsa

#endif // NSA_LIB_TARGET_CUDA_ARGUMENTALIGNMENT_H
