//===- Statistics.cpp - what gates and selections do ----------------------===//
//
// A few numbers of a tensor that is read once: one program each.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Conversion/NSAToTile/AttentionKernels.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

static Value total(TileBuilder &b, Value tile) {
  return b.reduceAdd(b.reduceAdd(tile), /*axis=*/0);
}

/// Writes lhs / max(rhs, 1) as element `index` of `y`.
static void storeRatio(TileBuilder &b, Value lhs, Value rhs, Value y,
                       int64_t index) {
  Value ratio = b.map({lhs, rhs}, b.f32(),
                      [](ArrayRef<Expr> x) { return x[0] / max(x[1], 1); });
  b.store(ratio, y, {b.range(index, 1, 0)});
}

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

/// The entropy of the gates of a token after division by their sum.
static Expr entropy(ArrayRef<Expr> gates) {
  Expr sum = gates[0] + gates[1] + gates[2];
  Expr result = sum.constant(0);
  for (Expr gate : gates) {
    Expr p = gate / sum;
    // 0 * log(0) is 0 here.
    result = result - p * log(max(p, 1e-30));
  }
  return select(sum > 0, result, 0);
}

static void buildGateStatistics(TileBuilder &b, int64_t rows,
                                ArrayRef<Value> args) {
  Value gates = b.view(args[0], {rows, 3}), y = args[1];
  const int64_t tile = 256;
  SmallVector<Value> sums =
      b.forLoop(0, rows, tile, SmallVector<Value>(4, b.zeros(1, tile)),
                [&](Expr first, ArrayRef<Value> carried) -> SmallVector<Value> {
                  Value row = b.range(first, tile, 1);
                  SmallVector<Value> inputs;
                  for (int branch = 0; branch < 3; ++branch)
                    inputs.push_back(b.load(gates, {row, branch}));
                  inputs.append(carried.begin(), carried.end());
                  return b.map(inputs, SmallVector<Type>(4, b.f32()),
                               [](ArrayRef<Expr> x) -> SmallVector<Value> {
                                 return {x[3] + x[0], x[4] + x[1], x[5] + x[2],
                                         x[6] + entropy(x.take_front(3))};
                               });
                });
  Value count = b.full(static_cast<double>(rows), 1, 1);
  for (auto [index, sum] : llvm::enumerate(sums))
    storeRatio(b, total(b, sum), count, y, index);
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

namespace {
/// Indices [B, Hkv, S, n], seen in blocks of queries as long as the blocks that
/// are selected.
struct SelectionKernel {
  explicit SelectionKernel(SelectionStatisticsOp op)
      : batch(getDim(op.getIndices(), 0)), heads(getDim(op.getIndices(), 1)),
        sequence(getDim(op.getIndices(), 2)), count(getDim(op.getIndices(), 3)),
        selectBlock(std::min<int64_t>(op.getSelectBlock(), sequence)),
        queryBlocks(llvm::divideCeil(sequence, selectBlock)),
        rows(std::clamp<int64_t>(4096 / count, 1,
                                 std::min<int64_t>(selectBlock, 64))) {}

  void build(TileBuilder &b, ArrayRef<Value> args) const;

  int64_t batch, heads, sequence, count, selectBlock, queryBlocks, rows;

private:
  /// Queries `first .. end - 1` of one head, `rows` at a time.
  struct Queries {
    Value indices;
    Expr batchRow, head, first, end;
  };
  SmallVector<Value> forEachTile(
      TileBuilder &b, const Queries &queries, ArrayRef<Value> inits,
      function_ref<SmallVector<Value>(Value, ArrayRef<Value>)> body) const;
  SmallVector<Value> addBlock(TileBuilder &b, const Queries &queries,
                              Expr queryBlock, ArrayRef<Value> sums) const;
};
} // namespace

/// Runs `body` on the indices of each tile of queries; -1 behind the last.
SmallVector<Value> SelectionKernel::forEachTile(
    TileBuilder &b, const Queries &queries, ArrayRef<Value> inits,
    function_ref<SmallVector<Value>(Value, ArrayRef<Value>)> body) const {
  return b.forLoop(
      queries.first, queries.end, rows, inits,
      [&](Expr first, ArrayRef<Value> carried) {
        Value t = b.range(first, rows, 0);
        Value loaded = b.load(queries.indices, {queries.batchRow, queries.head,
                                                t, b.range(0, count, 1)});
        Value chosen = b.map({loaded, t}, b.i32(), [&](ArrayRef<Expr> x) {
          return select(x[1] < queries.end, x[0], -1);
        });
        return body(chosen, carried);
      });
}

/// `sums` (selected blocks, their distances, different blocks) with those of
/// one block of queries.
SmallVector<Value> SelectionKernel::addBlock(TileBuilder &b,
                                             const Queries &queries,
                                             Expr queryBlock,
                                             ArrayRef<Value> sums) const {
  SmallVector<Value> next = forEachTile(
      b, queries, sums.take_front(2),
      [&](Value chosen, ArrayRef<Value> carried) -> SmallVector<Value> {
        SmallVector<Value> parts = b.map(
            {chosen}, {b.f32(), b.f32()},
            [&](ArrayRef<Expr> x) -> SmallVector<Value> {
              Expr isBlock = x[0] >= 0;
              return {convert(isBlock, b.f32()),
                      convert(select(isBlock, queryBlock - x[0], 0), b.f32())};
            });
        return {add(b, carried[0], total(b, parts[0])),
                add(b, carried[1], total(b, parts[1]))};
      });
  auto countBlock = [&](Expr j, ArrayRef<Value> carried) -> SmallVector<Value> {
    auto find = [&](Value chosen, ArrayRef<Value> found) -> SmallVector<Value> {
      Value equal = b.map({chosen}, b.f32(), [&](ArrayRef<Expr> x) {
        return convert(x[0] == j, b.f32());
      });
      Value any = b.reduceMax(b.reduceMax(equal), /*axis=*/0);
      return {b.map({found[0], any}, b.f32(),
                    [](ArrayRef<Expr> x) { return max(x[0], x[1]); })};
    };
    Value found = forEachTile(b, queries, b.zeros(1, 1), find)[0];
    return {add(b, carried[0], found)};
  };
  next.push_back(b.forLoop(0, queryBlock + 1, 1, sums[2], countBlock)[0]);
  return next;
}

void SelectionKernel::build(TileBuilder &b, ArrayRef<Value> args) const {
  auto addHead = [&](Expr batchRow, Expr head, ArrayRef<Value> sums) {
    return b.forLoop(0, queryBlocks, 1, sums,
                     [&](Expr queryBlock, ArrayRef<Value> carried) {
                       Expr first = queryBlock * selectBlock;
                       Expr end = min(first + selectBlock, sequence);
                       return addBlock(b, {args[0], batchRow, head, first, end},
                                       queryBlock, carried);
                     });
  };
  SmallVector<Value> sums =
      b.forLoop(0, batch, 1, SmallVector<Value>(3, b.zeros(1, 1)),
                [&](Expr batchRow, ArrayRef<Value> carried) {
                  return b.forLoop(0, heads, 1, carried,
                                   [&](Expr head, ArrayRef<Value> carried) {
                                     return addHead(batchRow, head, carried);
                                   });
                });
  auto number = [&](int64_t value) {
    return b.full(static_cast<double>(value), 1, 1);
  };
  storeRatio(b, sums[0], number(batch * heads * sequence), args[1], 0);
  storeRatio(b, sums[1], sums[0], args[1], 1);
  storeRatio(b, sums[2], number(batch * heads * queryBlocks), args[1], 2);
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

namespace {
struct ConvertGateStatistics : KernelPattern<GateStatisticsOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(GateStatisticsOp op,
                                PatternRewriter &rewriter) const override {
    int64_t rows = ShapedType::getNumElements(getShape(op.getGates())) / 3;
    KernelSpec spec = {"", "n" + std::to_string(rows), {1, 1, 1}, 0};
    rewriter.replaceOp(op, cache.launch(rewriter, op, spec, op->getOperands(),
                                        op->getResultTypes(),
                                        [&](auto &b, ArrayRef<Value> args) {
                                          buildGateStatistics(b, rows, args);
                                        }));
    return success();
  }
};

struct ConvertSelectionStatistics : KernelPattern<SelectionStatisticsOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(SelectionStatisticsOp op,
                                PatternRewriter &rewriter) const override {
    SelectionKernel kernel(op);
    std::string shape =
        ("b" + Twine(kernel.batch) + "s" + Twine(kernel.sequence) + "h" +
         Twine(kernel.heads) + "n" + Twine(kernel.count))
            .str();
    rewriter.replaceOp(op, cache.launch(rewriter, op, {"", shape, {1, 1, 1}, 0},
                                        op->getOperands(), op->getResultTypes(),
                                        [&](auto &b, ArrayRef<Value> args) {
                                          kernel.build(b, args);
                                        }));
    return success();
  }
};
} // namespace

void nsa::populateStatisticsPatterns(RewritePatternSet &patterns,
                                     KernelCache &cache) {
  patterns.add<ConvertGateStatistics, ConvertSelectionStatistics>(
      patterns.getContext(), cache);
}
