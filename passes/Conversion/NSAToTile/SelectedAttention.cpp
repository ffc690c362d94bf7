//===- SelectedAttention.cpp - attention within the selected blocks -------===//
//
// A program takes several neighbouring queries of a group and goes through the
// union of their blocks in ascending order: neighbours share most of them. Rows
// that did not select a block are masked.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"
#include "passes/Conversion/NSAToTile/SelectedAttentionKernels.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

int64_t SelectedAttention::getKeyTile(int64_t selectBlock) {
  int64_t tile = std::min<int64_t>(selectBlock, 64);
  while (selectBlock % tile != 0)
    --tile;
  return tile;
}

std::string SelectedAttention::name() const {
  return shape.name() + "_s" + std::to_string(selectBlock) + "n" +
         std::to_string(count);
}

int64_t SelectedAttention::flops(int64_t width) const {
  int64_t pairs = 0;
  for (int64_t t = 0; t < shape.sequence; ++t)
    pairs += std::min(t + 1, count * selectBlock);
  return 2 * width * shape.batch * shape.queryHeads * pairs;
}

namespace {
/// The kernels that have a program per tile of queries: forward and dq.
struct QueryKernel : SelectedAttention {
  template <typename OpT>
  explicit QueryKernel(OpT op)
      : SelectedAttention(op), queries(getNumQueries(shape.group())) {}

  /// More queries have more blocks in common, and more that only one of them
  /// selected: 8 of them, more if that gives few rows, less if it gives many.
  static int64_t getNumQueries(int64_t group) {
    int64_t enough = std::max<int64_t>(16 / group, 8);
    return std::min(enough, std::max<int64_t>(96 / group, 1));
  }

  int64_t rows() const { return queries * shape.group(); }
  std::array<int64_t, 3> grid() const {
    return {static_cast<int64_t>(llvm::divideCeil(shape.sequence, queries)),
            shape.keyHeads, shape.batch};
  }

  void buildForward(TileBuilder &b, ArrayRef<Value> args) const;
  void buildQueryGrad(TileBuilder &b, ArrayRef<Value> args) const;

  int64_t queries;
};

/// The keys and values of a tile, and what the rows see of it: row r sees key u
/// iff u <= lastKey[r].
struct KeyTile {
  Value keys, values;
  /// i32 [1, keys] and i32 [rows, 1].
  Value key, lastKey;
};

/// Where a program of a QueryKernel is, and what it does with a key tile.
class QueryProgram {
public:
  using KeyTileBody = llvm::function_ref<SmallVector<Value>(
      const KeyTile &tile, ArrayRef<Value> carried)>;

  QueryProgram(const QueryKernel &kernel, TileBuilder &b, Value indices);

  Value loadRows(Value ref, int64_t width) {
    return b.load(ref, {batch, query, head, b.range(0, width, 1)});
  }
  void storeRows(Value value, Value ref, int64_t width) {
    b.store(value, ref, {batch, query, head, b.range(0, width, 1)});
  }
  /// For what is stored as [B, Hq, S].
  Value loadStatistic(Value ref) { return b.load(ref, {batch, head, query}); }
  void storeStatistic(Value value, Value ref) {
    b.store(value, ref, {batch, head, query});
  }

  /// Runs `body` for each key tile of each block that some query selected, in
  /// ascending order.
  SmallVector<Value> forEachKeyTile(Value k, Value v, ArrayRef<Value> inits,
                                    KeyTileBody body);

private:
  Expr isSelectedByAny(Expr block);

  const QueryKernel &kernel;
  TileBuilder &b;
  Value indices;
  Expr firstQuery, keyHead, batch;
  /// Coordinates of the rows, and the blocks that they selected.
  Value query, head, blocks;
};
} // namespace

QueryProgram::QueryProgram(const QueryKernel &kernel, TileBuilder &b,
                           Value indices)
    : kernel(kernel), b(b), indices(indices),
      firstQuery(b.programId(0) * kernel.queries), keyHead(b.programId(1)),
      batch(b.programId(2)) {
  int64_t group = kernel.shape.group();
  Expr firstHead = keyHead * group;
  auto coordinates =
      b.map({b.range(0, kernel.rows(), 0)}, {b.i32(), b.i32()},
            [&](ArrayRef<Expr> x) -> SmallVector<Value> {
              return {firstQuery + x[0] / group, firstHead + x[0] % group};
            });
  query = coordinates[0];
  head = coordinates[1];
  blocks =
      b.load(indices, {batch, keyHead, query, b.range(0, kernel.count, 1)});
}

/// Whether the list of a query of the program has `block`; -1 never matches.
Expr QueryProgram::isSelectedByAny(Expr block) {
  ImplicitLocOpBuilder &builder = b.getBuilder();
  auto any = b.forLoop(
      firstQuery, firstQuery + kernel.queries, 1,
      {arith::ConstantOp::create(builder, builder.getBoolAttr(false))},
      [&](Expr t, ArrayRef<Value> any) {
        return b.forLoop(
            0, kernel.count, 1, any,
            [&](Expr slot, ArrayRef<Value> any) -> SmallVector<Value> {
              Expr index = b.loadScalar(indices, {batch, keyHead, t, slot});
              return {b.expr(any[0]) | (index == block)};
            });
      });
  return b.expr(any[0]);
}

SmallVector<Value> QueryProgram::forEachKeyTile(Value k, Value v,
                                                ArrayRef<Value> inits,
                                                KeyTileBody body) {
  const AttentionShape &shape = kernel.shape;
  auto visit = [&](Expr block, Expr u0, ArrayRef<Value> carried) {
    Value u = b.range(u0, kernel.keyTile, 0);
    Value selected =
        b.reduceMax(b.map({blocks}, b.i32(), [&](ArrayRef<Expr> x) {
          return convert(x[0] == block, b.i32());
        }));
    KeyTile tile;
    tile.keys = b.load(k, {batch, u, keyHead, b.range(0, shape.keyWidth, 1)});
    tile.values =
        b.load(v, {batch, u, keyHead, b.range(0, shape.valueWidth, 1)});
    tile.key = b.range(u0, kernel.keyTile, 1);
    tile.lastKey = b.map({selected, query}, b.i32(), [](ArrayRef<Expr> x) {
      return select(x[0] != 0, x[1], -1);
    });
    return body(tile, carried);
  };
  Expr endKey = min(firstQuery + kernel.queries, shape.sequence);
  return b.forLoop(
      0, endKey, kernel.keyTile, inits, [&](Expr u0, ArrayRef<Value> carried) {
        Expr block = u0 / kernel.selectBlock;
        return b.ifThenElse(
            isSelectedByAny(block), [&] { return visit(block, u0, carried); },
            [&] { return llvm::to_vector(carried); });
      });
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Program: (tile of queries, key head, batch).
void QueryKernel::buildForward(TileBuilder &b, ArrayRef<Value> args) const {
  Value q = args[0], k = args[1], v = args[2], indices = args[3];
  Value o = args[4], lse = args[5];
  QueryProgram program(*this, b, indices);
  Value queries = program.loadRows(q, shape.keyWidth);
  auto init = OnlineSoftmax::init(b, rows(), shape.valueWidth);
  auto results = program.forEachKeyTile(
      k, v, init.carried(), [&](const KeyTile &tile, ArrayRef<Value> carried) {
        Value products = b.dot(queries, tile.keys, b.zeros(rows(), keyTile),
                               /*transposeB=*/true);
        Value scores = b.map(
            {products, tile.key, tile.lastKey}, b.f32(), [&](ArrayRef<Expr> x) {
              return select(x[1] <= x[2], x[0] * shape.scale, -INFINITY);
            });
        return OnlineSoftmax::fromCarried(carried)
            .update(b, scores, tile.values)
            .carried();
      });
  auto softmax = OnlineSoftmax::fromCarried(results);
  program.storeRows(softmax.output(b), o, shape.valueWidth);
  program.storeStatistic(softmax.lse(b), lse);
}

/// Program: (tile of queries, key head, batch). Also writes do . o of every
/// row, which the gradients of keys and values need.
void QueryKernel::buildQueryGrad(TileBuilder &b, ArrayRef<Value> args) const {
  Value dO = args[0], q = args[1], k = args[2], v = args[3], o = args[4];
  Value lse = args[5], indices = args[6], dQ = args[7], delta = args[8];
  QueryProgram program(*this, b, indices);
  Value queries = program.loadRows(q, shape.keyWidth);
  Value outputGrads = program.loadRows(dO, shape.valueWidth);
  Value shift = finiteOrZero(b, program.loadStatistic(lse));
  Value rowDelta =
      rowDot(b, outputGrads, program.loadRows(o, shape.valueWidth));
  program.storeStatistic(rowDelta, delta);

  auto sum = program.forEachKeyTile(
      k, v, {b.zeros(rows(), shape.keyWidth)},
      [&](const KeyTile &tile, ArrayRef<Value> carried) -> SmallVector<Value> {
        Value zeros = b.zeros(rows(), keyTile);
        Value products = b.dot(queries, tile.keys, zeros, /*transposeB=*/true);
        Value dP = b.dot(outputGrads, tile.values, zeros, /*transposeB=*/true);
        Value dS =
            b.map({products, dP, shift, rowDelta, tile.key, tile.lastKey},
                  b.f32(), [&](ArrayRef<Expr> x) {
                    Expr visible = x[4] <= x[5];
                    Expr p =
                        maskedProbability(visible, x[0], shape.scale, x[2]);
                    return p * (x[1] - x[3]);
                  });
        return {b.dot(dS, tile.keys, carried[0])};
      });
  program.storeRows(scaled(b, sum[0], shape.scale), dQ, shape.keyWidth);
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

ResultRange nsa::launchSelectedQueryGrad(KernelCache &cache,
                                         PatternRewriter &rewriter,
                                         SelectedAttentionBackwardOp op) {
  QueryKernel kernel(op);
  KernelSpec spec = {
      "dq", kernel.name(), kernel.grid(),
      kernel.flops(2 * kernel.shape.keyWidth + kernel.shape.valueWidth)};
  return cache.launch(rewriter, op, spec, op->getOperands(),
                      {op.getQuery().getType(), op.getLse().getType()},
                      [&](TileBuilder &b, ArrayRef<Value> args) {
                        kernel.buildQueryGrad(b, args);
                      });
}

namespace {
struct ConvertSelectedAttention : KernelPattern<SelectedAttentionOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(SelectedAttentionOp op,
                                PatternRewriter &rewriter) const override {
    QueryKernel kernel(op);
    KernelSpec spec = {
        "", kernel.name(), kernel.grid(),
        kernel.flops(kernel.shape.keyWidth + kernel.shape.valueWidth)};
    rewriter.replaceOp(op,
                       cache.launch(rewriter, op, spec, op->getOperands(),
                                    op->getResultTypes(),
                                    [&](TileBuilder &b, ArrayRef<Value> args) {
                                      kernel.buildForward(b, args);
                                    }));
    return success();
  }
};
} // namespace

void nsa::populateSelectedAttentionPatterns(RewritePatternSet &patterns,
                                            KernelCache &cache) {
  patterns.add<ConvertSelectedAttention>(patterns.getContext(), cache);
}
