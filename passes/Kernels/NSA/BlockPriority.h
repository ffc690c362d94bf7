//===- BlockPriority.h - in which order blocks are selected -----*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_BLOCKPRIORITY_H
#define NSA_PASSES_KERNELS_NSA_BLOCKPRIORITY_H

#include "dialects/Tile/TileBuilder.h"

namespace nsa {

/// What blocks of `selectBlock` tokens compete for a query with, of which the
/// first `initial` and the last `local` are selected whatever their scores.
struct BlockPriority {
  int64_t selectBlock, initial, local;

  /// The value of block `j` for query `t`: -1 if it is no candidate. Forced
  /// blocks have values above every score, in the order in which they enter:
  /// the query's own block, the initial blocks ascending, the local blocks
  /// descending. Scores are at most heads * block / stride.
  tile::Expr of(tile::Expr t, tile::Expr j, tile::Expr score) const {
    constexpr double highest = 1 << 24;
    tile::Expr own = t / selectBlock, distance = own - j;
    tile::Expr initialRank = convert(j + 1, score.getType());
    tile::Expr localRank = convert(distance + initial, score.getType());
    tile::Expr value = select(distance < local, highest - localRank, score);
    value = select(j < initial, highest - initialRank, value);
    value = select(distance == 0, highest, value);
    return select(distance >= 0, value, -1);
  }
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_BLOCKPRIORITY_H
