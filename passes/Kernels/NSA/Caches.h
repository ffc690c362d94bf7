//===- Caches.h - rows that decoding keeps ----------------------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_CACHES_H
#define NSA_PASSES_KERNELS_NSA_CACHES_H

#include "dialects/NSA/NSAOps.h"
#include "dialects/Tile/TileBuilder.h"
#include "passes/Kernels/LaunchGroup.h"

namespace nsa {

/// A cache in memory, and the pages of its sequences, i32 [B, N], or null.
struct CacheMemory {
  /// Coordinates of the cache's first two dimensions.
  struct Place {
    tile::Operand sequence, row;
  };
  /// Those of row `row` of a sequence, or of the rows [n, 1]; of row -1 none.
  Place at(tile::TileBuilder &b, tile::Expr sequence, tile::Expr row) const;
  Place at(tile::TileBuilder &b, tile::Expr sequence, mlir::Value rows) const;
  /// Those of `count` rows from `first` on, which lie in one page.
  Place from(tile::TileBuilder &b, tile::Expr sequence, tile::Expr first,
             int64_t count) const;

  int64_t sequences() const;
  /// Of a sequence.
  int64_t rows() const;
  /// Of a page; of a sequence where there are none.
  int64_t pageRows() const;

  mlir::Value memory, pages;
};

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
