//===- DecodeSelect.cpp - selected blocks of one query --------------------===//
//
// In two launches: scores of blocks, by probabilities of the compressed rows
// that overlap them, of few blocks a program; then the rank of each among all
// of the group.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/BlockPriority.h"
#include "passes/Kernels/NSA/DecodeKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// What the kernels read.
struct ScoreOperands {
  SmallVector<Value *> slots() {
    SmallVector<Value *> all = {&query, &key, &lseParts, &scores, &positions};
    for (Value &value : unused)
      all.push_back(&value);
    return all;
  }

  Value query, key, lseParts, scores, positions;
  SmallVector<Value> unused;
};

/// The scores of blocks.
struct BlockScores {
  BlockScores(DecodeSelectOp op, Value lseParts, MachineAttr machine)
      : op(op), shape(getShapeOf(op, op.getKey(), op.getCompressed())),
        visibility(op.getCompressed(), int64_t(op.getContext())),
        rows(getDim(op.getKey(), 1)), lseParts(getDim(lseParts, 2)),
        numRows(static_cast<int64_t>(
            llvm::alignTo(shape.group(), machine.getRowMultiple()))),
        block(static_cast<int64_t>(op.getBlock())),
        stride(static_cast<int64_t>(op.getStride())),
        selectBlock(op.getSelected().getBlock()),
        tile(2 * machine.getColumnMultiple()) {
    shape.fitTo(machine);
  }

  std::string name() const {
    return "b" + formatExtent(shape.batch) + "r" + std::to_string(rows) + "h" +
           std::to_string(shape.queryHeads) + "x" +
           std::to_string(shape.keyHeads) + "d" +
           std::to_string(shape.keyWidth) + "_" + visibility->getShapeName() +
           "_s" + std::to_string(selectBlock);
  }
  /// Program: (tile of blocks, key head, batch). Only blocks up to the query's
  /// get scores.
  void build(TileBuilder &b, const ScoreOperands &in, Value scores) const;
  /// What the lse of the parts of the program's heads are together.
  Value loadLse(TileBuilder &b, const RowProgram &program, Value parts) const;

  DecodeSelectOp op;
  AttentionShape shape;
  Visibility visibility;
  int64_t rows, lseParts, numRows;
  int64_t block, stride, selectBlock;
  /// Blocks of a program.
  int64_t tile;
};
} // namespace

Value BlockScores::loadLse(TileBuilder &b, const RowProgram &program,
                           Value parts) const {
  // Padding columns of tiles see nothing.
  int64_t columns = static_cast<int64_t>(llvm::alignTo(lseParts, 16));
  Value column = b.range(0, columns, 1);
  Value lses = b.map(
      {b.load(parts, {program.range.batch, program.head, column}), column},
      b.f32(), [&](ArrayRef<Expr> x) {
        return select(x[1] < static_cast<double>(lseParts), x[0], -INFINITY);
      });
  return mergeLse(b, lses, /*axis=*/1);
}

void BlockScores::build(TileBuilder &b, const ScoreOperands &in,
                        Value scores) const {
  Expr batch = b.programId(2), keyHead = b.programId(1);
  Expr position = b.loadScalar(in.positions, {batch});
  Expr first = b.programId(0) * static_cast<double>(tile);
  b.ifThen(first * static_cast<double>(selectBlock) <= position, [&] {
    int64_t ratio = selectBlock / stride, halo = block / stride - 1;
    auto getRow = [&](int64_t c, int axis) {
      return b.range(first * static_cast<double>(ratio) +
                         static_cast<double>(c),
                     tile, axis, ratio);
    };
    auto loadKeys = [&](int64_t c) {
      return b.load(in.key, {batch, getRow(c, 0), keyHead,
                             shape.columns(b, shape.keyWidth)});
    };
    // All loads are issued before the first use, as far as there is memory for
    // them.
    constexpr int64_t mostBytes = 64 * 1024;
    int64_t tileBytes =
        tile * shape.padded(shape.keyWidth) * shape.elementBits / 8;
    bool isAtOnce = (halo + ratio) * tileBytes <= mostBytes;
    SmallVector<Value> keys;
    for (int64_t c = -halo; isAtOnce && c < ratio; ++c)
      keys.push_back(loadKeys(c));
    RowProgram program = makeHeadProgram(b, shape, numRows, b.constant(0));
    Value rows = program.loadRows(in.query, shape.columns(b, shape.keyWidth));
    auto multiply = [&](Value key) {
      return b.dot(rows, key, b.zeros(numRows, tile), /*transposeB=*/true);
    };
    // Before the lse, which the launch before may still be writing.
    SmallVector<Value> products = llvm::map_to_vector(keys, multiply);
    Value shift = shape.exponent().fromLse(b, loadLse(b, program, in.lseParts));
    Value score = b.zeros(1, tile);
    // In order, the rows that overlap a block.
    for (int64_t c = -halo; c < ratio; ++c) {
      Value product = isAtOnce ? products[c + halo] : multiply(loadKeys(c));
      Value sums = b.reduceAdd(
          b.map({product, shift, b.range(0, numRows, 0), getRow(c, 1)}, b.f32(),
                [&](ArrayRef<Expr> x) {
                  Expr counts = (x[2] < static_cast<double>(shape.group())) &
                                (x[3] >= 0) &
                                visibility.isVisible(position, x[3]);
                  return maskedProbability(counts, x[0], shape.exponent(),
                                           x[1]);
                }),
          /*axis=*/0);
      int64_t overlap = std::min(c * stride + block, selectBlock) -
                        std::max<int64_t>(c * stride, 0);
      double weight = double(std::max<int64_t>(overlap, 0)) / double(stride);
      score = b.map({score, sums}, b.f32(),
                    [&](ArrayRef<Expr> x) { return x[0] + x[1] * weight; });
    }
    b.store(score, scores, {batch, keyHead, b.range(first, tile, 1)});
  });
}

//===----------------------------------------------------------------------===//
// Best blocks
//===----------------------------------------------------------------------===//

namespace {
/// Which blocks are selected, by the scores of those up to the query's own.
struct BestBlocks {
  explicit BestBlocks(DecodeSelectOp op)
      : priority{op.getSelected().getBlock(), op.getSelected().getInitial(),
                 op.getSelected().getLocal()},
        blocks(llvm::divideCeil(op.getContext(), priority.selectBlock)),
        count(op.getSelected().getCount()),
        others(std::min<int64_t>(512, llvm::alignTo(blocks, 32))) {}

  /// The values by which blocks from `first` on compete, along an axis.
  Value getValues(TileBuilder &b, Value scores, Expr position, Expr first,
                  int64_t size, int axis) const;
  /// Program: (some blocks, key head, batch). Writes the best blocks first; -1
  /// past the last candidate.
  void build(TileBuilder &b, const ScoreOperands &in, Value indices) const;

  BlockPriority priority;
  int64_t blocks, count;
  /// Blocks of a program, and those that they are compared with at once.
  static constexpr int64_t own = 32;
  int64_t others;
};
} // namespace

Value BestBlocks::getValues(TileBuilder &b, Value scores, Expr position,
                            Expr first, int64_t size, int axis) const {
  Value number = b.range(first, size, axis);
  Value score = b.load(scores, {b.programId(2), b.programId(1), number});
  return b.map({score, number}, b.f32(), [&](ArrayRef<Expr> x) {
    return priority.of(position, x[1], x[0]);
  });
}

void BestBlocks::build(TileBuilder &b, const ScoreOperands &in,
                       Value indices) const {
  Expr batch = b.programId(2), keyHead = b.programId(1);
  // A sequence that is left alone lists its first block.
  Expr position = max(b.loadScalar(in.positions, {batch}), 0);
  Expr numBlocks = position / static_cast<double>(priority.selectBlock) + 1;
  Expr first = b.programId(0) * static_cast<double>(own);
  b.ifThen(first < numBlocks, [&] {
    Value number = b.range(first, own, 0);
    Value values = getValues(b, in.scores, position, first, own, /*axis=*/0);
    Value rank = b.forLoop(
        0, numBlocks, others, {b.splat(b.constant(0), own, 1)},
        [&](Expr other, ArrayRef<Value> carried) -> SmallVector<Value> {
          Value rivals =
              getValues(b, in.scores, position, other, others, /*axis=*/1);
          Value isBefore = b.map(
              {values, number, rivals, b.range(other, others, 1)}, b.i32(),
              [&](ArrayRef<Expr> x) {
                return convert((x[2] > x[0]) | ((x[2] == x[0]) & (x[3] < x[1])),
                               b.i32());
              });
          return {add(b, carried[0], b.reduceAdd(isBefore, /*axis=*/1))};
        })[0];
    Value place = b.map({rank, values}, b.i32(), [&](ArrayRef<Expr> x) {
      Expr isSelected = (x[0] < static_cast<double>(count)) & (x[1] >= 0);
      return select(isSelected, x[0], -1);
    });
    b.store(number, indices, {batch, keyHead, 0, place});
  });
  b.ifThen((b.programId(0) == 0) & (numBlocks < double(count)), [&] {
    Value slot = b.range(0, count, 0);
    Value past = b.map({slot}, b.i32(), [&](ArrayRef<Expr> x) {
      return select(x[0] >= numBlocks, x[0], -1);
    });
    b.store(b.splat(b.constant(-1), count, 1), indices,
            {batch, keyHead, 0, past});
  });
}

Value nsa::launchDecodeSelect(KernelCache &cache, OpBuilder &builder,
                              DecodeSelectOp op, Value lseParts,
                              ValueRange unused) {
  BlockScores scores(op, lseParts, cache.getMachine());
  BestBlocks best(op);
  const AttentionShape &shape = scores.shape;
  auto type = RankedTensorType::get(
      {int64_t(shape.batch), shape.keyHeads, best.blocks}, cache.getF32Type());
  auto divide = [](int64_t count, int64_t by) {
    return static_cast<int64_t>(llvm::divideCeil(count, by));
  };
  std::string key = "lse" + std::to_string(scores.lseParts) + " ";
  llvm::raw_string_ostream os(key);
  llvm::interleaveComma(unused.getTypes(), os);
  KernelSpec spec = {
      "scores",
      scores.name(),
      {divide(best.blocks, scores.tile), shape.keyHeads, shape.batch},
      shape.flops(shape.keyWidth, scores.rows),
      key};
  ScoreOperands in = {op.getQuery(),     op.getKey(),
                      lseParts,          Value(),
                      op.getPositions(), llvm::to_vector(unused)};
  Value found = launch(
      cache, builder, op,
      makeLaunch(spec, in, {type},
                 [&](auto &b, const ScoreOperands &in, ArrayRef<Value> out) {
                   scores.build(b, in, out.front());
                 }))[0];
  spec = {"best",
          scores.name() + "n" + std::to_string(best.count),
          {divide(best.blocks, BestBlocks::own), shape.keyHeads, shape.batch},
          /*flops=*/0,
          key};
  in.query = in.key = in.lseParts = {};
  in.scores = found;
  return launch(
      cache, builder, op,
      makeLaunch(spec, in, {op.getIndices().getType()},
                 [&](auto &b, const ScoreOperands &in, ArrayRef<Value> out) {
                   best.build(b, in, out.front());
                 }))[0];
}
