//===- Select.cpp - the best selection blocks of each token ---------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/AttentionKernels.h"
#include "passes/Kernels/NSA/BlockPriority.h"
#include "passes/Kernels/NSA/NSAToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

template <typename OpT>
static AttentionShape getSelectShape(OpT op) {
  return getShapeOf(op, op.getKey(), op.getCompressed());
}

/// The shape for all tokens that the caches are for.
static AttentionShape getSelectShape(DecodeSelectOp op) {
  AttentionShape shape = getSelectShape<DecodeSelectOp>(op);
  shape.sequence = shape.tokens = static_cast<int64_t>(op.getContext());
  return shape;
}

static bool hasStart(SelectOp op) { return op.getStart() != nullptr; }
static bool hasStart(DecodeSelectOp) { return false; }

namespace {
/// What a kernel reads; null where it does without.
struct SelectOperands {
  SmallVector<Value *> slots() {
    return {&query, &key, &lse, &positions, &start, &ends, &at};
  }

  Value query, key, lse;
  /// Of a decoding step.
  Value positions = {};
  /// Where packed sequences begin and end, and where rows of queries begin.
  Value start = {}, ends = {}, at = {};
};

/// Scores and the list of the best blocks stay in the program: nothing of size
/// sequence x blocks is stored.
struct SelectKernel {
  /// Of `nsa.select`, or of `nsa.decode_select`, whose kernel has one query.
  template <typename OpT>
  SelectKernel(OpT op, const KernelCut &cut)
      : shape(getSelectShape(op)), visibility(op.getCompressed(), shape.tokens),
        selectBlock(limitBlock(op.getSelected().getBlock())),
        listed(op.getSelected().getCount()), count(limit(listed)),
        initial(limit(op.getSelected().getInitial())),
        local(limit(op.getSelected().getLocal())), isPacked(hasStart(op)),
        isParallel(cut.isParallel()),
        queryTile(getTileSize(getExtent(op.getQuery(), 1), getMostQueries(cut),
                              cut.getTileMultiple())),
        isOnTensorCores(cut.isParallel() && shape.elementBits == 16 &&
                        halo() < 256),
        mostRows(cut.getWarpgroupRows() != 0 ? 128 : 96),
        blockTile(getBlockTile(cut.sizes.getBlocks())),
        candidateTile(isOnTensorCores ? alignUp(blockTile, 8)
                      : isParallel    ? blockTile
                                      : std::max<int64_t>(blockTile, 2)),
        rowTile(alignUp(blockTile * ratio() + halo(),
                        isOnTensorCores ? 16 : cut.getColumnMultiple())) {
    shape.fitTo(cut);
  }

  /// Of compressed blocks.
  int64_t stride() const { return visibility->getKeyStride(); }
  int64_t block() const { return visibility->getFirstQuery(0).getNumber() + 1; }
  /// A block with all of the sequence is as good as a longer one, as long as
  /// compressed blocks fit.
  int64_t limitBlock(int64_t longest) const {
    if (!shape.tokens.isConstant())
      return longest;
    int64_t enough =
        std::max(alignUp(int64_t(shape.tokens), stride()), block());
    return std::min(longest, enough);
  }
  Extent numBlocks() const { return ceilDiv(shape.tokens, selectBlock); }
  /// A number of blocks, of which there may not be so many.
  int64_t limit(int64_t blocks) const {
    return shape.tokens.isConstant() ? std::min(blocks, int64_t(numBlocks()))
                                     : blocks;
  }

  static int64_t alignUp(int64_t size, int64_t multiple) {
    return static_cast<int64_t>(llvm::alignTo(size, multiple));
  }

  /// Selection blocks of a tile: those that about 32 rows overlap; on tensor
  /// cores as many as registers allow, because the queries of all heads are
  /// read again for each tile. There, rows come in M-tiles of 16, which
  /// should be full. Or `fixed`, if that is not 0.
  int64_t getBlockTile(int64_t fixed) const {
    auto blocks = int64_t(numBlocks());
    if (fixed != 0)
      return std::min(fixed, blocks);
    if (isOnTensorCores) {
      int64_t fewest = std::min<int64_t>(blocks, 4);
      return std::clamp((mostRows - halo()) / ratio(), fewest, blocks);
    }
    return getTileSize(blocks, std::clamp<int64_t>(32 / ratio(), 8, 32));
  }

  /// Queries of a tile. Where programs share what memory there is, long lists
  /// and wide heads leave room for fewer.
  int64_t getMostQueries(const KernelCut &cut) const {
    if (cut.sizes.getQueries() != 0)
      return cut.sizes.getQueries();
    return cut.isParallel() && (count > 32 || shape.keyWidth > 128) ? 32 : 64;
  }
  /// Compressed blocks that start in a selection block.
  int64_t ratio() const { return selectBlock / stride(); }
  /// Compressed blocks that start before a selection block and reach into it.
  int64_t halo() const { return block() / stride() - 1; }

  Extent numQueryTiles() const { return ceilDiv(shape.sequence, queryTile); }

  /// Queries of one sequence, i32 [queries, 1]: their numbers, and their
  /// offsets in the sequence, -1 of those that are in another one. The row of
  /// the keys, and of packed sequences that of its first compressed block.
  struct Queries {
    Value number, place;
    Expr keyBatch, firstRow = {};
  };

  void build(TileBuilder &b, const SelectOperands &in, Value indices) const;
  void buildDecode(TileBuilder &b, const SelectOperands &in,
                   Value indices) const;
  void storeBest(TileBuilder &b, Value indices, Value t,
                 ArrayRef<Value> best) const;
  std::string name() const {
    return (shape.name() + "_" + visibility->getShapeName() + "s" +
            Twine(selectBlock) + "n" + Twine(listed) +
            (isPacked ? "_packed" : ""))
        .str();
  }
  /// No block yet: values and numbers.
  SmallVector<Value> noneBest(TileBuilder &b) const {
    return {b.full(-1, queryTile, count),
            b.splat(b.constant(-1), queryTile, count)};
  }
  SmallVector<Value> findBest(TileBuilder &b, const SelectOperands &in,
                              const Queries &queries, Expr lastPlace,
                              Value weights, SmallVector<Value> best) const;
  SmallVector<Value> findBestOfPacked(TileBuilder &b, const SelectOperands &in,
                                      const QueryPlace &place, Expr t0,
                                      Value t) const;
  Value buildWeights(TileBuilder &b) const;
  Value buildScores(TileBuilder &b, Value p, Value weights) const;
  Value buildProbabilities(TileBuilder &b, const SelectOperands &in,
                           const Queries &queries, Expr i0,
                           Expr numHeads) const;

  AttentionShape shape;
  Visibility visibility;
  int64_t selectBlock;
  /// Indices of a query, and those of them that are no padding in any case.
  int64_t listed, count;
  int64_t initial, local;
  bool isPacked, isParallel;
  int64_t queryTile;
  bool isOnTensorCores;
  /// Compressed blocks of a tile there. Warps that multiply alone have operands
  /// in registers besides.
  int64_t mostRows;
  /// Selection blocks of a tile, columns that hold their scores, and at least
  /// the compressed blocks that overlap them. On a processor the sums of one
  /// column had another order.
  int64_t blockTile, candidateTile, rowTile;
};
} // namespace

/// What compressed block `c` of the tile gives to selection block `j` of the
/// tile: the number of tokens that they share, in strides. The same for every
/// tile of blocks.
Value SelectKernel::buildWeights(TileBuilder &b) const {
  Value c = b.range(-halo(), rowTile, 0), j = b.range(0, candidateTile, 1);
  // Numbers of strides in a block are exact.
  Type element = isOnTensorCores ? b.getBuilder().getBF16Type() : b.f32();
  return b.map({c, j}, element, [&](ArrayRef<Expr> x) {
    Expr begin = x[0] * stride(), blockBegin = x[1] * selectBlock;
    Expr overlap =
        min(begin + block(), blockBegin + selectBlock) - max(begin, blockBegin);
    return convert(max(overlap, 0), b.f32()) * (1.0 / stride());
  });
}

/// The scores [queries, blocks] of probabilities: a dot with the weights.
/// On tensor cores each probability is a sum of three numbers of 16 bits, which
/// together have all of its own. Equal probabilities have exact sums of the
/// first parts, and of the others, wherever in the tile they lie; so rounding
/// once makes blocks tie that should.
Value SelectKernel::buildScores(TileBuilder &b, Value p, Value weights) const {
  Value zeros = b.zeros(queryTile, candidateTile);
  if (!isOnTensorCores)
    return b.dot(p, weights, zeros);
  Value sums[] = {zeros, zeros};
  for (int part = 0; part < 3; ++part) {
    Value leading = b.convertTo(p, b.getBuilder().getBF16Type());
    Value &sum = sums[part > 0];
    sum = b.dot(leading, weights, sum);
    p = b.map({p, leading}, b.f32(),
              [](ArrayRef<Expr> x) { return x[0] - x[1]; });
  }
  auto [most, least] = sums;
  return add(b, most, least);
}

/// p [queries, rows] of the compressed blocks from `i0`, summed over the first
/// `numHeads` heads of the group in ascending order. Blocks before the first
/// one, and those invisible, give 0.
Value SelectKernel::buildProbabilities(TileBuilder &b, const SelectOperands &in,
                                       const Queries &queries, Expr i0,
                                       Expr numHeads) const {
  Expr keyHead = b.programId(1), batch = b.programId(2);
  Value cols = shape.columns(b, shape.keyWidth);
  Value t = queries.number, i = b.range(i0, rowTile, 1);
  Expr row = Value(queries.firstRow) ? queries.firstRow + i0 : i0;
  Value keys = b.load(
      in.key, {queries.keyBatch, b.range(row, rowTile, 0), keyHead, cols});
  // A processor adds the products of few queries in another order than those of
  // many, unless keys are columns.
  if (!isParallel)
    keys = b.transpose(keys);
  Value sums = b.forLoop(
      0, numHeads, 1, {b.zeros(queryTile, rowTile)},
      [&](Expr g, ArrayRef<Value> carried) -> SmallVector<Value> {
        Expr head = keyHead * shape.group() + g;
        Value own = b.load(in.query, {batch, t, head, cols});
        Value shift =
            shape.exponent().fromLse(b, b.load(in.lse, {batch, head, t}));
        Value products = b.dot(own, keys, b.zeros(queryTile, rowTile),
                               /*transposeB=*/isParallel);
        return {b.map({carried[0], products, shift}, b.f32(),
                      [&](ArrayRef<Expr> x) {
                        return x[0] + shape.exponent().probability(x[1], x[2]);
                      })};
      })[0];
  // What is visible is the same for all heads.
  return b.map({sums, queries.place, i}, b.f32(), [&](ArrayRef<Expr> x) {
    return select((x[2] >= 0) & visibility.isVisible(x[1], x[2]), x[0], 0);
  });
}

/// Takes the blocks of a sequence into `best`, values and numbers, of which the
/// query at `lastPlace` sees the most. With no weights and best ones, the
/// first.
SmallVector<Value> SelectKernel::findBest(TileBuilder &b,
                                          const SelectOperands &in,
                                          const Queries &queries,
                                          Expr lastPlace, Value weights,
                                          SmallVector<Value> best) const {
  Expr numBlocks = lastPlace / selectBlock + 1;
  // Without competition every candidate enters whatever its score.
  Expr numHeads = select(numBlocks <= count, 0, b.constant(shape.group()));
  if (!weights)
    weights = buildWeights(b);
  if (best.empty())
    best = noneBest(b);
  BlockPriority priority{selectBlock, initial, local};
  return b.forLoop(
      0, numBlocks, blockTile, best,
      [&](Expr j0, ArrayRef<Value> best) -> SmallVector<Value> {
        Value p =
            buildProbabilities(b, in, queries, j0 * ratio() - halo(), numHeads);
        Value scores = buildScores(b, p, weights);
        Value values =
            b.map({scores, queries.place, b.range(j0, candidateTile, 1)},
                  b.f32(), [&](ArrayRef<Expr> x) {
                    Expr value = priority.of(x[1], x[2], x[0]);
                    if (isPacked)
                      value = select(x[1] >= 0, value, -1);
                    // The next tile has the columns past the last block.
                    return candidateTile == blockTile
                               ? value
                               : select(x[2] < j0 + blockTile, value, -1);
                  });
        auto [bestValues, bestIndices] = b.topN(values, j0, best[0], best[1]);
        return {bestValues, bestIndices};
      });
}

/// The same for each of the sequences that the queries from `t0` on are in:
/// their blocks lie at different distances from the rows of the tile.
SmallVector<Value> SelectKernel::findBestOfPacked(TileBuilder &b,
                                                  const SelectOperands &in,
                                                  const QueryPlace &queries,
                                                  Expr t0, Value t) const {
  Expr batch = queries.batch;
  Value position = queries.of(b, t);
  Expr end = queries.of(min(t0 + queryTile, shape.sequence));
  t0 = queries.of(t0);
  // Most tiles lie in one sequence.
  Expr isOne = b.loadScalar(in.ends, {batch, t0}) >= end;
  Expr numSequences = b.expr(
      b.forLoop(t0 + 1, select(isOne, t0 + 1, end), 1, {b.constant(1)},
                [&](Expr query, ArrayRef<Value> number) -> SmallVector<Value> {
                  Expr begins = b.loadScalar(in.start, {batch, query}) == query;
                  return {b.expr(number[0]) + convert(begins, b.i32())};
                })[0]);
  Value starts = b.load(in.start, {batch, position}), weights = buildWeights(b);
  SmallVector<Value> carried = {t0};
  llvm::append_range(carried, noneBest(b));
  carried = b.forLoop(
      0, numSequences, 1, carried,
      [&](Expr, ArrayRef<Value> carried) -> SmallVector<Value> {
        Expr first = b.expr(carried[0]);
        Expr begin = b.loadScalar(in.start, {batch, first});
        Expr next = b.loadScalar(in.ends, {batch, first});
        Value place = b.map({position, starts}, b.i32(), [&](ArrayRef<Expr> x) {
          return select(x[1] == begin, x[0] - x[1], -1);
        });
        SmallVector<Value> results = findBest(
            b, in, {t, place, batch, begin / static_cast<double>(stride())},
            min(next, end) - 1 - begin, weights,
            llvm::to_vector(carried.drop_front()));
        results.insert(results.begin(), next);
        return results;
      });
  return llvm::to_vector(ArrayRef(carried).drop_front());
}

/// Writes the numbers of the best blocks of the queries `t`.
void SelectKernel::storeBest(TileBuilder &b, Value indices, Value t,
                             ArrayRef<Value> best) const {
  auto store = [&](Value tile, Expr first) {
    b.store(tile, indices,
            {b.programId(2), b.programId(1), t, b.range(first, count, 1)});
  };
  store(b.sort(best[1]), b.constant(0));
  if (listed == count)
    return;
  Value padding = b.splat(b.constant(-1), queryTile, count);
  b.forLoop(count, listed, count, {},
            [&](Expr first, ArrayRef<Value>) -> SmallVector<Value> {
              store(padding, first);
              return {};
            });
}

/// Program: (query tile, key head, batch).
void SelectKernel::build(TileBuilder &b, const SelectOperands &in,
                         Value indices) const {
  Expr t0 =
      getQueryTileOf(b.programId(0), numQueryTiles(), isParallel) * queryTile;
  Value t = b.range(t0, queryTile, 0);
  auto place = QueryPlace::load(b, shape, in.at, b.programId(2));
  SmallVector<Value> best;
  if (isPacked) {
    best = findBestOfPacked(b, in, place, t0, t);
  } else {
    Expr last = place.of(min(t0 + (queryTile - 1), shape.sequence - 1));
    best = findBest(b, in, {t, place.of(b, t), place.batch},
                    place.limit(last, shape.tokens - 1), Value(), {});
  }
  storeBest(b, indices, t, best);
}

/// Program: (1, key head, batch). Rows of the tile beyond the query are not
/// stored.
void SelectKernel::buildDecode(TileBuilder &b, const SelectOperands &in,
                               Value indices) const {
  // A sequence that is left alone lists its first block.
  Expr position = max(b.loadScalar(in.positions, {b.programId(2)}), 0);
  Value row = b.range(0, queryTile, 0);
  storeBest(b, indices, row,
            findBest(b, in,
                     {row, b.splat(position, queryTile, 1), b.programId(2)},
                     position, Value(), {}));
}

static LogicalResult convertSelect(SelectOp op, KernelCache &cache,
                                   PatternRewriter &rewriter) {
  ChosenSchedule own =
      getSelectShape(op).choose(cache, op, "", AttentionKernel::Select);
  SelectKernel kernel(op, KernelCut(cache.getMachine(), own.sizes));
  const AttentionShape &shape = kernel.shape;
  KernelSpec spec;
  spec.schedule = own;
  spec.shape = kernel.name();
  spec.grid = {kernel.numQueryTiles(), shape.keyHeads, shape.batch};
  spec.takesExtents = !kernel.isPacked && !shape.isPlaced;
  spec.longestFirst = true;
  spec.lastRowsFirst = shape.isPlaced;
  spec.flops = shape.flops(shape.keyWidth,
                           kernel.visibility->countPairs(int64_t(shape.tokens),
                                                         int64_t(shape.keys),
                                                         /*indices=*/0));
  SelectOperands in = {op.getQuery(), op.getKey(), op.getLse()};
  in.start = op.getStart();
  in.at = op.getAt();
  if (kernel.isPacked)
    in.ends = launchSequenceEnds(cache, rewriter, op, op.getStart());
  return replaceBy(cache, rewriter, op, spec, in,
                   [&](auto &b, const SelectOperands &in, ArrayRef<Value> out) {
                     kernel.build(b, in, out.front());
                   });
}

static LogicalResult convertDecodeSelect(DecodeSelectOp op, KernelCache &cache,
                                         PatternRewriter &rewriter) {
  SelectKernel kernel(op, cache.getMachine());
  const AttentionShape &shape = kernel.shape;
  KernelSpec spec;
  spec.shape = kernel.name();
  spec.grid = {1, shape.keyHeads, shape.batch};
  spec.flops = shape.flops(shape.keyWidth, int64_t(shape.keys));
  SelectOperands in = {op.getQuery(), op.getKey(), op.getLse(),
                       op.getPositions()};
  return replaceBy(cache, rewriter, op, spec, in,
                   [&](auto &b, const SelectOperands &in, ArrayRef<Value> out) {
                     kernel.buildDecode(b, in, out.front());
                   });
}

void nsa::populateSelectPatterns(KernelPatterns &patterns) {
  patterns.add(convertSelect, convertDecodeSelect);
}
