//===- DecodeAttention.cpp - attention of one query to caches -------------===//
//
// A program takes the query of one sequence, with all heads of a group, and
// goes through the keys that it sees in the tiles and in the order in which
// attention of a whole sequence does.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Conversion/NSAToTile/DenseAttentionKernels.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"
#include "passes/Conversion/NSAToTile/SelectedAttentionKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// The longest sequence: how long this one will become, nobody knows.
static constexpr int64_t kLongest = 1 << 30;

/// The shape of attention of a whole sequence.
static AttentionShape getSequenceShape(DecodeAttentionOp op) {
  AttentionShape shape(op.getQuery(), op.getKey(), op.getValue(),
                       op.getScaleOrDefault());
  shape.sequence = kLongest;
  return shape;
}

namespace {
struct DecodeAttention {
  DecodeAttention(DecodeAttentionOp op, const KernelSchedule &schedule)
      : shape(getSequenceShape(op)), visibility(op.getVisibility(), kLongest),
        rows(getDim(op.getKey(), 1)),
        count(op.getIndices() ? getDim(op.getIndices(), 3) : 0),
        selectBlock(op.getVisibility().getIndexBlock()),
        keyTile(getKeyTile(op, schedule)),
        numRows(static_cast<int64_t>(
            llvm::alignTo(shape.group(), schedule.rowMultiple))),
        isRing(!op.getIndices() && rows % keyTile == 0) {}

  /// As large as those of a sequence with so many keys.
  int64_t getKeyTile(DecodeAttentionOp op, const KernelSchedule &schedule) {
    if (selectBlock != 0)
      return SelectedAttention::getKeyTile(shape, selectBlock, schedule);
    DenseAttention dense(shape, op.getVisibility(), schedule);
    return dense.getKeyTile(schedule, schedule.fixed.forwardKeys);
  }

  std::string name() const {
    std::string name =
        "b" + formatExtent(shape.batch) + "r" + std::to_string(rows) + "h" +
        std::to_string(shape.queryHeads) + "x" +
        std::to_string(shape.keyHeads) + "d" + std::to_string(shape.keyWidth) +
        "x" + std::to_string(shape.valueWidth) + "_";
    return name + (selectBlock != 0 ? "s" + std::to_string(selectBlock) + "n" +
                                          std::to_string(count)
                                    : visibility->getShapeName());
  }
  /// Program: (1, key head, batch). `args` are q, k, v, positions, indices if
  /// there are any, o and lse.
  void build(TileBuilder &b, ArrayRef<Value> args) const;

  AttentionShape shape;
  Visibility visibility;
  /// Of the caches.
  int64_t rows;
  /// Of indices.
  int64_t count, selectBlock;
  int64_t keyTile;
  /// Of a program: the heads of the group, and what is missing to whole tiles.
  int64_t numRows;
  /// Whether keys begin anew at the first row: then tiles lie inside.
  bool isRing;

private:
  RowProgram makeProgram(TileBuilder &b) const;
  /// The tile of the keys from `first` on.
  KeyTile loadTile(const RowProgram &program, Expr position, Value k, Value v,
                   Expr first) const;
  SmallVector<Value> forEachKeyTile(const RowProgram &program, Expr position,
                                    ArrayRef<Value> args, ArrayRef<Value> inits,
                                    KeyTileBody body) const;
};
} // namespace

/// One row for each head of the group, all of row 0 of the queries. Rows beyond
/// them repeat the last one, and are not stored.
RowProgram DecodeAttention::makeProgram(TileBuilder &b) const {
  auto group = static_cast<double>(shape.group());
  RowProgram program{b, {}, Value(), Value()};
  program.range.batch = b.programId(2);
  program.range.keyHead = b.programId(1);
  program.range.first = b.constant(0);
  program.range.count = 1;
  program.range.query = b.splat(b.constant(0), numRows, 1);
  Expr firstHead = program.range.keyHead * group;
  if (numRows == shape.group()) {
    program.stored = program.range.query;
    program.head = b.range(firstHead, numRows, 0);
    return program;
  }
  auto places = b.map({b.range(0, numRows, 0)}, {b.i32(), b.i32()},
                      [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                        return {firstHead + min(x[0], group - 1),
                                select(x[0] < group, x[0].constant(0), -1)};
                      });
  program.head = places[0];
  program.stored = places[1];
  return program;
}

KeyTile DecodeAttention::loadTile(const RowProgram &program, Expr position,
                                  Value k, Value v, Expr first) const {
  TileBuilder &b = program.b;
  Expr place = isRing ? first % static_cast<double>(rows) : first;
  Value row = b.range(place, keyTile, 0);
  auto load = [&](Value from, int64_t width) {
    return b.load(from, {program.range.batch, row, program.range.keyHead,
                         b.range(0, width, 1)});
  };
  KeyTile tile;
  tile.keys = load(k, shape.keyWidth);
  tile.values = load(v, shape.valueWidth);
  tile.row = b.splat(position, program.numRows(), 1);
  tile.key = b.range(first, keyTile, 1);
  tile.isVisible = [&](Expr query, Expr key) {
    return selectBlock != 0 ? key <= query : visibility.isVisible(query, key);
  };
  return tile;
}

SmallVector<Value> DecodeAttention::forEachKeyTile(const RowProgram &program,
                                                   Expr position,
                                                   ArrayRef<Value> args,
                                                   ArrayRef<Value> inits,
                                                   KeyTileBody body) const {
  TileBuilder &b = program.b;
  Value k = args[1], v = args[2];
  auto step = [&](Expr first, ArrayRef<Value> carried) {
    return body(loadTile(program, position, k, v, first), carried);
  };
  if (selectBlock == 0) {
    auto size = static_cast<double>(keyTile);
    Expr first = visibility.firstKey(position) / size * size;
    return b.forLoop(first, visibility.endKey(position), keyTile, inits, step);
  }
  auto perBlock = static_cast<double>(selectBlock / keyTile);
  Expr own = position / static_cast<double>(selectBlock);
  Expr chosen = select(position >= 0, min(own + 1, double(count)), 0);
  return b.forLoop(
      0, chosen * perBlock, 1, inits, [&](Expr i, ArrayRef<Value> carried) {
        Expr block =
            b.loadScalar(args[4], {program.range.batch, program.range.keyHead,
                                   0, i / perBlock});
        Expr inBlock = i % perBlock * static_cast<double>(keyTile);
        return step(block * static_cast<double>(selectBlock) + inBlock,
                    carried);
      });
}

void DecodeAttention::build(TileBuilder &b, ArrayRef<Value> args) const {
  RowProgram program = makeProgram(b);
  Expr position = b.loadScalar(args[3], {program.range.batch});
  storeAttention(b, program, shape, args[0], args.drop_back().back(),
                 args.back(), [&](ArrayRef<Value> inits, KeyTileBody body) {
                   return forEachKeyTile(program, position, args, inits, body);
                 });
}

namespace {
struct ConvertDecodeAttention : KernelPattern<DecodeAttentionOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(DecodeAttentionOp op,
                                PatternRewriter &rewriter) const override {
    DecodeAttention attention(op, getSchedule());
    const AttentionShape &shape = attention.shape;
    KernelSpec spec = {"", attention.name(), {1, shape.keyHeads, shape.batch}};
    int64_t keys = op.getVisibility().getMaxKeys(attention.rows);
    if (op.getIndices())
      keys = std::min(attention.rows, attention.count * attention.selectBlock);
    spec.flops = shape.flops(shape.keyWidth + shape.valueWidth, keys);
    return replace(op, rewriter, spec,
                   [&](TileBuilder &b, ArrayRef<Value> args) {
                     attention.build(b, args);
                   });
  }
};
} // namespace

void nsa::populateDecodeAttentionPatterns(RewritePatternSet &patterns,
                                          KernelCache &cache) {
  patterns.add<ConvertDecodeAttention>(patterns.getContext(), cache);
}
