//===- SelectionLists.h - what some queries selected ------------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_NSATOTILE_SELECTIONLISTS_H
#define NSA_PASSES_CONVERSION_NSATOTILE_SELECTIONLISTS_H

#include "passes/Conversion/NSAToTile/SelectedAttentionKernels.h"

namespace nsa {

/// The lists of some queries of a key head and row of the batch, in a program.
struct SelectionLists {
  /// Those of `queries` queries from `first` on.
  SelectionLists(const SelectedAttention &attention, tile::TileBuilder &b,
                 mlir::Value indices, tile::Expr batch, tile::Expr keyHead,
                 tile::Expr first, int64_t queries);

  /// Whether an entry is a block that the query `t` sees.
  tile::Expr isSeen(tile::Expr entry, tile::Expr t) const;
  /// 1 for each of the `blocks` from `block` on, up to 32, that a query
  /// selected, else 0: i32 [queries, blocks]. Entries of a query differ.
  mlir::Value findMembers(tile::TileBuilder &b, tile::Expr block,
                          int64_t blocks) const;

  int64_t selectBlock, sequence;
  /// Numbers of the queries, [queries, 1], and entries, [queries, count].
  mlir::Value number, entries;
};

/// For each column of a row of i32 the sum of those before it.
mlir::Value sumBefore(tile::TileBuilder &b, mlir::Value row);

/// lhs + rhs, of i32.
mlir::Value addIntegers(tile::TileBuilder &b, mlir::Value lhs, mlir::Value rhs);

} // namespace nsa

#endif // NSA_PASSES_CONVERSION_NSATOTILE_SELECTIONLISTS_H
