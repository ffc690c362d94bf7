//===- EmitReduce.cpp - reductions of tiles without layouts ---------------===//
//
// A thread combines its own elements, then threads of a warp exchange theirs by
// shuffles, then warps through shared memory. The order depends on shapes only.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/TileToNVVM/Combine.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

static constexpr int64_t kWarp = 32;

/// Combines neighbours, then neighbouring results, and so on.
static Value combineAll(ThreadBuilder &b, ReduceKind kind,
                        SmallVector<Value> values) {
  while (values.size() > 1) {
    SmallVector<Value> next;
    for (size_t i = 0; i + 1 < values.size(); i += 2)
      next.push_back(combine(b, kind, values[i], values[i + 1]));
    if (values.size() % 2)
      next.push_back(values.back());
    values = std::move(next);
  }
  return values.front();
}

Value KernelEmitter::combineAcross(ReduceKind kind, Value value, int64_t first,
                                   int64_t end) {
  for (int64_t mask = end / 2; mask >= first; mask /= 2)
    value = combine(b, kind, value, b.shuffle(value, mask));
  return value;
}

Value KernelEmitter::combineShared(ReduceKind kind, const SharedTile &tile,
                                   int64_t count, Value col) {
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(readShared(tile, b.i32(i), col));
  return combineAll(b, kind, values);
}

void KernelEmitter::emitReduce(ReduceOp op) {
  if (op.getAxis() == 1)
    reduceRows(op);
  else
    reduceCols(op);
}

/// All threads of a thread group get what its rows are combined to.
void KernelEmitter::reduceRows(ReduceOp op) {
  BlockedLayout from = blockedLayoutOf(op.getInput()),
                to = blockedLayoutOf(op.getResult());
  SmallVector<Value> values = registersOf(op.getInput()), results;
  Type element = values.front().getType();
  for (int64_t r = 0; r < from.ownRows(); ++r) {
    SmallVector<Value> own;
    for (int64_t k = r * from.perRow(); k < (r + 1) * from.perRow(); ++k) {
      Value exists = hasCol(from, k);
      own.push_back(exists ? b.select(exists, values[k],
                                      neutralElement(b, op.getKind(), element))
                           : values[k]);
    }
    Value value = combineAll(b, op.getKind(), own);
    if (from.cols > 1)
      value = combineAcross(op.getKind(), value, 1,
                            std::min(from.threadsPerRow, kWarp));
    results.push_back(value);
  }
  if (from.cols > 1 && from.threadsPerRow > kWarp) {
    // There is one row, of several warps.
    int64_t count = threads / kWarp;
    beginLayoutConversion();
    SharedTile shared = allocate(count, 1, element);
    b.ifThen(b.less(b.rem(tid, kWarp), 1), [&] {
      writeShared(results[0], shared, b.div(tid, kWarp), b.i32(0));
    });
    endLocalStores();
    results = {combineShared(op.getKind(), shared, count, b.i32(0))};
  }
  if (from.rows == 1 || from.threadsPerRow == to.threadsPerRow) {
    registers[op.getResult()] = std::move(results);
    return;
  }
  beginLayoutConversion();
  SharedTile shared = allocate(1, from.rows, element);
  Value leads = from.threadsPerRow == 1
                    ? Value()
                    : b.less(b.rem(tid, from.threadsPerRow), 1);
  for (auto [r, value] : llvm::enumerate(results)) {
    int64_t k = static_cast<int64_t>(r) * from.perRow();
    b.ifThen(b.both(leads, hasRow(from, k)), [&, value = value] {
      writeShared(value, shared, b.i32(0), place(from, k).first);
    });
  }
  endLocalStores();
  for (int64_t k = 0; k < to.registers(); ++k)
    registers[op.getResult()].push_back(
        readShared(shared, b.i32(0), placeInside(to, k).first));
}

/// Every thread group gets what the columns are combined to.
void KernelEmitter::reduceCols(ReduceOp op) {
  BlockedLayout from = blockedLayoutOf(op.getInput()),
                to = blockedLayoutOf(op.getResult());
  SmallVector<Value> values = registersOf(op.getInput()), results;
  if (from.rows == 1) {
    registers[op.getResult()] = std::move(values);
    return;
  }
  Type element = values.front().getType();
  for (int64_t c = 0; c < from.perRow(); ++c) {
    SmallVector<Value> own;
    for (int64_t k = c; k < from.registers(); k += from.perRow()) {
      Value exists = hasRow(from, k);
      own.push_back(exists ? b.select(exists, values[k],
                                      neutralElement(b, op.getKind(), element))
                           : values[k]);
    }
    results.push_back(
        combineAcross(op.getKind(), combineAll(b, op.getKind(), own),
                      from.threadsPerRow, std::min(threads, kWarp)));
  }
  int64_t count = llvm::divideCeil(threads, kWarp);
  bool isSame = from.cols == 1 || (to.threadsPerRow == from.threadsPerRow &&
                                   to.width == from.width);
  if (count == 1 && isSame) {
    registers[op.getResult()] = std::move(results);
    return;
  }
  beginLayoutConversion();
  SharedTile shared = allocate(count, from.cols, element);
  Value leads =
      b.less(b.rem(tid, kWarp), from.cols == 1 ? 1 : from.threadsPerRow);
  for (auto [c, value] : llvm::enumerate(results)) {
    auto k = static_cast<int64_t>(c);
    b.ifThen(b.both(leads, hasCol(from, k)), [&, value = value] {
      writeShared(value, shared, b.div(tid, kWarp), place(from, k).second);
    });
  }
  endLocalStores();
  for (int64_t k = 0; k < to.registers(); ++k)
    registers[op.getResult()].push_back(
        combineShared(op.getKind(), shared, count, placeInside(to, k).second));
}
