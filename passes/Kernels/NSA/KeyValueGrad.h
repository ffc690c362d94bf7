//===- KeyValueGrad.h - gradients of keys and values ------------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_KEYVALUEGRAD_H
#define NSA_PASSES_KERNELS_NSA_KEYVALUEGRAD_H

#include "passes/Kernels/NSA/RowProgram.h"

namespace nsa {

/// The keys whose gradients a program computes, from `first` on, and its part
/// of these gradients if several programs have one.
struct KeyProgram {
  tile::Expr batch, keyHead, first;
  int64_t keys;
  std::optional<tile::Expr> part;
};

/// What a kernel of dk and dv reads and writes; null where it does without.
struct KeyValueGradArgs {
  llvm::SmallVector<mlir::Value *> slots() {
    return {&outputGrad, &q,  &k,     &v,       &lse,  &statistics, &start,
            &ends,       &at, &masks, &offsets, &list, &table};
  }

  /// What the statistics hold, and whose the gradients are.
  RowStatistics rows;
  int64_t branch;
  mlir::Value outputGrad = {}, q = {}, k = {}, v = {}, lse = {},
              statistics = {};
  /// Where packed sequences begin and end, and where rows of queries begin.
  mlir::Value start = {}, ends = {}, at = {};
  /// Of a selection: masks, or the inverse index.
  mlir::Value masks = {}, offsets = {}, list = {};
  /// The angles by which the gradient of the keys is turned back.
  mlir::Value table = {};
  /// With several parts, sums of parts without the scale, which `addParts` puts
  /// together: f32, with a first dimension for the parts.
  mlir::Value keyGrad = {}, valueGrad = {};

  /// The terms of some rows. Queries outside of the sequence read as 0.
  RowTerms loadTerms(tile::TileBuilder &b, const Exponent &exponent,
                     tile::Operand batch, tile::Operand head,
                     mlir::Value query) const {
    return rows.load(b, exponent, branch, statistics, lse, batch, head, query);
  }
};

/// The kernel of dk and dv: a program has a tile of keys and adds up what rows
/// of queries give, as many at a time as a tile has.
class KeyValueGrad {
public:
  /// Loads the keys and values.
  KeyValueGrad(tile::TileBuilder &b, const AttentionShape &shape,
               const KeyValueGradArgs &args, const KeyProgram &program);

  /// Sums of no rows.
  llvm::SmallVector<mlir::Value> zeros() const;
  /// Adds the queries `query` of the row `batch`, i32 along rows as
  /// `queryOfColumn` along columns, whose heads these are. `limit` says in
  /// `tile` which keys they see, once their terms are loaded.
  llvm::SmallVector<mlir::Value>
  addRows(tile::Expr batch, mlir::Value query, mlir::Value queryOfColumn,
          tile::Operand head, tile::Operand headOfColumn,
          llvm::ArrayRef<mlir::Value> sums, llvm::function_ref<void()> limit);
  /// Writes the sums of the keys `rows`, for `addParts` if they are of a part.
  void store(llvm::ArrayRef<mlir::Value> sums, mlir::Value rows) const;

  KeyTile tile;

private:
  tile::TileBuilder &b;
  const AttentionShape &shape;
  const KeyValueGradArgs &args;
  KeyProgram program;
  mlir::Value keyCols, valueCols;
};

/// Runs `body` for each row of queries, ascending, if `at` says which sequences
/// they are in, else for the row `batch` alone. For rows of other sequences
/// than `batch`, the body's loops are to have no iterations: branches around
/// them would keep them from being pipelined.
llvm::SmallVector<mlir::Value> forEachRow(tile::TileBuilder &b,
                                          const AttentionShape &shape,
                                          mlir::Value at, tile::Expr batch,
                                          llvm::ArrayRef<mlir::Value> inits,
                                          tile::TileBuilder::LoopBody body);

/// Adds `parts` [P, B, n, H, width], f32, in ascending order for some rows of a
/// batch and head, and writes `scale` times the sums to `out` [B, n, H, width].
/// Parts before `firstPart` have nothing for these rows.
void addParts(tile::TileBuilder &b, mlir::Value parts, mlir::Value out,
              tile::Expr batch, mlir::Value row, tile::Expr head, double scale,
              tile::Operand firstPart = 0);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_KEYVALUEGRAD_H
