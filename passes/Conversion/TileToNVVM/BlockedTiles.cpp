//===- BlockedTiles.cpp - where a thread's elements are -------------------===//

#include "passes/Conversion/TileToNVVM/BlockedTiles.h"

using namespace mlir;
using namespace nsa::cuda;

std::pair<Value, Value>
nsa::cuda::placeOf(ThreadBuilder &b, const BlockedLayout &blocked, int64_t k) {
  Value row = b.i32(0), col = row;
  if (blocked.rows > 1)
    row = b.add(b.div(b.threadId(), blocked.threadsPerRow),
                k / blocked.perRow() * blocked.rowGroups());
  if (blocked.cols > 1) {
    Value member = blocked.rowGroups() == 1
                       ? b.threadId()
                       : b.rem(b.threadId(), blocked.threadsPerRow);
    int64_t piece = k % blocked.perRow() / blocked.width;
    col = b.add(b.mul(member, blocked.width),
                piece * blocked.threadsPerRow * blocked.width +
                    k % blocked.width);
  }
  return {row, col};
}

std::pair<Value, Value> nsa::cuda::placeInside(ThreadBuilder &b,
                                               const BlockedLayout &blocked,
                                               int64_t k) {
  auto [row, col] = placeOf(b, blocked, k);
  if (!blocked.hasRow(k))
    row = b.clamp(row, blocked.rows);
  if (!blocked.hasCol(k))
    col = b.clamp(col, blocked.cols);
  return {row, col};
}

SmallVector<Value>
nsa::cuda::makeRegisters(ThreadBuilder &b, const BlockedLayout &blocked,
                         function_ref<Value(Value row, Value col)> make) {
  SmallVector<Value> values;
  for (int64_t k = 0; k < blocked.registers(); ++k) {
    auto [row, col] = placeInside(b, blocked, k);
    values.push_back(make(row, col));
  }
  return values;
}

Value nsa::cuda::hasRow(ThreadBuilder &b, const BlockedLayout &blocked,
                        int64_t k) {
  return blocked.hasRow(k) ? Value()
                           : b.less(placeOf(b, blocked, k).first, blocked.rows);
}

Value nsa::cuda::hasCol(ThreadBuilder &b, const BlockedLayout &blocked,
                        int64_t k) {
  return blocked.hasCol(k)
             ? Value()
             : b.less(placeOf(b, blocked, k).second, blocked.cols);
}

Value nsa::cuda::isElement(ThreadBuilder &b, const BlockedLayout &blocked,
                           int64_t k) {
  return b.both(hasRow(b, blocked, k), hasCol(b, blocked, k));
}

Value nsa::cuda::isOwner(ThreadBuilder &b, const BlockedLayout &blocked,
                         int64_t k) {
  Value owner = isElement(b, blocked, k);
  if (blocked.rows == 1 && blocked.cols == 1)
    return b.both(owner, b.less(b.threadId(), 1));
  if (blocked.rows == 1 && blocked.rowGroups() > 1)
    return b.both(owner, b.less(b.threadId(), blocked.threadsPerRow));
  if (blocked.cols == 1 && blocked.threadsPerRow > 1)
    return b.both(owner, b.less(b.rem(b.threadId(), blocked.threadsPerRow), 1));
  return owner;
}
