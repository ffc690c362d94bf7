//===- ReductionPatterns.cpp - reductions ---------------------------------===//
//
// A thread combines its own elements, then threads of a warp exchange theirs by
// shuffles, then warps through shared memory. The order depends on shapes only.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/TileToNVVM/BlockedTiles.h"
#include "passes/Conversion/TileToNVVM/Patterns.h"
#include "passes/Conversion/TileToNVVM/Scratch.h"
#include "passes/Conversion/TileToNVVM/ScratchTiles.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

static constexpr int64_t kWarp = 32;

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
// Blocked layouts
//===----------------------------------------------------------------------===//

/// The powers of two from `end / 2` down to `first`, itself one.
static SmallVector<int64_t> bitsDown(int64_t first, int64_t end) {
  SmallVector<int64_t> masks;
  for (int64_t mask = end / 2; mask >= first; mask /= 2)
    masks.push_back(mask);
  return masks;
}

/// Combines column `col` of the first `count` rows of `tile`.
static Value combineShared(ThreadBuilder &b, Combiner &combiner,
                           const ScratchTile &tile, int64_t count, Value col) {
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(readScratch(b, tile, b.i32(i), col));
  return combiner.combineAll(values);
}

/// All threads of a thread group get what its rows are combined to.
static SmallVector<Value> reduceRows(ReduceOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  Combiner combiner(b, op);
  ReduceExchange exchange(op);
  BlockedLayout from = blockedLayoutOf(op.getInput()),
                to = blockedLayoutOf(op.getResult());
  SmallVector<Value> values = in.registersOf(op.getInput()), results;
  Type element = values.front().getType();
  for (int64_t r = 0; r < from.ownRows(); ++r) {
    SmallVector<Value> own;
    for (int64_t k = r * from.perRow(); k < (r + 1) * from.perRow(); ++k)
      own.push_back(combiner.orNeutral(hasCol(b, from, k), values[k]));
    Value value = combiner.combineAll(own);
    if (from.cols > 1)
      value = combiner.combineLanes(
          value, bitsDown(1, std::min(from.threadsPerRow, kWarp)));
    results.push_back(value);
  }
  if (exchange.ofWarps) {
    // There is one row, of several warps.
    int64_t count = b.getThreads() / kWarp;
    Scratch scratch(in);
    ScratchTile shared = scratch.allocate(count, 1, element);
    b.ifThen(b.less(b.rem(b.threadId(), kWarp), 1), [&] {
      writeScratch(b, results[0], shared, b.div(b.threadId(), kWarp), b.i32(0));
    });
    scratch.endStores();
    results = {combineShared(b, combiner, shared, count, b.i32(0))};
  }
  if (!exchange.ofResults)
    return results;
  Scratch scratch(in);
  ScratchTile shared = scratch.allocate(1, from.rows, element);
  Value leads = from.threadsPerRow == 1
                    ? Value()
                    : b.less(b.rem(b.threadId(), from.threadsPerRow), 1);
  for (auto [r, value] : llvm::enumerate(results)) {
    int64_t k = static_cast<int64_t>(r) * from.perRow();
    b.ifThen(b.both(leads, hasRow(b, from, k)), [&, value = value] {
      writeScratch(b, value, shared, b.i32(0), placeOf(b, from, k).first);
    });
  }
  scratch.endStores();
  return makeRegisters(b, to, [&](Value row, Value) {
    return readScratch(b, shared, b.i32(0), row);
  });
}

/// Every thread group gets what the columns are combined to.
static SmallVector<Value> reduceCols(ReduceOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  Combiner combiner(b, op);
  ReduceExchange exchange(op);
  BlockedLayout from = blockedLayoutOf(op.getInput());
  SmallVector<Value> values = in.registersOf(op.getInput()), results;
  if (from.rows == 1)
    return values;
  for (int64_t c = 0; c < from.perRow(); ++c) {
    SmallVector<Value> own;
    for (int64_t k = c; k < from.registers(); k += from.perRow())
      own.push_back(combiner.orNeutral(hasRow(b, from, k), values[k]));
    results.push_back(combiner.combineLanes(
        combiner.combineAll(own),
        bitsDown(from.threadsPerRow, std::min(b.getThreads(), kWarp))));
  }
  if (!exchange.ofWarps && !exchange.ofResults)
    return results;
  int64_t count = llvm::divideCeil(b.getThreads(), kWarp);
  Scratch scratch(in);
  ScratchTile shared =
      scratch.allocate(count, from.cols, values.front().getType());
  Value leads = b.less(b.rem(b.threadId(), kWarp),
                       from.cols == 1 ? 1 : from.threadsPerRow);
  for (auto [c, value] : llvm::enumerate(results)) {
    auto k = static_cast<int64_t>(c);
    b.ifThen(b.both(leads, hasCol(b, from, k)), [&, value = value] {
      writeScratch(b, value, shared, b.div(b.threadId(), kWarp),
                   placeOf(b, from, k).second);
    });
  }
  scratch.endStores();
  return makeRegisters(b, blockedLayoutOf(op.getResult()),
                       [&](Value, Value col) {
                         return combineShared(b, combiner, shared, count, col);
                       });
}

//===----------------------------------------------------------------------===//
// The MMA layout
//===----------------------------------------------------------------------===//

/// Combines what each warp has of each column, in the order of the warps.
static void combineWarps(TileReader &in, const MmaLayout &input,
                         Combiner &combiner, SmallVectorImpl<Value> &columns) {
  ThreadBuilder &b = in.b;
  Scratch scratch(in);
  ScratchTile shared =
      scratch.allocate(input.warps, input.colCount() * 4, input.element);
  auto place = [&](int64_t c) {
    return input.cols == 1 ? b.i32(0)
                           : b.add(b.place().pair, 8 * (c / 2) + c % 2);
  };
  // The lanes of the first quad have different columns, or all have the only
  // one.
  b.ifThen(b.both(b.less(b.place().quad, 1), b.isFirst(input)), [&] {
    for (auto [c, value] : llvm::enumerate(columns))
      writeScratch(b, value, shared, b.place().warp, place(c));
  });
  scratch.endStores();
  for (auto [c, value] : llvm::enumerate(columns)) {
    value = readScratch(b, shared, b.i32(0), place(c));
    for (int64_t warp = 1; warp < input.warps; ++warp)
      value = combiner.combine(value,
                               readScratch(b, shared, b.i32(warp), place(c)));
  }
}

static SmallVector<Value> reduceMma(ReduceOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  Combiner combiner(b, op);
  MmaLayout input(op.getInput());
  SmallVector<Value> elements = in.elementsOf(op.getInput()), results;
  if (op.getAxis() == 0) {
    for (int64_t c = 0; c < input.colCount(); ++c) {
      SmallVector<Value> own;
      for (int64_t r = 0; r < input.rowCount(); ++r)
        own.push_back(combiner.orNeutral(b.hasRow(input, r),
                                         elements[r * input.colCount() + c]));
      Value value = combiner.combineAll(own);
      results.push_back(
          input.rows == 1 ? value : combiner.combineLanes(value, {4, 8, 16}));
    }
    if (ReduceExchange(op).ofWarps)
      combineWarps(in, input, combiner, results);
    return results;
  }
  SmallVector<Value> exists;
  for (int64_t c = 0; c < input.colCount(); ++c)
    exists.push_back(b.hasCol(input, c));
  for (int64_t r = 0; r < input.rowCount(); ++r) {
    SmallVector<Value> own;
    for (int64_t c = 0; c < input.colCount(); ++c)
      own.push_back(
          combiner.orNeutral(exists[c], elements[r * input.colCount() + c]));
    Value value = combiner.combineAll(own);
    results.push_back(input.cols == 1 ? value
                                      : combiner.combineLanes(value, {1, 2}));
  }
  return results;
}

static Results lowerReduce(ReduceOp op, TileReader &in) {
  if (hasMmaLayout(op.getType()))
    return {reduceMma(op, in)};
  return {op.getAxis() == 1 ? reduceRows(op, in) : reduceCols(op, in)};
}

void nsa::cuda::populateReductionPatterns(TilePatterns &patterns) {
  patterns.add(lowerReduce);
}
