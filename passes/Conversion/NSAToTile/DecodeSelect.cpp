//===- DecodeSelect.cpp - selected blocks of one query --------------------===//
//
// In two launches: probabilities of the compressed rows, summed over the heads
// of a group, by as many programs as there are tiles of rows; then the scores
// of blocks, and the rank of each among all of the group.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/NSAToTile/BlockPriority.h"
#include "passes/Conversion/NSAToTile/DecodeKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
struct DecodeSelect {
  DecodeSelect(DecodeSelectOp op, Value lseParts,
               const KernelSchedule &schedule)
      : op(op),
        shape(op.getQuery(), op.getKey(), op.getKey(), op.getScaleOrDefault()),
        visibility(op.getCompressed(), int64_t(op.getContext())),
        rows(getDim(op.getKey(), 1)), lseParts(getDim(lseParts, 2)),
        numRows(static_cast<int64_t>(
            llvm::alignTo(shape.group(), schedule.rowMultiple))),
        block(static_cast<int64_t>(op.getBlock())),
        stride(static_cast<int64_t>(op.getStride())),
        selectBlock(op.getSelected().getBlock()),
        count(op.getSelected().getCount()),
        priority{selectBlock, op.getSelected().getInitial(),
                 op.getSelected().getLocal()},
        blocks(llvm::divideCeil(op.getContext(), selectBlock)),
        blockTile(std::min<int64_t>(512, llvm::alignTo(blocks, 32))) {}

  std::string name() const {
    return "b" + formatExtent(shape.batch) + "r" + std::to_string(rows) + "h" +
           std::to_string(shape.queryHeads) + "x" +
           std::to_string(shape.keyHeads) + "d" +
           std::to_string(shape.keyWidth) + "_" + visibility->getShapeName();
  }
  /// Program: (tile of rows, key head, batch). `args` are q, k, the lse of
  /// parts, positions, and the sums f32 [B, Hkv, rows], which rows that the
  /// query does not see may leave as they are.
  void buildProbabilities(TileBuilder &b, ArrayRef<Value> args) const;
  /// Program: (some blocks, key head, batch). `args` are the sums, positions
  /// and indices: the best blocks first, and nothing behind the last candidate.
  void buildBest(TileBuilder &b, ArrayRef<Value> args) const;
  Value getValues(TileBuilder &b, Value sums, Expr position, Expr first,
                  int64_t size, int axis) const;

  DecodeSelectOp op;
  AttentionShape shape;
  Visibility visibility;
  int64_t rows, lseParts, numRows;
  int64_t block, stride, selectBlock, count;
  BlockPriority priority;
  /// Blocks that are compared with those of a program at once, blocks of a
  /// program, and compressed rows of one.
  int64_t blocks, blockTile;
  static constexpr int64_t ownTile = 32, rowTile = 64;
};
} // namespace

void DecodeSelect::buildProbabilities(TileBuilder &b,
                                      ArrayRef<Value> args) const {
  Value q = args[0], k = args[1], parts = args[2];
  Expr batch = b.programId(2), keyHead = b.programId(1);
  Expr position = b.loadScalar(args[3], {batch});
  Expr first = b.programId(0) * static_cast<double>(rowTile);
  b.ifThen(visibility.isVisible(position, first), [&] {
    RowProgram program = makeHeadProgram(b, shape, numRows, b.constant(0));
    Value keys = b.load(k, {batch, b.range(first, rowTile, 0), keyHead,
                            b.range(0, shape.keyWidth, 1)});
    Value products = b.dot(program.loadRows(q, shape.keyWidth), keys,
                           b.zeros(numRows, rowTile), /*transposeB=*/true);
    // Columns that whole tiles have besides see nothing.
    int64_t columns = static_cast<int64_t>(llvm::alignTo(lseParts, 16));
    Value column = b.range(0, columns, 1);
    Value lses = b.map({b.load(parts, {batch, program.head, column}), column},
                       b.f32(), [&](ArrayRef<Expr> x) {
                         return select(x[1] < static_cast<double>(lseParts),
                                       x[0], -INFINITY);
                       });
    Value shift = shape.exponent().fromLse(b, mergeLse(b, lses, /*axis=*/1));
    Value sums = b.reduceAdd(
        b.map({products, shift, b.range(0, numRows, 0),
               b.range(first, rowTile, 1)},
              b.f32(),
              [&](ArrayRef<Expr> x) {
                Expr counts = (x[2] < static_cast<double>(shape.group())) &
                              visibility.isVisible(position, x[3]);
                return maskedProbability(counts, x[0], shape.exponent(), x[1]);
              }),
        /*axis=*/0);
    b.store(sums, args.back(), {batch, keyHead, b.range(first, rowTile, 1)});
  });
}

/// The values, f32, by which the blocks from `first` on compete, along an axis:
/// sums of probabilities of the rows that overlap them.
Value DecodeSelect::getValues(TileBuilder &b, Value sums, Expr position,
                              Expr first, int64_t size, int axis) const {
  Expr batch = b.programId(2), keyHead = b.programId(1);
  int64_t ratio = selectBlock / stride, halo = block / stride - 1;
  SmallVector<Value> inputs = {b.range(first, size, axis)};
  SmallVector<double> weights;
  for (int64_t c = -halo; c < ratio; ++c) {
    Expr firstRow = first * static_cast<double>(ratio) + static_cast<double>(c);
    Value row = b.range(firstRow, size, axis, ratio);
    inputs.append({row, b.load(sums, {batch, keyHead, row})});
    int64_t overlap = std::min(c * stride + block, selectBlock) -
                      std::max<int64_t>(c * stride, 0);
    weights.push_back(double(std::max<int64_t>(overlap, 0)) / double(stride));
  }
  return b.map(inputs, b.f32(), [&](ArrayRef<Expr> x) {
    Expr score = x[2].constant(0);
    for (auto [c, weight] : llvm::enumerate(weights)) {
      Expr row = x[1 + 2 * c];
      Expr sees = (row >= 0) & visibility.isVisible(position, row);
      score = score + select(sees, x[2 + 2 * c], 0) * weight;
    }
    return priority.of(position, x[0], score);
  });
}

void DecodeSelect::buildBest(TileBuilder &b, ArrayRef<Value> args) const {
  Expr batch = b.programId(2), keyHead = b.programId(1);
  // A sequence that is left alone lists its first block.
  Expr position = max(b.loadScalar(args[1], {batch}), 0);
  Expr numBlocks = position / static_cast<double>(selectBlock) + 1;
  Expr first = b.programId(0) * static_cast<double>(ownTile);
  b.ifThen(first < numBlocks, [&] {
    Value number = b.range(first, ownTile, 0);
    Value own = getValues(b, args[0], position, first, ownTile, /*axis=*/0);
    Value rank = b.forLoop(
        0, numBlocks, blockTile, {b.splat(b.constant(0), ownTile, 1)},
        [&](Expr other, ArrayRef<Value> carried) -> SmallVector<Value> {
          Value values =
              getValues(b, args[0], position, other, blockTile, /*axis=*/1);
          Value isBefore = b.map(
              {own, number, values, b.range(other, blockTile, 1)}, b.i32(),
              [&](ArrayRef<Expr> x) {
                return convert((x[2] > x[0]) | ((x[2] == x[0]) & (x[3] < x[1])),
                               b.i32());
              });
          return {add(b, carried[0], b.reduceAdd(isBefore, /*axis=*/1))};
        })[0];
    Value place = b.map({rank, own}, b.i32(), [&](ArrayRef<Expr> x) {
      Expr isSelected = (x[0] < static_cast<double>(count)) & (x[1] >= 0);
      return select(isSelected, x[0], -1);
    });
    b.store(number, args.back(), {batch, keyHead, 0, place});
  });
}

Value nsa::launchDecodeSelect(KernelCache &cache, OpBuilder &builder,
                              DecodeSelectOp op, Value lseParts,
                              ValueRange unused) {
  DecodeSelect select(op, lseParts, cache.getSchedule());
  const AttentionShape &shape = select.shape;
  int64_t tiles = llvm::divideCeil(select.rows, DecodeSelect::rowTile);
  auto type = RankedTensorType::get(
      {int64_t(shape.batch), shape.keyHeads, select.rows}, cache.getF32Type());
  std::string key;
  llvm::raw_string_ostream os(key);
  os << "lse" << select.lseParts << ' ';
  llvm::interleaveComma(unused.getTypes(), os);
  KernelSpec spec = {"probabilities",
                     select.name(),
                     {tiles, shape.keyHeads, shape.batch},
                     shape.flops(shape.keyWidth, select.rows),
                     key};
  SmallVector<Value> inputs = {op.getQuery(), op.getKey(), lseParts,
                               op.getPositions()};
  llvm::append_range(inputs, unused);
  Value sums = cache.launch(builder, op, spec, inputs, type,
                            [&](TileBuilder &b, ArrayRef<Value> args) {
                              select.buildProbabilities(b, args);
                            })[0];
  spec = {"best",
          select.name() + "_s" + std::to_string(select.selectBlock) + "n" +
              std::to_string(select.count),
          {static_cast<int64_t>(
               llvm::divideCeil(select.blocks, DecodeSelect::ownTile)),
           shape.keyHeads, shape.batch},
          /*flops=*/0,
          key};
  inputs = {sums, op.getPositions()};
  llvm::append_range(inputs, unused);
  return cache.launch(builder, op, spec, inputs, op.getIndices().getType(),
                      [&](TileBuilder &b, ArrayRef<Value> args) {
                        select.buildBest(b, args);
                      })[0];
}
