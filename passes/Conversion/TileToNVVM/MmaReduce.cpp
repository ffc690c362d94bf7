//===- MmaReduce.cpp - reductions of tiles in the MMA layout --------------===//

#include "passes/Conversion/TileToNVVM/Combine.h"
#include "passes/Conversion/TileToNVVM/Patterns.h"
#include "passes/Conversion/TileToNVVM/ScratchTiles.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// Like `combine`, with the instructions for maxima and minima.
static Value combineFast(ThreadBuilder &b, ReduceKind kind, Value x, Value y) {
  if (!isa<FloatType>(x.getType()) || kind == ReduceKind::Add)
    return combine(b, kind, x, y);
  return kind == ReduceKind::Max ? getMaximum(b, x, y) : getMinimum(b, x, y);
}

/// Combines in pairs, neighbours first.
static Value combineTree(ThreadBuilder &b, ReduceKind kind,
                         SmallVector<Value> values) {
  while (values.size() > 1) {
    SmallVector<Value> next;
    for (size_t i = 0; i + 1 < values.size(); i += 2)
      next.push_back(combineFast(b, kind, values[i], values[i + 1]));
    if (values.size() % 2)
      next.push_back(values.back());
    values = std::move(next);
  }
  return values.front();
}

static Value combineLanes(ThreadBuilder &b, ReduceKind kind, Value value,
                          ArrayRef<unsigned> masks) {
  for (unsigned mask : masks)
    value = combineFast(b, kind, value, b.shuffle(value, mask));
  return value;
}

/// Column `c` of the rows of a warp; equal in its quads.
static Value combineRows(ThreadBuilder &b, const MmaLayout &input,
                         ReduceKind kind, ArrayRef<Value> elements, int64_t c) {
  Value neutral = neutralElement(b, kind, input.element);
  SmallVector<Value> values;
  for (int64_t r = 0; r < input.rowCount(); ++r) {
    Value value = elements[r * input.colCount() + c];
    Value exists = b.hasRow(input, r);
    values.push_back(exists ? b.select(exists, value, neutral) : value);
  }
  Value value = combineTree(b, kind, values);
  return input.rows == 1 ? value : combineLanes(b, kind, value, {4, 8, 16});
}

/// Combines what each warp has of each column, in the order of the warps.
static void combineWarps(TileReader &in, const MmaLayout &input,
                         ReduceKind kind, SmallVectorImpl<Value> &columns) {
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
      value = combineFast(b, kind, value,
                          readScratch(b, shared, b.i32(warp), place(c)));
  }
}

Results nsa::cuda::lowerMmaReduce(ReduceOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  MmaLayout input(op.getInput().getType());
  SmallVector<Value> elements = in.elementsOf(op.getInput());
  if (op.getAxis() == 0) {
    SmallVector<Value> columns;
    for (int64_t c = 0; c < input.colCount(); ++c)
      columns.push_back(combineRows(b, input, op.getKind(), elements, c));
    if (input.rows > 1 && input.warps > 1)
      combineWarps(in, input, op.getKind(), columns);
    return {std::move(columns)};
  }
  Value neutral = neutralElement(b, op.getKind(), input.element);
  SmallVector<Value> result, exists;
  for (int64_t c = 0; c < input.colCount(); ++c)
    exists.push_back(b.hasCol(input, c));
  for (int64_t r = 0; r < input.rowCount(); ++r) {
    SmallVector<Value> values;
    for (int64_t c = 0; c < input.colCount(); ++c) {
      Value value = elements[r * input.colCount() + c];
      values.push_back(exists[c] ? b.select(exists[c], value, neutral) : value);
    }
    Value value = combineTree(b, op.getKind(), values);
    result.push_back(
        input.cols == 1 ? value : combineLanes(b, op.getKind(), value, {1, 2}));
  }
  return {std::move(result)};
}
