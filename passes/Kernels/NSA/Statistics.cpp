//===- Statistics.cpp - what gates and selections do ----------------------===//
//
// Statistics of a tensor that is read once.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/AttentionKernels.h"
#include "passes/Kernels/NSA/NSAToTile.h"
#include "passes/Kernels/NSA/SelectionLists.h"

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

/// The sum of each row of `parts` [sums, programs].
static SmallVector<Value> sumParts(TileBuilder &b, Value parts) {
  ArrayRef<int64_t> shape = cast<MemRefType>(parts.getType()).getShape();
  const int64_t tile = 256;
  SmallVector<Value> sums = b.forLoop(
      0, shape[1], tile, SmallVector<Value>(shape[0], b.zeros(1, tile)),
      [&](Expr first, ArrayRef<Value> carried) {
        SmallVector<Value> next;
        for (auto [k, sum] : llvm::enumerate(carried))
          next.push_back(add(
              b, sum, b.load(parts, {int64_t(k), b.range(first, tile, 1)})));
        return next;
      });
  for (Value &sum : sums)
    sum = total(b, sum);
  return sums;
}

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

/// The entropy of the gates of a token after division by their sum.
static Expr entropy(ArrayRef<Expr> gates) {
  Expr sum = gates[0];
  for (Expr gate : gates.drop_front())
    sum = sum + gate;
  Expr result = sum.constant(0);
  for (Expr gate : gates) {
    Expr p = gate / sum;
    // 0 * log(0) is 0 here.
    result = result - p * log(max(p, 1e-30));
  }
  return select(sum > 0, result, 0);
}

namespace {
/// Gates [rows, branches]: programs have ranges of rows, whose sums another
/// kernel adds in order.
struct GateKernel {
  using Op = GateStatisticsOp;
  explicit GateKernel(Op op)
      : branches(getDim(op.getGates(), 3)),
        rows(ShapedType::getNumElements(getShape(op.getGates())) / branches) {}

  int64_t numPrograms() const { return llvm::divideCeil(rows, rangeRows); }
  RankedTensorType getPartsType(MLIRContext *context) const {
    return RankedTensorType::get({branches + 1, numPrograms()},
                                 Float32Type::get(context));
  }
  std::string name() const { return "n" + std::to_string(rows); }
  std::array<Extent, 3> getGrid() const { return {numPrograms(), 1, 1}; }
  void buildParts(TileBuilder &b, Op::Adaptor in, Value parts) const;
  void buildMeans(TileBuilder &b, Value parts, Value y) const;

  int64_t branches, rows;

private:
  static constexpr int64_t tile = 256, rangeRows = 16 * tile;
};
} // namespace

void GateKernel::buildParts(TileBuilder &b, Op::Adaptor in, Value parts) const {
  Value gates = b.view(in.getGates(), {rows, branches});
  Expr begin = b.programId(0) * rangeRows;
  auto addTile = [&](Expr first,
                     ArrayRef<Value> carried) -> SmallVector<Value> {
    Value row = b.range(first, tile, 1);
    SmallVector<Value> inputs;
    for (int64_t branch = 0; branch < branches; ++branch)
      inputs.push_back(b.load(gates, {row, branch}));
    inputs.append(carried.begin(), carried.end());
    return b.map(inputs, SmallVector<Type>(carried.size(), b.f32()),
                 [&](ArrayRef<Expr> x) {
                   ArrayRef<Expr> own = x.take_front(branches);
                   ArrayRef<Expr> sum = x.drop_front(branches);
                   SmallVector<Value> next;
                   for (auto [s, gate] : llvm::zip(sum, own))
                     next.push_back(s + gate);
                   next.push_back(sum.back() + entropy(own));
                   return next;
                 });
  };
  // Rows past the last one are 0, which adds nothing.
  SmallVector<Value> sums =
      b.forLoop(begin, begin + rangeRows, tile,
                SmallVector<Value>(branches + 1, b.zeros(1, tile)), addTile);
  for (auto [k, sum] : llvm::enumerate(sums))
    b.store(total(b, sum), parts, {int64_t(k), b.range(b.programId(0), 1, 0)});
}

void GateKernel::buildMeans(TileBuilder &b, Value parts, Value y) const {
  Value count = b.full(static_cast<double>(rows), 1, 1);
  for (auto [index, sum] : llvm::enumerate(sumParts(b, parts)))
    storeRatio(b, sum, count, y, index);
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

namespace {
/// Indices [B, Hkv, S, n], seen in blocks of queries as long as the blocks that
/// are selected: a program each, whose sums another kernel adds in order.
struct SelectionKernel {
  using Op = SelectionStatisticsOp;
  explicit SelectionKernel(Op op)
      : isPacked(op.getStart() != nullptr), isPlaced(op.getAt() != nullptr),
        batch(getDim(op.getIndices(), 0)), heads(getDim(op.getIndices(), 1)),
        sequence(getDim(op.getIndices(), 2)), count(getDim(op.getIndices(), 3)),
        selectBlock(isPlaced
                        ? op.getSelectBlock()
                        : std::min<int64_t>(op.getSelectBlock(), sequence)),
        queryBlocks(llvm::divideCeil(sequence, selectBlock)),
        rows(std::clamp<int64_t>(4096 / count, 1,
                                 std::min<int64_t>(selectBlock, 64))) {}

  int64_t numPrograms() const { return batch * heads * queryBlocks; }
  std::array<Extent, 3> getGrid() const { return {queryBlocks, heads, batch}; }
  RankedTensorType getPartsType(MLIRContext *context) const {
    return RankedTensorType::get({numSums, batch, heads, queryBlocks},
                                 Float32Type::get(context));
  }
  std::string name() const {
    return ("b" + Twine(batch) + "s" + Twine(sequence) + "h" + Twine(heads) +
            "n" + Twine(count) + (isPacked ? "_packed" : "") +
            (isPlaced ? "_at" : ""))
        .str();
  }
  using In = Op::Adaptor;
  void buildParts(TileBuilder &b, In in, Value parts) const;
  void buildMeans(TileBuilder &b, Value parts, Value y) const;

  bool isPacked, isPlaced;
  int64_t batch, heads, sequence, count, selectBlock, queryBlocks, rows;

private:
  /// Selected blocks, their distances, different blocks.
  static constexpr int64_t numSums = 3;

  /// Where the queries of the program's row are.
  QueryPlace loadPlace(TileBuilder &b, In in) const {
    constexpr int64_t longest = 1 << 30;
    return QueryPlace::load(b, isPacked ? getExtent(in.getStart(), 0) : 1,
                            longest, in.getAt(), b.programId(2));
  }
  SmallVector<Value> forEachTile(
      TileBuilder &b, In in, ArrayRef<Value> inits,
      function_ref<SmallVector<Value>(const SelectionLists &, ArrayRef<Value>)>
          body) const;
  Value countDifferent(TileBuilder &b, In in) const;
};
} // namespace

/// Runs `body` on the lists of each tile of the program's queries; those past
/// the last one have selected nothing. Blocks of packed sequences have numbers
/// in the row.
SmallVector<Value> SelectionKernel::forEachTile(
    TileBuilder &b, In in, ArrayRef<Value> inits,
    function_ref<SmallVector<Value>(const SelectionLists &, ArrayRef<Value>)>
        body) const {
  Expr start = b.programId(0) * selectBlock;
  Expr end = min(start + selectBlock, sequence);
  QueryPlace place = loadPlace(b, in);
  return b.forLoop(
      start, end, rows, inits, [&](Expr first, ArrayRef<Value> carried) {
        Value t = b.range(first, rows, 0);
        Value loaded = b.load(in.getIndices(), {b.programId(2), b.programId(1),
                                                t, b.range(0, count, 1)});
        if (isPacked)
          loaded = b.map(
              {loaded, b.load(in.getStart(), {place.batch, place.of(b, t)})},
              b.i32(), [&](ArrayRef<Expr> x) {
                return select(x[0] >= 0, x[0] + x[1] / selectBlock, -1);
              });
        Value chosen = b.map({loaded, t}, b.i32(), [&](ArrayRef<Expr> x) {
          return select(x[1] < end, x[0], -1);
        });
        return body(SelectionLists(selectBlock, sequence, t, chosen, place),
                    carried);
      });
}

/// How many different blocks the program's queries selected.
Value SelectionKernel::countDifferent(TileBuilder &b, In in) const {
  int64_t some = isPlaced ? 32 : std::min<int64_t>(queryBlocks, 32);
  Value nothing = b.splat(b.constant(0), 1, some);
  auto countSome = [&](Expr block,
                       ArrayRef<Value> number) -> SmallVector<Value> {
    auto mark = [&](const SelectionLists &lists,
                    ArrayRef<Value> marked) -> SmallVector<Value> {
      Value members =
          b.reduceMax(lists.findMembers(b, block, some), /*axis=*/0);
      return {b.map({marked[0], members}, b.i32(),
                    [](ArrayRef<Expr> x) { return max(x[0], x[1]); })};
    };
    Value marked = forEachTile(b, in, nothing, mark)[0];
    return {add(b, number[0], b.reduceAdd(marked))};
  };
  // The block of the last query, and the one after it.
  Expr end = b.programId(0) + 1;
  if (isPlaced)
    end = loadPlace(b, in).of(min(end * selectBlock, sequence) - 1) /
              selectBlock +
          1;
  return b.forLoop(0, end, some, b.splat(b.constant(0), 1, 1), countSome)[0];
}

void SelectionKernel::buildParts(TileBuilder &b, In in, Value parts) const {
  Expr queryBlock = b.programId(0);
  auto addTile = [&](const SelectionLists &lists,
                     ArrayRef<Value> carried) -> SmallVector<Value> {
    SmallVector<Value> inputs = {lists.entries};
    Value position = lists.place.of(b, lists.number);
    if (isPacked) {
      Value start = b.load(in.getStart(), {lists.place.batch, position});
      inputs.push_back(b.map({position, start}, b.i32(), [&](ArrayRef<Expr> x) {
        return x[1] / selectBlock + (x[0] - x[1]) / selectBlock;
      }));
    } else if (isPlaced) {
      inputs.push_back(b.map({position}, b.i32(), [&](ArrayRef<Expr> x) {
        return x[0] / selectBlock;
      }));
    }
    SmallVector<Value> terms =
        b.map(inputs, {b.f32(), b.f32()},
              [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                Expr isBlock = x[0] >= 0;
                Expr own = x.size() > 1 ? x[1] : queryBlock;
                return {convert(isBlock, b.f32()),
                        convert(select(isBlock, own - x[0], 0), b.f32())};
              });
    return {add(b, carried[0], total(b, terms[0])),
            add(b, carried[1], total(b, terms[1]))};
  };
  SmallVector<Value> sums =
      forEachTile(b, in, SmallVector<Value>(2, b.zeros(1, 1)), addTile);
  sums.push_back(b.toF32(countDifferent(b, in)));
  for (auto [k, sum] : llvm::enumerate(sums))
    b.store(sum, parts,
            {int64_t(k), b.programId(2), b.programId(1),
             b.range(queryBlock, 1, 0)});
}

void SelectionKernel::buildMeans(TileBuilder &b, Value parts, Value y) const {
  Value flat = b.view(parts, {numSums, numPrograms()});
  SmallVector<Value> sums = sumParts(b, flat);
  auto number = [&](int64_t value) {
    return b.full(static_cast<double>(value), 1, 1);
  };
  storeRatio(b, sums[0], number(batch * heads * sequence), y, 0);
  storeRatio(b, sums[1], sums[0], y, 1);
  storeRatio(b, sums[2], number(numPrograms()), y, 2);
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

/// By programs whose sums one more adds.
template <typename Kernel>
static LogicalResult convertInParts(typename Kernel::Op op, KernelCache &cache,
                                    PatternRewriter &rewriter) {
  Kernel kernel(op);
  KernelSpec spec = {"parts", kernel.name(), kernel.getGrid(), 0};
  Value parts = launchKernel(cache, rewriter, op, spec,
                             kernel.getPartsType(rewriter.getContext()),
                             [&](auto &b, auto in, ArrayRef<Value> out) {
                               kernel.buildParts(b, in, out.front());
                             })
                    .front();
  return cache.replace(rewriter, op, {"", kernel.name(), {1, 1, 1}, 0}, parts,
                       [&](TileBuilder &b, ArrayRef<Value> args) {
                         auto [parts, statistics] = named<2>(args);
                         kernel.buildMeans(b, parts, statistics);
                       });
}

void nsa::populateStatisticsPatterns(KernelPatterns &patterns) {
  patterns.add(convertInParts<GateKernel>, convertInParts<SelectionKernel>);
}
