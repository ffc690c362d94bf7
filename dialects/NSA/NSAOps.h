//===- NSAOps.h - Native Sparse Attention operations ------------*- C++ -*-===//

#ifndef NSA_DIALECTS_NSA_NSAOPS_H
#define NSA_DIALECTS_NSA_NSAOPS_H

#include "dialects/Interfaces/DifferentiableOpInterface.h"
#include "dialects/Interfaces/OpChecks.h"
#include "dialects/Interfaces/PrecisionOpInterface.h"
#include "dialects/Interfaces/RecomputeTraits.h"
#include "dialects/NSA/NSADialect.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace nsa {

/// The number of complete compressed blocks of a sequence,
/// `floor((sequence - block) / stride) + 1`, or 0 if it is shorter than a
/// block. `block` and `stride` are positive.
int64_t getNumCompressedBlocks(int64_t sequence, int64_t block, int64_t stride);

/// The rows of keys that `visibility` has for so many tokens: with `start`, of
/// packed sequences, whose blocks lie in one row for each stride.
int64_t getNumKeys(VisibilityAttrInterface visibility, int64_t sequence,
                   mlir::Value start);

/// The type of what compression makes of `x` [B, S, H, D]: `[B, Nc, H, D]`.
mlir::RankedTensorType getCompressedType(CompressedAttr compressed,
                                         mlir::Value x, mlir::Value start);

/// The factor of scores: `scale` if given, else 1 / sqrt(dk).
double getScoreScale(std::optional<llvm::APFloat> scale, mlir::Value query);

/// The operand that says where the sequence of each token begins; null if the
/// operation has none, or its rows are one sequence.
mlir::Value getSequenceStart(mlir::Operation *op);
/// The operand `at`, which says where rows of queries begin in longer
/// sequences; null if the operation has none.
mlir::Value getQueryPlace(mlir::Operation *op);

/// The rows of a sequence in a cache, of which `pages`, if there are some, have
/// the cache's rows each.
int64_t getCacheRows(mlir::Value cache, mlir::Value pages);

/// How many weights a kind of compression takes.
unsigned getNumWeights(CompressionKind kind);

} // namespace nsa

#define GET_OP_CLASSES
#include "dialects/NSA/NSAOps.h.inc"

#endif // NSA_DIALECTS_NSA_NSAOPS_H
