//===- NNOps.h - operations of a decoder ------------------------*- C++ -*-===//

#ifndef NSA_DIALECTS_NN_NNOPS_H
#define NSA_DIALECTS_NN_NNOPS_H

#include "dialects/Interfaces/DifferentiableOpInterface.h"
#include "dialects/Interfaces/FusionInterfaces.h"
#include "dialects/Interfaces/OpChecks.h"
#include "dialects/Interfaces/PrecisionOpInterface.h"
#include "dialects/Interfaces/RecomputeTraits.h"
#include "dialects/NN/NNDialect.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace nsa::nn {

/// Elements of which every part of an `nn.flatten` begins at a multiple: the 64
/// bytes to which the memory plan aligns tensors.
inline constexpr int64_t kFlatAlignment = 16;

/// The elements of a flat group of tensors of these types.
int64_t getFlatLength(mlir::TypeRange parts);

/// The partial sums that a kernel over `rows` rows of `width` elements makes of
/// them, each of a range of rows: enough to share the work, few enough to add
/// them quickly, and no more than `most`.
int64_t countRowSums(int64_t rows, int64_t width, int64_t most);

/// The operations that are not elementwise among those of an `nn.fused` that
/// pass elements to `op`, get some from it, or do so through others; `op`
/// itself if it is one. In order of discovery.
llvm::SmallVector<mlir::Operation *> getConnectedRoots(mlir::Operation *op);

} // namespace nsa::nn

#define GET_OP_CLASSES
#include "dialects/NN/NNOps.h.inc"

#endif // NSA_DIALECTS_NN_NNOPS_H
