//===- SelectionLists.h - what some queries selected ------------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_SELECTIONLISTS_H
#define NSA_PASSES_KERNELS_NSA_SELECTIONLISTS_H

#include "passes/Kernels/NSA/SelectedAttentionKernels.h"

namespace nsa {

/// The lists of some queries of a key head and row of the batch, in a program.
struct SelectionLists {
  /// `number` are the queries, [queries, 1], `entries` what they selected,
  /// [queries, count], and `place` where they are in the sequence.
  SelectionLists(const SelectedAttention &attention, mlir::Value number,
                 mlir::Value entries, const QueryPlace &place)
      : SelectionLists(attention.selectBlock, attention.shape.sequence, number,
                       entries, place) {}
  SelectionLists(int64_t selectBlock, const Extent &sequence,
                 mlir::Value number, mlir::Value entries,
                 const QueryPlace &place)
      : selectBlock(selectBlock), sequence(sequence), number(number),
        entries(entries), place(place) {}

  /// Whether an entry is a block that the query `t` sees.
  tile::Expr isSeen(tile::Expr entry, tile::Expr t) const;
  /// A number with a bit for each of the `blocks` from `block` on, up to 32,
  /// that a query selected: i32 [queries, 1]. Entries of a query differ.
  mlir::Value findBits(tile::TileBuilder &b, tile::Expr block,
                       int64_t blocks) const;
  /// 1 for each of the `blocks` from `block` on, up to 32, that a query
  /// selected, else 0: i32 [queries, blocks]. Entries of a query differ.
  mlir::Value findMembers(tile::TileBuilder &b, tile::Expr block,
                          int64_t blocks) const;

  int64_t selectBlock;
  Extent sequence;
  mlir::Value number, entries;
  QueryPlace place;
};

/// For each column of a row of i32 the sum of those before it.
mlir::Value sumBefore(tile::TileBuilder &b, mlir::Value row);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_SELECTIONLISTS_H
