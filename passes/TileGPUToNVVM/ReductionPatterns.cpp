//===- ReductionPatterns.cpp - reductions ---------------------------------===//
//
// A thread combines its own elements, then threads of a warp exchange theirs by
// shuffles, then warps through shared memory. The order depends on shapes only.
//
//===----------------------------------------------------------------------===//

#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/Patterns.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

namespace {
/// How one reduction combines elements.
class Combiner {
public:
  Combiner(ThreadBuilder &b, ReduceOp op)
      : b(b), kind(op.getKind()),
        element(cast<TileType>(op.getInput().getType()).getElementType()),
        isFast(hasMmaLayout(op.getType())) {}

  Value combine(Value x, Value y);
  /// Combines neighbours, then neighbouring results, and so on.
  Value combineAll(SmallVector<Value> values);
  /// Combines the values of lanes whose numbers differ in these bits, in order.
  Value combineLanes(Value value, ArrayRef<int64_t> masks) {
    for (int64_t mask : masks)
      value = combine(value, b.shuffle(value, unsigned(mask)));
    return value;
  }
  /// What changes nothing when it is combined with another element, for a
  /// `value` that does not exist; null is true.
  Value orNeutral(Value exists, Value value) {
    return exists ? b.select(exists, value, neutralElement()) : value;
  }

private:
  Value neutralElement();

  ThreadBuilder &b;
  ReduceKind kind;
  Type element;
  /// Maxima and minima in one instruction; a NaN does not win.
  bool isFast;
};
} // namespace

Value Combiner::combine(Value x, Value y) {
  bool isFloat = isa<FloatType>(element), isMax = kind == ReduceKind::Max;
  if (kind == ReduceKind::Add)
    return isFloat ? Value(arith::AddFOp::create(b, x, y))
                   : Value(arith::AddIOp::create(b, x, y));
  if (!isFloat)
    return isMax ? Value(arith::MaxSIOp::create(b, x, y))
                 : Value(arith::MinSIOp::create(b, x, y));
  if (isFast)
    return isMax ? Value(LLVM::MaxNumOp::create(b, x, y))
                 : Value(LLVM::MinNumOp::create(b, x, y));
  return isMax ? Value(arith::MaxNumFOp::create(b, x, y))
               : Value(arith::MinNumFOp::create(b, x, y));
}

Value Combiner::combineAll(SmallVector<Value> values) {
  while (values.size() > 1) {
    SmallVector<Value> next;
    for (size_t i = 0; i + 1 < values.size(); i += 2)
      next.push_back(combine(values[i], values[i + 1]));
    if (values.size() % 2)
      next.push_back(values.back());
    values = std::move(next);
  }
  return values.front();
}

Value Combiner::neutralElement() {
  if (kind == ReduceKind::Add)
    return b.constant(element, 0);
  bool isMax = kind == ReduceKind::Max;
  if (isa<FloatType>(element)) {
    double infinity = std::numeric_limits<double>::infinity();
    return b.constant(element, isMax ? -infinity : infinity);
  }
  return b.constant(element, double(isMax ? INT32_MIN : INT32_MAX));
}

//===----------------------------------------------------------------------===//
// In a warp
//===----------------------------------------------------------------------===//

/// The powers of two from `end / 2` down to `first`, itself one.
static SmallVector<int64_t> bitsDown(int64_t first, int64_t end) {
  SmallVector<int64_t> masks;
  for (int64_t mask = end / 2; mask >= first; mask /= 2)
    masks.push_back(mask);
  return masks;
}

/// The bits in which lanes differ that share a row, or a column.
static SmallVector<int64_t> getLanesOfRow(const RegisterLayout &layout) {
  if (layout.isMma)
    return {1, 2};
  return bitsDown(1, std::min(layout.threadsPerRow, kWarp));
}
static SmallVector<int64_t> getLanesOfColumn(const RegisterLayout &layout) {
  if (layout.isMma)
    return {4, 8, 16};
  return bitsDown(layout.threadsPerRow, std::min(layout.threads, kWarp));
}

/// What each warp has of rows, or of columns.
static SmallVector<Value> reduceInWarp(Combiner &combiner, ThreadBuilder &b,
                                       const RegisterLayout &from,
                                       ArrayRef<Value> elements, bool ofRows) {
  auto [lines, length] = std::pair(from.rowCount(), from.colCount());
  if (!ofRows)
    std::swap(lines, length);
  SmallVector<Value> results;
  for (int64_t line = 0; line < lines; ++line) {
    SmallVector<Value> own;
    for (int64_t i = 0; i < length; ++i)
      own.push_back(combiner.orNeutral(
          ofRows ? b.hasCol(from, i) : b.hasRow(from, i),
          elements[ofRows ? line * length + i : i * lines + line]));
    Value value = combiner.combineAll(own);
    if ((ofRows ? from.cols : from.rows) > 1)
      value = combiner.combineLanes(value, ofRows ? getLanesOfRow(from)
                                                  : getLanesOfColumn(from));
    results.push_back(value);
  }
  return results;
}

//===----------------------------------------------------------------------===//
// Across warps
//===----------------------------------------------------------------------===//

/// Combines column `col` of the first `count` rows of `tile`.
static Value combineShared(ThreadBuilder &b, Combiner &combiner,
                           const ScratchTile &tile, int64_t count, Value col) {
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(tile.read(b, b.i32(i), col));
  return combiner.combineAll(values);
}

/// All threads of a thread group get what its rows are combined to.
static void exchangeRows(TileReader &in, Combiner &combiner, ReduceOp op,
                         SmallVectorImpl<Value> &results) {
  ThreadBuilder &b = in.b;
  ReduceExchange exchange(op);
  RegisterLayout from(op.getInput()), to(op.getResult());
  if (exchange.ofWarps) {
    // There is one row, of several warps.
    int64_t count = b.getThreads() / kWarp;
    Scratch scratch(in);
    ScratchTile shared = scratch.allocate(count, 1, from.element);
    b.ifThen(b.less(b.rem(b.threadId(), kWarp), 1), [&] {
      shared.write(b, results[0], b.div(b.threadId(), kWarp), b.i32(0));
    });
    scratch.endStores();
    results.assign({combineShared(b, combiner, shared, count, b.i32(0))});
  }
  if (!exchange.ofResults)
    return;
  Scratch scratch(in);
  ScratchTile shared = scratch.allocate(1, from.rows, from.element);
  Value leads = from.threadsPerRow == 1
                    ? Value()
                    : b.less(b.rem(b.threadId(), from.threadsPerRow), 1);
  for (auto [r, value] : llvm::enumerate(results))
    b.ifThen(b.both(leads, b.hasRow(from, int64_t(r))),
             [&, r = int64_t(r), value = value] {
               shared.write(b, value, b.i32(0), b.rowOf(from, r));
             });
  scratch.endStores();
  results = makeElements(
      b, to, [&](Value row, Value) { return shared.read(b, b.i32(0), row); });
}

/// Every thread group gets what the columns are combined to.
static void exchangeCols(TileReader &in, Combiner &combiner, ReduceOp op,
                         SmallVectorImpl<Value> &results) {
  ThreadBuilder &b = in.b;
  RegisterLayout from(op.getInput());
  int64_t count = llvm::divideCeil(b.getThreads(), kWarp);
  Scratch scratch(in);
  ScratchTile shared = scratch.allocate(count, from.cols, from.element);
  Value leads = b.less(b.rem(b.threadId(), kWarp),
                       from.cols == 1 ? 1 : from.threadsPerRow);
  for (auto [c, value] : llvm::enumerate(results))
    b.ifThen(b.both(leads, b.hasCol(from, int64_t(c))), [&, c = int64_t(c),
                                                         value = value] {
      shared.write(b, value, b.div(b.threadId(), kWarp), b.colOf(from, c));
    });
  scratch.endStores();
  results =
      makeElements(b, RegisterLayout(op.getResult()), [&](Value, Value col) {
        return combineShared(b, combiner, shared, count, col);
      });
}

/// The same of MMA tiles, in the order of the warps.
static void exchangeMmaCols(TileReader &in, Combiner &combiner, ReduceOp op,
                            SmallVectorImpl<Value> &results) {
  ThreadBuilder &b = in.b;
  RegisterLayout input(op.getInput());
  Scratch scratch(in);
  ScratchTile shared =
      scratch.allocate(input.warps(), input.colCount() * 4, input.element);
  auto place = [&](int64_t c) {
    return input.cols == 1 ? b.i32(0)
                           : b.add(b.place().pair, input.colOffset(c));
  };
  // The lanes of the first quad have different columns, or all have the only
  // one.
  b.ifThen(b.both(b.less(b.place().quad, 1), b.isFirst(input)), [&] {
    for (auto [c, value] : llvm::enumerate(results))
      shared.write(b, value, b.place().warp, place(c));
  });
  scratch.endStores();
  for (auto [c, value] : llvm::enumerate(results)) {
    value = shared.read(b, b.i32(0), place(c));
    for (int64_t warp = 1; warp < input.warps(); ++warp)
      value = combiner.combine(value, shared.read(b, b.i32(warp), place(c)));
  }
}

static Results lowerReduce(ReduceOp op, TileReader &in) {
  Combiner combiner(in.b, op);
  ReduceExchange exchange(op);
  RegisterLayout from(op.getInput());
  bool ofRows = op.getAxis() == 1;
  SmallVector<Value> results =
      reduceInWarp(combiner, in.b, from, in.elementsOf(op.getInput()), ofRows);
  if (ofRows)
    exchangeRows(in, combiner, op, results);
  else if (exchange.ofWarps || exchange.ofResults)
    (from.isMma ? exchangeMmaCols : exchangeCols)(in, combiner, op, results);
  return {std::move(results)};
}

void nsa::cuda::populateReductionPatterns(TilePatterns &patterns) {
  patterns.add(lowerReduce);
}
