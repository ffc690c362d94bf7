//===- DenseAttentionKernels.h - tiles of visible neighbours ----*- C++ -*-===//
//
// Attention without indices: a program iterates over a range of keys.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_NSA_DENSEATTENTIONKERNELS_H
#define NSA_PASSES_KERNELS_NSA_DENSEATTENTIONKERNELS_H

#include "passes/Kernels/NSA/KeyValueGrad.h"
#include "passes/Kernels/NSA/SelectionMasks.h"

namespace nsa {

/// The kernels of one visibility: what they know at compile time.
struct DenseAttention {
  DenseAttention(const AttentionShape &shape,
                 VisibilityAttrInterface visibility, const KernelCut &cut,
                 int64_t selectBlock = 0)
      : shape(shape), visibility(visibility, shape.tokens),
        selectBlock(selectBlock),
        queryTile(getQueryTile(cut, cut.sizes.getQueries())),
        keyTile(getKeyTile(cut, cut.sizes.getKeys())),
        ownQueryTile(getOwnQueryTile(cut)), packedHeads(getPackedHeads(cut)),
        forwardKeyTile(getForwardKeyTile(cut)), minBlocks(getMinBlocks(cut)),
        ownKeyTile(getOwnKeyTile(cut, getProductRows(cut))),
        sumTile(getOwnKeyTile(cut, 0)), isParallel(cut.isParallel()),
        hasWarpgroups(getProductRows(cut) != 0) {
    this->shape.fitTo(cut);
  }

  /// Whether narrow heads see a window that is short beside the sequence.
  bool isShortWindow() const { return isThin() && !isGraded(); }
  /// For kernel names: "b1s64h4x2d16_w32".
  std::string name() const;
  /// Whether queries see few keys, so that large tiles are masked for the most
  /// part.
  bool seesFewKeys() const {
    return visibility->attendsToTokens() &&
           visibility->getMaxKeys(int64_t(shape.tokens)) <= 128;
  }
  /// Whether small tiles then pay: not where warpgroups need 64 rows.
  bool isNarrow(const KernelCut &cut) const {
    return seesFewKeys() && getProductRows(cut) == 0;
  }
  /// Whether some queries see many more keys than others.
  bool isGraded() const {
    auto tokens = int64_t(shape.tokens);
    return !visibility->attendsToTokens() ||
           2 * visibility->getMaxKeys(tokens) > tokens;
  }
  /// Tokens of a query tile see the same blocks but for a few, so that small
  /// tiles of them waste less at the edge; with many keys that matters
  /// less than the work per tile. Where that is done by many threads that wait
  /// for each other, it always does.
  int64_t maxKeyTile(const KernelCut &cut) const {
    if (visibility->attendsToTokens() || cut.isParallel())
      return isNarrow(cut) ? 32 : 64;
    auto keys = int64_t(shape.keys);
    return keys <= 256 ? 16 : keys <= 1024 ? 32 : 64;
  }
  /// Queries and keys of a tile, `fixed` if that is not 0 and they are so many.
  int64_t getQueryTile(const KernelCut &cut, int64_t fixed) const {
    int64_t most = fixed != 0 ? fixed : isNarrow(cut) ? 32 : 64;
    return getTileSize(shape.sequence, most, cut.getTileMultiple());
  }
  int64_t getKeyTile(const KernelCut &cut, int64_t fixed) const {
    int64_t most = fixed != 0 ? fixed : maxKeyTile(cut);
    return getTileSize(shape.keys, most, cut.getTileMultiple());
  }

  /// Programs that take `tile` queries each.
  Extent numQueryTiles(int64_t tile) const {
    return ceilDiv(shape.sequence, tile);
  }
  /// The grid of HeadPrograms of `tile` queries.
  std::array<Extent, 3> headGrid(int64_t tile) const {
    return {numQueryTiles(tile), shape.queryHeads, shape.batch};
  }
  /// Programs that take `tile` keys each: at least one, so that a launch
  /// without keys is still a launch.
  Extent numKeyTiles(int64_t tile) const {
    return atLeast(ceilDiv(shape.keys, tile), 1);
  }
  /// Floating-point operations of `width` multiply-adds per visible pair.
  int64_t flops(int64_t width) const {
    return shape.flops(width, visibility->countPairs(int64_t(shape.tokens),
                                                     int64_t(shape.keys),
                                                     /*indices=*/0));
  }

  /// The keys that some of the queries of a program may see, from the first to
  /// past the last.
  std::pair<tile::Expr, tile::Expr>
  getKeyRange(tile::TileBuilder &b, const QueryRange &queries) const;
  /// Runs `body` for each tile of keys that some of the program's queries sees,
  /// ascending. `masks` say which blocks these selected; null without a
  /// selection.
  llvm::SmallVector<mlir::Value>
  forEachKeyTile(const RowProgram &program, mlir::Value k, mlir::Value v,
                 mlir::Value masks, llvm::ArrayRef<mlir::Value> inits,
                 KeyTileBody body) const;
  /// What launches the kernel of the output. `suffix` and `name` are a
  /// KernelSpec's.
  KernelSpec forwardSpec(llvm::StringRef suffix, std::string name) const;
  /// The rows of a program of this kernel.
  RowProgram makeForwardProgram(tile::TileBuilder &b) const;
  /// Programs of the gradient of queries that a multiprocessor is to run at
  /// once, 0 for as many as fit: of narrow heads, where a program has several
  /// branches, or where it has few keys.
  int64_t getQueryGradBlocks(bool hasBranches) const {
    if (!hasWarpgroups || queryTile != 64)
      return 0;
    return hasBranches && isThin()            ? 3
           : !seesFewKeys() || hasWideHeads() ? 0
           : isThin()                         ? 4
                                              : 3;
  }
  /// The same of the gradients of keys.
  int64_t getKeyValueGradBlocks() const {
    return hasWarpgroups && seesFewKeys() && !hasWideHeads() && !isThin() ? 3
                                                                          : 0;
  }
  /// Whether three warpgroups compute so many exponents for each dot that
  /// they issue instructions most of the time.
  bool isIssueBound() const {
    return hasWarpgroups && ownQueryTile > 128 && isThin();
  }
  /// Parts of the gradient of a key, each a program's: on a GPU one for each
  /// head of the group where keys are few and queries many.
  int64_t numGradParts() const {
    return isParallel && !visibility->attendsToTokens() ? shape.group() : 1;
  }
  /// The grid of the programs of the gradients of keys, a number of `parts` or
  /// 0 for none, and one of them.
  std::array<Extent, 3> keyGrid(int64_t parts) const {
    return {std::max<int64_t>(parts, 1) * numKeyTiles(ownKeyTile),
            shape.keyHeads, shape.keyBatch};
  }
  KeyProgram getKeyProgram(tile::TileBuilder &b, int64_t parts) const;
  /// Heads of the group, of a part only one, and query tiles are added in
  /// ascending order.
  void buildKeyValueGrad(tile::TileBuilder &b, const KeyProgram &program,
                         const KeyValueGradArgs &args) const;

  AttentionShape shape;
  Visibility visibility;
  /// Tokens of the blocks of which queries see those that they selected, which
  /// key tiles divide; 0 if they see all that is visible.
  int64_t selectBlock;
  /// Queries and keys of a tile of a gradient; queries of a program that
  /// computes their outputs, keys of one that computes their gradients, and of
  /// one that adds parts of these.
  int64_t queryTile, keyTile, ownQueryTile;
  /// Heads of a group of which a program computes the outputs; keys of a tile
  /// there.
  int64_t packedHeads, forwardKeyTile;
  /// Such programs that a multiprocessor is to run at once; 0 for as many as
  /// fit.
  int64_t minBlocks;
  int64_t ownKeyTile, sumTile;
  bool isParallel, hasWarpgroups;
  /// Whether several sequences share a row of the batch.
  bool isPacked = false;

private:
  void countFromSequence(tile::TileBuilder &b, tile::Expr batch, mlir::Value i,
                         const KeyValueGradArgs &args, KeyTile &tile) const;
  /// The positions of queries that see some key of a program, from the first to
  /// past the last.
  std::pair<tile::Expr, tile::Expr>
  getQueryRange(tile::TileBuilder &b, const KeyProgram &program,
                const KeyValueGradArgs &args) const;
  void selectQueries(tile::TileBuilder &b, tile::Expr batch, tile::Expr keyHead,
                     tile::Expr block, const KeyValueGradArgs &args,
                     mlir::Value query, KeyTile &tile) const;
  /// Rows of one MMA, the M of its shape; 0 if that does not matter.
  int64_t getProductRows(const KernelCut &cut) const {
    return shape.elementBits == 16 ? cut.getWarpgroupRows() : 0;
  }
  /// Whether sums of values have few registers: with more keys at once, scores
  /// have as many as those of wider heads.
  bool isThin() const { return shape.keyWidth <= 64 && shape.valueWidth <= 64; }
  bool hasWideHeads() const {
    return shape.keyWidth > 128 || shape.valueWidth > 128;
  }
  /// Whether a query sees so many keys that three consumer warpgroups with a
  /// producer are faster than two programs of two.
  bool isLong() const;
  int64_t getMinBlocks(const KernelCut &cut) const;
  int64_t getOwnQueryTile(const KernelCut &cut) const;
  int64_t getPackedHeads(const KernelCut &cut) const;
  int64_t getForwardKeyTile(const KernelCut &cut) const;
  /// As large as a key tile if there are programs enough, and no smaller than
  /// `fewest`.
  int64_t getOwnKeyTile(const KernelCut &cut, int64_t fewest) const;
};

/// A program that takes a tile of queries of one query head: (query tile, query
/// head, batch).
struct HeadProgram : RowProgram {
  HeadProgram(const DenseAttention &attention, int64_t queries,
              tile::TileBuilder &b);
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_DENSEATTENTIONKERNELS_H
