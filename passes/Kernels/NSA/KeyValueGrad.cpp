//===- KeyValueGrad.cpp - gradients of keys and values --------------------===//

#include "passes/Kernels/NSA/KeyValueGrad.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

KeyValueGrad::KeyValueGrad(TileBuilder &b, const AttentionShape &shape,
                           const KeyValueGradArgs &args,
                           const KeyProgram &program)
    : b(b), shape(shape), args(args), program(program) {
  tile.key = b.range(program.first, program.keys, 0);
  keyCols = shape.columns(b, shape.keyWidth);
  valueCols = shape.columns(b, shape.valueWidth);
  tile.keys =
      b.load(args.k, {program.batch, tile.key, program.keyHead, keyCols});
  tile.values =
      b.load(args.v, {program.batch, tile.key, program.keyHead, valueCols});
}

SmallVector<Value> KeyValueGrad::zeros() const {
  return {b.zeros(program.keys, shape.ownWidth(shape.keyWidth)),
          b.zeros(program.keys, shape.ownWidth(shape.valueWidth))};
}

SmallVector<Value>
KeyValueGrad::addRows(Expr batch, Value query, Value queryOfColumn,
                      tile::Operand head, tile::Operand headOfColumn,
                      ArrayRef<Value> sums, function_ref<void()> limit) {
  auto load = [&](Value from, Value columns) {
    return b.load(from, {batch, query, head, columns});
  };
  Value queries = load(args.q, keyCols);
  Value outputGrads = load(args.outputGrad, valueCols);
  RowTerms terms =
      args.loadTerms(b, shape.exponent(), batch, headOfColumn, queryOfColumn);
  limit();
  // Of programs that share columns, those whose sums this one computes.
  Value ownQueries, ownOutputGrads;
  if (shape.columnParts > 1) {
    ownQueries = load(args.q, shape.ownColumns(b, shape.keyWidth));
    ownOutputGrads =
        load(args.outputGrad, shape.ownColumns(b, shape.valueWidth));
  }
  return addKeyValueGrad(b, queries, outputGrads, tile, terms, shape.exponent(),
                         sums, ownQueries, ownOutputGrads);
}

void KeyValueGrad::store(ArrayRef<Value> sums, Value rows) const {
  Value scaledKeys = program.part ? sums[0] : scaled(b, sums[0], shape.scale);
  auto storeOne = [&](Value sum, Value grad, int64_t width) {
    SmallVector<tile::Operand> place = {program.batch, rows, program.keyHead,
                                        shape.ownColumns(b, width)};
    if (program.part)
      place.insert(place.begin(), *program.part);
    b.store(sum, grad, place);
  };
  storeOne(scaledKeys, args.keyGrad, shape.keyWidth);
  storeOne(sums[1], args.valueGrad, shape.valueWidth);
}

SmallVector<Value> nsa::forEachRow(TileBuilder &b, const AttentionShape &shape,
                                   Value at, Expr batch, ArrayRef<Value> inits,
                                   TileBuilder::LoopBody body) {
  return at ? b.forLoop(0, shape.batch, 1, inits, body) : body(batch, inits);
}

void nsa::addParts(TileBuilder &b, Value parts, Value out, Expr batch,
                   Value row, Expr head, double scale,
                   tile::Operand firstPart) {
  ArrayRef<int64_t> shape = cast<MemRefType>(parts.getType()).getShape();
  Value cols = b.range(0, shape.back(), 1);
  int64_t rows = cast<TileType>(row.getType()).getRows();
  Value sum =
      b.forLoop(firstPart, shape.front(), 1, {b.zeros(rows, shape.back())},
                [&](Expr part, ArrayRef<Value> carried) -> SmallVector<Value> {
                  return {add(b, carried[0],
                              b.load(parts, {part, batch, row, head, cols}))};
                })[0];
  b.store(scaled(b, sum, scale), out, {batch, row, head, cols});
}
