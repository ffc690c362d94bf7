//===- DecodeAttention.cpp - attention of one query to caches -------------===//

#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/DecodeKernels.h"
#include "passes/Kernels/NSA/DenseAttentionKernels.h"
#include "passes/Kernels/NSA/NSAToTile.h"
#include "passes/Kernels/NSA/SelectedAttentionKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// The longest sequence: the length of this one is not known.
static constexpr int64_t kLongest = 1 << 30;

/// The shape of attention of a whole sequence.
static AttentionShape getSequenceShape(DecodeAttentionOp op) {
  AttentionShape shape = getShapeOf(op);
  shape.sequence = kLongest;
  return shape;
}

DecodeAttention::DecodeAttention(DecodeAttentionOp op, const KernelCut &cut)
    : op(op), shape(getSequenceShape(op)),
      visibility(op.getVisibility(), kLongest),
      rows(getCacheRows(op.getKey(), op.getPages())),
      count(op.getIndices() ? getDim(op.getIndices(), 3) : 0),
      selectBlock(op.getVisibility().getIndexBlock()), keyTile(getKeyTile(cut)),
      numRows(static_cast<int64_t>(
          llvm::alignTo(shape.group(), cut.getRowMultiple()))),
      isRing(!op.getIndices() && rows % keyTile == 0),
      isInOrder(!cut.isParallel() && !visibility->attendsToTokens()),
      parts(getParts(cut)) {
  shape.fitTo(cut);
}

int64_t DecodeAttention::getKeyTile(const KernelCut &cut) const {
  if (selectBlock != 0)
    return SelectedAttention::getKeyTile(shape, selectBlock, cut);
  DenseAttention dense(shape, op.getVisibility(), cut);
  return cut.isParallel() ? dense.getKeyTile(cut, /*fixed=*/0)
                          : dense.forwardKeyTile;
}

/// As many as there are tiles, if all run at once.
int64_t DecodeAttention::getParts(const KernelCut &cut) const {
  if (!cut.isParallel())
    return 1;
  int64_t keys = selectBlock != 0
                     ? std::min(rows, count * selectBlock)
                     : std::min(rows, visibility->getMaxKeys(kLongest));
  int64_t tiles = llvm::divideCeil(keys, keyTile);
  int64_t most = llvm::divideCeil(2 * cut.getProcessors(),
                                  shape.keyHeads * int64_t(shape.batch));
  return std::clamp<int64_t>(tiles, 1, most);
}

std::string DecodeAttention::name() const {
  std::string name =
      "b" + formatExtent(shape.batch) + "r" + std::to_string(rows) + "h" +
      std::to_string(shape.queryHeads) + "x" + std::to_string(shape.keyHeads) +
      "d" + std::to_string(shape.keyWidth) + "x" +
      std::to_string(shape.valueWidth) + "_";
  return name + (selectBlock != 0 ? "s" + std::to_string(selectBlock) + "n" +
                                        std::to_string(count)
                                  : visibility->getShapeName());
}

int64_t DecodeAttention::flops() const {
  int64_t keys = selectBlock != 0 ? std::min(rows, count * selectBlock)
                                  : op.getVisibility().getMaxKeys(rows);
  return shape.flops(shape.keyWidth + shape.valueWidth, keys);
}

//===----------------------------------------------------------------------===//
// Kernel
//===----------------------------------------------------------------------===//

RowProgram nsa::makeHeadProgram(TileBuilder &b, const AttentionShape &shape,
                                int64_t numRows, Expr stored) {
  auto group = static_cast<double>(shape.group());
  RowProgram program{b, {}, Value(), Value()};
  program.range.batch = b.programId(2);
  program.range.keyHead = b.programId(1);
  program.range.first = b.constant(0);
  program.range.count = 1;
  program.range.query = b.splat(b.constant(0), numRows, 1);
  Expr firstHead = program.range.keyHead * group;
  if (numRows == shape.group()) {
    program.stored = b.splat(stored, numRows, 1);
    program.head = b.range(firstHead, numRows, 0);
    return program;
  }
  auto places =
      b.map({b.range(0, numRows, 0)}, {b.i32(), b.i32()},
            [&](ArrayRef<Expr> x) -> SmallVector<Value> {
              return {firstHead + min(x[0], group - 1),
                      select(x[0] < group, stored, stored.constant(-1))};
            });
  program.head = places[0];
  program.stored = places[1];
  return program;
}

/// Where the keys from `first` on are. Tiles in a page take one number, those
/// across pages one for each row.
CacheMemory::Place DecodeAttention::placeTile(const RowProgram &program,
                                              const CacheMemory &keys,
                                              Expr first) const {
  TileBuilder &b = program.b;
  Expr batch = program.range.batch;
  if (keys.pages && keys.pageRows() % keyTile == 0)
    return keys.from(b, batch, first, keyTile);
  if (isRing && !keys.pages)
    first = first % static_cast<double>(rows);
  return keys.at(b, batch, b.range(first, keyTile, 0));
}

KeyTile DecodeAttention::loadTile(const RowProgram &program, Expr position,
                                  DecodeAttentionOp::Adaptor in,
                                  Expr first) const {
  TileBuilder &b = program.b;
  auto [sequence, row] =
      placeTile(program, {in.getKey(), in.getPages()}, first);
  KeyTile tile;
  tile.keys = b.load(in.getKey(), {sequence, row, program.range.keyHead,
                                   shape.columns(b, shape.keyWidth)});
  tile.values = b.load(in.getValue(), {sequence, row, program.range.keyHead,
                                       shape.columns(b, shape.valueWidth)});
  if (isInOrder)
    tile.keyColumns = b.transpose(tile.keys);
  tile.row = b.splat(position, program.numRows(), 1);
  tile.key = b.range(first, keyTile, 1);
  tile.isVisible = [&](Expr query, Expr key) {
    return selectBlock != 0 ? key <= query : visibility.isVisible(query, key);
  };
  return tile;
}

/// Of a number that is not negative.
static Expr divideUp(Expr number, double by) {
  return (number + (by - 1)) / by;
}

SmallVector<Value>
DecodeAttention::forEachKeyTile(const RowProgram &program, Expr position,
                                DecodeAttentionOp::Adaptor in,
                                ArrayRef<Value> inits, KeyTileBody body) const {
  TileBuilder &b = program.b;
  auto size = static_cast<double>(keyTile);
  auto step = [&](Expr first, ArrayRef<Value> carried) {
    return body(loadTile(program, position, in, first), carried);
  };
  // Of `count` tiles, those of this program.
  auto getOwn = [&](Expr count) {
    if (parts == 1)
      return std::pair(b.constant(0), count);
    Expr each = divideUp(count, static_cast<double>(parts));
    Expr first = b.programId(0) * each;
    return std::pair(first, min(first + each, count));
  };
  if (selectBlock == 0) {
    Expr first = visibility.firstKey(position) / size * size;
    Expr end = visibility.endKey(position);
    if (parts == 1)
      return b.forLoop(first, end, keyTile, inits, step);
    auto [begin, last] = getOwn(divideUp(max(end - first, 0), size));
    return b.forLoop(first + begin * size, first + last * size, keyTile, inits,
                     step);
  }
  auto perBlock = static_cast<double>(selectBlock / keyTile);
  Expr own = position / static_cast<double>(selectBlock);
  Expr chosen = select(position >= 0, min(own + 1, double(count)), 0);
  auto [begin, end] = getOwn(chosen * perBlock);
  return b.forLoop(begin, end, 1, inits, [&](Expr i, ArrayRef<Value> carried) {
    Expr block =
        b.loadScalar(in.getIndices(), {program.range.batch,
                                       program.range.keyHead, 0, i / perBlock});
    Expr inBlock = i % perBlock * size;
    return step(block * static_cast<double>(selectBlock) + inBlock, carried);
  });
}

void DecodeAttention::build(TileBuilder &b, DecodeAttentionOp::Adaptor in,
                            ArrayRef<Value> out) const {
  auto [output, lse] = named<2>(out);
  RowProgram program = makeHeadProgram(
      b, shape, numRows, parts == 1 ? b.constant(0) : b.programId(0));
  Expr position = b.loadScalar(in.getPositions(), {program.range.batch});
  OnlineSoftmax softmax = attendToKeys(
      b, shape,
      program.loadRows(in.getQuery(), shape.columns(b, shape.keyWidth)),
      [&](ArrayRef<Value> inits, KeyTileBody body) {
        return forEachKeyTile(program, position, in, inits, body);
      });
  program.storeRows(softmax.output(b), output,
                    shape.columns(b, shape.valueWidth));
  program.storeStatistic(softmax.lse(b, shape.exponent()), lse);
}

LaunchPart DecodeAttention::getPart(KernelCache &cache) const {
  KernelSpec spec = {"part",
                     name() + "_p" + std::to_string(parts),
                     {parts, shape.keyHeads, shape.batch},
                     flops()};
  int64_t batch = getDim(op.getQuery(), 0);
  SmallVector<Type> types = {
      RankedTensorType::get({batch, parts, shape.queryHeads, shape.valueWidth},
                            cache.getF32Type()),
      RankedTensorType::get({batch, shape.queryHeads, parts},
                            cache.getF32Type())};
  SmallVector<Value> inputs(op->getOperands());
  return {spec, inputs, types,
          [attention = *this](TileBuilder &b, ArrayRef<Value> args) {
            auto &op = attention.op;
            // What is prefetched comes after the operands.
            attention.build(b, {args.take_front(op->getNumOperands()), op},
                            args.take_back(2));
          }};
}

Value nsa::mergeLse(TileBuilder &b, Value lses, int axis) {
  Value most = b.reduceMax(lses, axis);
  Value shift = b.map({most}, b.f32(), [](ArrayRef<Expr> x) {
    return select(x[0] == -INFINITY, 0, x[0]);
  });
  Value sum =
      b.reduceAdd(b.map({lses, shift}, b.f32(),
                        [](ArrayRef<Expr> x) { return exp(x[0] - x[1]); }),
                  axis);
  return b.map({shift, sum}, b.f32(), [](ArrayRef<Expr> x) {
    return select(x[1] > 0, x[0] + log(x[1]), -INFINITY);
  });
}

static LogicalResult convertDecodeAttention(DecodeAttentionOp op,
                                            KernelCache &cache,
                                            PatternRewriter &rewriter) {
  DecodeAttention attention(op, cache.getMachine());
  const AttentionShape &shape = attention.shape;
  KernelSpec spec = {"",
                     attention.name(),
                     {attention.parts, shape.keyHeads, shape.batch},
                     attention.flops()};
  return replaceByKernel(cache, rewriter, op, spec,
                         [&](auto &b, auto in, ArrayRef<Value> out) {
                           attention.build(b, in, out);
                         });
}

void nsa::populateDecodeAttentionPatterns(KernelPatterns &patterns) {
  patterns.add(convertDecodeAttention);
}
