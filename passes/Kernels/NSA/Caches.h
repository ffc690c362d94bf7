//===- Caches.h - rows that decoding keeps ----------------------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_CACHES_H
#define NSA_PASSES_KERNELS_NSA_CACHES_H

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/LaunchGroup.h"

namespace nsa {

/// Rotates the rows of a token. Program: a sequence.
LaunchPart rotateRow(RotaryAtOp op);

/// Writes the row of a token to a cache, rotated by `rotary` if that is not
/// null. Program: a sequence.
LaunchPart appendRow(CacheAppendOp op, RotaryAtOp rotary);

/// The operations that make a row of compressed keys or values by the mean of
/// the last tokens, whose cache has no other reader.
struct CompressedRow {
  mutable CacheAppendOp tokens;
  mutable CacheReadOp read;
  mutable CompressOp compress;
  /// Null if rows are not rotated.
  mutable RotaryAtOp rotary;
  mutable CacheAppendOp append;

  static std::optional<CompressedRow> match(CacheAppendOp append);
  /// Program: (head, 1, sequence).
  LaunchPart getPart() const;
};

/// The operation of type OpT whose only reader has `value`; null if there is
/// none.
template <typename OpT>
OpT getOnly(mlir::Value value) {
  return value.hasOneUse() ? value.getDefiningOp<OpT>() : OpT();
}

/// Merges the launches that rotate rows of a token, write rows to caches and
/// compress earlier rows, as far as they are independent.
void launchCacheSteps(mlir::Block &block, KernelCache &cache);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_CACHES_H
