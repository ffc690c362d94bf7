//===- SelectedAttentionKernels.h - tiles of the selected branch *- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_SELECTEDATTENTIONKERNELS_H
#define NSA_PASSES_KERNELS_NSA_SELECTEDATTENTIONKERNELS_H

#include "passes/Kernels/NSA/KeyValueGrad.h"

namespace nsa {

/// For each tile of queries, the blocks that some query of it selected: how
/// many, i32 [B, Hkv, tiles], and which, in ascending order, i32 [B, Hkv,
/// tiles, mostInUnion]. Null where a kernel does without.
struct SelectionUnion {
  mlir::Value counts, blocks;
};

/// For each block the queries that selected it; null where a kernel does
/// without.
struct InverseIndex {
  mlir::Value offsets, list;
};

/// Attention with indices. Keys come in tiles that divide the block which an
/// index names.
struct SelectedAttention {
  SelectedAttention(const AttentionShape &shape,
                    VisibilityAttrInterface visibility, int64_t count,
                    const KernelCut &cut)
      : shape(shape), visibility(visibility),
        selectBlock(limitBlock(shape, visibility.getIndexBlock())),
        count(count),
        warpgroupRows(shape.elementBits == 16 ? cut.getWarpgroupRows() : 0),
        mTileRows(cut.sizes.getForm() == SelectionForm::Unions && fitsUnions()
                      ? warpgroupRows
                      : kWarpRows),
        keyTile(getKeyTile(shape, this->selectBlock, cut)),
        queryTile(multipliesUnions()
                      ? fillWarpgroups(cut)
                      : getQueryTile(shape, this->selectBlock, count, cut)),
        stepTile(getStepTile(cut)), ownKeyTile(getWholeTile(cut)),
        gatherTile(getGatherTile(shape, cut)),
        gatherRows(static_cast<int64_t>(
            llvm::alignTo(gatherTile * shape.group(), cut.getRowMultiple()))),
        gradParts(getGradParts(shape, this->selectBlock, count, cut)),
        isParallel(cut.isParallel()) {
    this->shape.fitTo(cut);
  }
  template <typename OpT>
  SelectedAttention(OpT op, const KernelCut &cut)
      : SelectedAttention(getShapeOf(op), op.getVisibility(),
                          getDim(op.getIndices(), 3), cut) {
    isPacked = bool(op.getStart());
  }

  /// A block with all of the sequence is as good as a longer one.
  static int64_t limitBlock(const AttentionShape &shape, int64_t selectBlock) {
    constexpr int64_t handy = 64;
    if (!shape.tokens.isConstant())
      return selectBlock;
    return std::min<int64_t>(selectBlock,
                             llvm::alignTo(int64_t(shape.tokens), handy));
  }
  /// The largest divisor of a selection block that makes a good tile: a smaller
  /// one for wide heads where programs share a cache.
  static int64_t getKeyTile(const AttentionShape &shape, int64_t selectBlock,
                            const KernelCut &cut);
  /// More queries have more blocks in common, and more that only one of them
  /// selected: 8 of them, more if that gives few rows, less if it gives many.
  /// On wide machines, where every query selects a good part of all blocks,
  /// those of about 64 rows, or of up to three whole warpgroups; else as many
  /// as fill the 16 rows of an M-tile, which one warp multiplies, or four times
  /// as many where another warp copies the blocks of all of them, and each
  /// skips those that its queries did not select.
  static int64_t getQueryTile(const AttentionShape &shape, int64_t selectBlock,
                              int64_t count, const KernelCut &cut);
  /// Whether queries select a small part of the blocks only.
  static bool isLong(const AttentionShape &shape, int64_t selectBlock,
                     int64_t count) {
    return int64_t(shape.tokens) > 2 * count * selectBlock;
  }
  /// Whether warps of a program skip blocks that they did not select.
  bool skipsPerWarp() const {
    return isParallel && !multipliesUnions() &&
           isLong(shape, selectBlock, count) &&
           queryTile * shape.group() > mTileRows;
  }
  /// Whether the queries of a warpgroup multiply all blocks of their union.
  bool multipliesUnions() const { return mTileRows != kWarpRows; }
  bool fitsUnions() const { return shape.group() <= warpgroupRows; }
  /// The queries of as few warpgroups as have those of a schedule.
  int64_t fillWarpgroups(const KernelCut &cut) const {
    int64_t queries = std::max<int64_t>(cut.sizes.getSelectedQueries(), 1);
    return static_cast<int64_t>(
        llvm::alignTo(queries, mTileRows / shape.group()));
  }
  /// The program of a tile of queries.
  GroupProgram makeProgram(tile::TileBuilder &b, tile::Expr tile) const {
    bool hasGaps = (skipsPerWarp() || multipliesUnions()) &&
                   mTileRows % shape.group() != 0;
    return {shape, queryTile, hasGaps ? mTileRows : 0, b, tile};
  }
  static int64_t getGatherTile(const AttentionShape &shape,
                               const KernelCut &cut);
  /// Parts of the list of a block, each a program's: every query selects the
  /// first block, on a GPU others would wait for the program of that one. As
  /// many as leave that program half of the time that all of them take, two on
  /// each multiprocessor at once, unless parts have fewer queries than a list
  /// has on average.
  static int64_t getGradParts(const AttentionShape &shape, int64_t selectBlock,
                              int64_t count, const KernelCut &cut);

  /// Programs of the gradient of keys that a multiprocessor is to run at once,
  /// 0 for as many as fit: three where so many have registers for their sums,
  /// and no rows without a query to tell apart.
  int64_t getGradBlocks() const {
    bool fits = warpgroupRows != 0 && shape.keyWidth + shape.valueWidth <= 128;
    return fits && gatherRows == gatherTile * shape.group() ? 3 : 0;
  }

  Extent numBlocks() const { return ceilDiv(shape.tokens, selectBlock); }
  Extent numKeyTiles() const { return ceilDiv(shape.tokens, keyTile); }
  /// Tiles of a block that a program of the gradient of keys takes, and all of
  /// them; the last ones of blocks may reach beyond.
  int64_t tilesPerBlock() const {
    return static_cast<int64_t>(llvm::divideCeil(selectBlock, ownKeyTile));
  }
  bool reachesBeyondBlocks(int64_t tile) const {
    return selectBlock % tile != 0;
  }
  Extent numGradTiles() const {
    return reachesBeyondBlocks(ownKeyTile) ? numBlocks() * tilesPerBlock()
                                           : ceilDiv(shape.tokens, ownKeyTile);
  }
  tile::Expr firstKeyOf(tile::Expr tile) const {
    if (!reachesBeyondBlocks(ownKeyTile))
      return tile * ownKeyTile;
    return tile / tilesPerBlock() * selectBlock +
           tile % tilesPerBlock() * ownKeyTile;
  }
  Extent numQueryTiles() const { return ceilDiv(shape.sequence, queryTile); }
  /// The tile of queries of a program.
  tile::Expr queryTileOf(tile::Expr number) const {
    return getQueryTileOf(number, numQueryTiles(), isParallel);
  }
  /// For kernel names: "s64n16".
  std::string selectionName() const;
  std::string name() const { return shape.name() + "_" + selectionName(); }
  /// Floating-point operations of `width` multiply-adds per attended pair, if
  /// every query attends to full blocks.
  int64_t flops(int64_t width) const;

  /// Runs `body` for each key tile of each block that some query of the program
  /// selected, in ascending order: those of `selection`, or of the list of its
  /// only query, or else those of all that it finds in its queries' lists.
  llvm::SmallVector<mlir::Value>
  forEachKeyTile(const RowProgram &program, mlir::Value indices,
                 const SelectionUnion &selection, mlir::Value k, mlir::Value v,
                 llvm::ArrayRef<mlir::Value> inits, KeyTileBody body) const;

  /// Whether programs iterate over a SelectionUnion: on machines where looking
  /// at every block would take long, if they have several queries. Of packed
  /// sequences it is one of ranges of `selectBlock` tokens, numbered as blocks
  /// are, in which there are keys of the blocks.
  bool hasUnion() const { return isParallel && (queryTile > 1 || isPacked); }
  /// The most blocks, or ranges, that queries of a tile select.
  int64_t mostInUnion() const {
    int64_t most = queryTile * count * (isPacked ? 2 : 1);
    return shape.tokens.isConstant() ? std::min(most, int64_t(numBlocks()))
                                     : most;
  }
  /// The SelectionUnion of `op`, of a launch that forward and backward share.
  /// `indices` are numbers of blocks, and `start` is null without packed
  /// sequences, `at` with whole ones.
  SelectionUnion launchUnion(KernelCache &cache, mlir::OpBuilder &builder,
                             mlir::Operation *op, mlir::Value indices,
                             mlir::Value start, mlir::Value at) const;
  /// Launches the kernels that the gradient of `op` needs before others.
  InverseIndex launchLists(KernelCache &cache, mlir::OpBuilder &builder,
                           mlir::Operation *op, mlir::Value indices,
                           mlir::Value at) const;
  /// The numbers of the blocks that `indices` name: of packed sequences, which
  /// begin at `start`, from a launch that all share; `indices` if `start` is
  /// null.
  mlir::Value launchNumbers(KernelCache &cache, mlir::OpBuilder &builder,
                            mlir::Operation *op, mlir::Value indices,
                            mlir::Value start, mlir::Value at) const;

  /// Types of the inverse index: offsets and queries [B, Hkv, S * count], both
  /// i32. Offsets are [B, Hkv, blocks + 2], the queries of block j those at
  /// offsets[j] .. offsets[j + 1] - 1, and the last offset is scratch; on wide
  /// machines [B, Hkv, parts + 1, blocks], and the queries of part p of block j
  /// those at offsets[p, j] .. offsets[p + 1, j] - 1.
  llvm::SmallVector<mlir::Type> getIndexTypes(KernelCache &cache) const;
  /// Queries that a program lists on wide machines, and those of them that it
  /// takes at once: fewer in parts of sequences, since each program goes
  /// through all blocks.
  static constexpr int64_t mostIndexQueries = 512;
  int64_t indexQueries() const {
    return std::min<int64_t>(
        shape.isPlaced ? mostIndexQueries / 2 : mostIndexQueries,
        llvm::alignTo(int64_t(shape.sequence), indexTile()));
  }
  int64_t indexTile() const { return getTileSize(shape.sequence, 128, 16); }
  Extent numIndexPrograms() const {
    return ceilDiv(shape.sequence, indexQueries());
  }
  /// Queries of a part: programs of the same part find the same ones in the
  /// cache. Those of whole programs that list them.
  Extent partQueries() const {
    return ceilDiv(ceilDiv(shape.sequence, gradParts), indexQueries()) *
           indexQueries();
  }
  /// The first part that has queries which see `block`; of several rows of
  /// queries in a sequence, any.
  tile::Expr firstPart(tile::Expr block) const {
    return shape.isPlaced ? block.constant(0)
                          : block * selectBlock / partQueries();
  }
  /// Where a part of the list of a block begins and ends.
  std::pair<tile::Expr, tile::Expr>
  getListPart(tile::TileBuilder &b, mlir::Value offsets, tile::Expr batch,
              tile::Expr keyHead, tile::Expr block, tile::Expr part,
              int64_t parts) const;
  /// The programs of the gradients of keys, with `gradParts` or 0 for no parts.
  /// On wide machines the grid has one dimension. Programs of the first block,
  /// whose list is the longest, come first. Of the others those of the next
  /// blocks follow, or, where one head has many programs, those of one head and
  /// part, which find their queries in the cache.
  KeyProgram getKeyProgram(tile::TileBuilder &b, int64_t parts) const;
  std::array<Extent, 3> keyGrid(int64_t parts) const;
  /// Gathers the (query, head) rows of a block in ascending order.
  void buildKeyValueGrad(tile::TileBuilder &b, const KeyProgram &program,
                         const KeyValueGradArgs &args) const;

  AttentionShape shape;
  VisibilityAttrInterface visibility;
  int64_t selectBlock, count;
  /// Rows of an M-tile, which have the blocks in common that they multiply: of
  /// a warp, or of a warpgroup.
  static constexpr int64_t kWarpRows = 16;
  int64_t warpgroupRows, mTileRows;
  /// Keys of tiles that divide blocks; queries of a program that iterates over
  /// keys, and keys that it takes at once; keys of a program that iterates over
  /// queries, queries that it takes at once, and rows of these, of which the
  /// last ones are of no query where heads do not fill M-tiles.
  int64_t keyTile, queryTile, stepTile, ownKeyTile, gatherTile, gatherRows,
      gradParts;
  bool isParallel;
  /// Whether several sequences share a row of the batch. Block `j` of one that
  /// begins at `start` then has the number floor(start / selectBlock) + j; it
  /// begins start % selectBlock tokens after the multiple of selectBlock of
  /// this number, so that such a range of tokens has keys of two blocks.
  bool isPacked = false;

  /// The lists of some queries of packed sequences, as numbers of blocks.
  struct PackedLists;

private:
  /// A key tile, or less: where one warp has all rows of a program, many
  /// programs share a multiprocessor, and small tiles leave memory for them.
  int64_t getStepTile(const KernelCut &cut) const;
  /// A key tile, or where tensor cores cannot add up so many products, one that
  /// reaches beyond the block.
  int64_t getWholeTile(const KernelCut &cut) const;
  void buildPartOfGrad(tile::TileBuilder &b, const KeyProgram &program,
                       const KeyValueGradArgs &args) const;
  void limitToBlock(tile::TileBuilder &b, mlir::Value start, tile::Expr batch,
                    tile::Expr block, KeyTile &tile) const;
  llvm::SmallVector<mlir::Value>
  forEachBlockOf(tile::TileBuilder &b, mlir::Value start, tile::Expr batch,
                 tile::Expr u0, llvm::ArrayRef<mlir::Value> inits,
                 llvm::function_ref<llvm::SmallVector<mlir::Value>(
                     tile::Expr, llvm::ArrayRef<mlir::Value>)>
                     body) const;
  /// Two ways to fill a SelectionUnion.
  void markUnion(tile::TileBuilder &b, tile::Expr tile, mlir::Value indices,
                 mlir::Value start, mlir::Value at,
                 const SelectionUnion &selection) const;
  void compareUnion(tile::TileBuilder &b, tile::Expr tile, mlir::Value indices,
                    const SelectionUnion &selection) const;
  KeyTile makeKeyTile(const RowProgram &program, mlir::Value blocks,
                      mlir::Value k, mlir::Value v, tile::Expr block,
                      tile::Expr first) const;
  void sortEntries(tile::TileBuilder &b, tile::Expr keyHead, tile::Expr batch,
                   mlir::Value indices, mlir::Value offsets,
                   mlir::Value list) const;
  llvm::SmallVector<mlir::Value> forEachKeyTileOfPacked(
      const RowProgram &program, mlir::Value indices, mlir::Value k,
      mlir::Value v, llvm::ArrayRef<mlir::Value> inits, KeyTileBody body) const;
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_SELECTEDATTENTIONKERNELS_H
