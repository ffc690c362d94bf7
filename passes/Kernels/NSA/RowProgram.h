//===- RowProgram.h - rows of attention kernels, and their keys -*- C++ -*-===//
//
// The rows of a program: neighbouring queries of one head, or of all heads of a
// group.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_NSA_ROWPROGRAM_H
#define NSA_PASSES_KERNELS_NSA_ROWPROGRAM_H

#include "passes/Kernels/NSA/AttentionKernels.h"

namespace nsa {

/// The queries `first .. first + count - 1` of a program.
struct QueryRange {
  tile::Expr batch, keyHead, first;
  int64_t count;
  /// The query of each row, i32 [rows, 1].
  mlir::Value query;
  /// Where the sequence of each token of the batch begins, i32 [B, S]; null if
  /// a row of the batch is one sequence.
  mlir::Value start = {};
  /// Whether the gradient of these queries is computed: from all columns of
  /// keys and values, where programs share what they write.
  bool isGradient = false;

  /// Of queries inside of a longer sequence, where that is, and the position of
  /// each row.
  std::optional<QueryPlace> inside = std::nullopt;
  mlir::Value position = {};

  /// What `at`, null for whole sequences, and `start` say of the batch.
  void setSequences(tile::TileBuilder &b, const AttentionShape &shape,
                    mlir::Value at, mlir::Value start);
  QueryPlace place() const { return inside ? *inside : QueryPlace{batch}; }
  mlir::Value positions() const { return inside ? position : query; }
  /// Loads the keys `rows` and their values.
  KeyTile loadKeys(tile::TileBuilder &b, const AttentionShape &shape,
                   mlir::Value rows, mlir::Value k, mlir::Value v) const;
};

/// The rows of a program: queries of one head or of several.
struct RowProgram {
  /// Each has a row of its own, or several with as many heads.
  int64_t numRows() const {
    return llvm::cast<tile::TileType>(range.query.getType()).getRows();
  }
  /// Some columns of rows of what is stored as [B, S, Hq, width].
  mlir::Value loadRows(mlir::Value ref, mlir::Value columns) const {
    return b.load(ref, {range.batch, range.query, head, columns});
  }
  void storeRows(mlir::Value value, mlir::Value ref,
                 mlir::Value columns) const {
    b.store(value, ref, {range.batch, stored, head, columns});
  }
  /// For what is stored as [B, Hq, S].
  mlir::Value loadStatistic(mlir::Value ref) const {
    return b.load(ref, {range.batch, head, range.query});
  }
  void storeStatistic(mlir::Value value, mlir::Value ref) const {
    b.store(value, ref, {range.batch, head, stored});
  }

  bool hasGroup() const { return group != 0; }
  /// Of the group, the head of row `row`; -1 for one that is not stored.
  tile::Expr headInGroup(tile::Expr row) const;

  /// f32 [rows, 1]: the dot products of the rows of two tensors of the shape's
  /// values; those of `lhs` are loaded already.
  mlir::Value dotRows(const AttentionShape &shape, mlir::Value loaded,
                      mlir::Value lhs, mlir::Value rhs) const;

  tile::TileBuilder &b;
  QueryRange range;
  /// The query head of all rows, i32, or of each row, i32 [rows, 1]; and the
  /// query that is stored from each row, outside of the sequence if none is,
  /// i32 [rows, 1].
  mlir::Value head, stored;
  /// Of a GroupProgram the heads of the group, else 0; and the rows and queries
  /// of its M-tiles.
  int64_t group = 0, mTileRows = 0, mTileQueries = 0;
};

/// A program whose rows are pairs of a query and one of `heads` heads of a
/// group, which they divide: (tile of queries, number of such heads, batch).
RowProgram makeHeadsProgram(const AttentionShape &shape, int64_t queries,
                            int64_t heads, tile::TileBuilder &b,
                            tile::Expr tile);

/// A program whose rows are (query, head of the group) pairs, heads innermost,
/// so that keys and values are read once per group. Programs are numbered by
/// (tile of queries, key head, batch), the last two being axes 1 and 2 of the
/// grid. Rows may come in M-tiles with whole queries: the remaining rows of an
/// M-tile repeat the last one, and are not stored.
struct GroupProgram : RowProgram {
  /// `queries` of them, of which as many as an M-tile of `mTileRows` holds
  /// divide them; 0 for rows without gaps.
  GroupProgram(const AttentionShape &shape, int64_t queries, int64_t mTileRows,
               tile::TileBuilder &b, tile::Expr tile);
};

/// What the kernel of dq writes of each row for those of dk and dv, [B, Hq, S]
/// in f32, or with several numbers [B, Hq, numbers, S]: do . o, of several
/// branches the gate before it, and then the lse where its rows may begin
/// at an address that TMA cannot copy from. In place of a gate and of the lse
/// the exponent that both are part of, if gates are folded.
class RowStatistics {
public:
  /// With `folded`, gates are part of exponents.
  RowStatistics(const AttentionShape &shape, int64_t branches, bool gated,
                bool folded, bool isParallel);

  mlir::RankedTensorType getType(KernelCache &cache) const;
  /// Writes those of a branch, which are its terms and its lse.
  void store(const RowProgram &program, int64_t branch, const RowTerms &terms,
             mlir::Value lse, mlir::Value ref) const;
  /// The terms of some rows; `lse` is read where `ref` has none.
  RowTerms load(tile::TileBuilder &b, const Exponent &exponent, int64_t branch,
                mlir::Value ref, mlir::Value lse, tile::Operand batch,
                tile::Operand head, mlir::Value query) const;

private:
  bool hasLse() const {
    return !folded && int64_t(pitch) != int64_t(shape.back());
  }
  int64_t perBranch() const { return 1 + int64_t(gated) + int64_t(hasLse()); }
  int64_t deltaOf(int64_t branch) const {
    return perBranch() * branch + int64_t(gated);
  }
  llvm::SmallVector<tile::Operand> place(tile::Operand batch,
                                         tile::Operand head, int64_t number,
                                         mlir::Value query) const;

  /// [B, Hq, S].
  llvm::SmallVector<Extent> shape;
  Extent pitch;
  int64_t branches;
  bool gated, folded;
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_ROWPROGRAM_H
