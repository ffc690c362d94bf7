//===- EmitConvert.cpp - elements from one layout to another --------------===//

#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

void KernelEmitter::emitConvert(ConvertOp op) {
  if (hasMmaLayout(op.getType()))
    return convertToMma(op);
  convertToBlocked(op);
}

//===----------------------------------------------------------------------===//
// Into shared memory
//===----------------------------------------------------------------------===//

void KernelEmitter::emitLocalStore(tile_gpu::LocalStoreOp op) {
  Value input = op.getTile();
  SharedBuffer tile = sharedBufferOf(op.getBuffer());
  if (hasMmaLayout(input.getType()) && MmaLayout(input).isPacked())
    return storeMma(input, tile);
  // Element by element: from the layout-conversion scratch, or computed.
  std::optional<SharedTile> from;
  if (registers.contains(input)) {
    beginLayoutConversion();
    from = hasMmaLayout(input.getType()) ? localStoreMma(input)
                                         : localStore(input);
    endLocalStores();
  }
  Type element = op.getBuffer().getType().getElementType();
  const SharedShape &shape = tile.shape;
  forPieces(shape.paddedRows() * shape.paddedCols(), shape.paddedCols(),
            [&](Value row, Value col) {
              Value inside =
                  b.both(b.less(row, shape.rows), b.less(col, shape.cols));
              Memo memo;
              Value value;
              if (from) {
                Value r = arith::MinSIOp::create(b, row, b.i32(shape.rows - 1));
                Value c = arith::MinSIOp::create(b, col, b.i32(shape.cols - 1));
                value = readShared(*from, r, c);
              } else {
                value = evaluate(input, row, col, memo);
              }
              b.store(b.select(inside, value, b.constant(element, 0)),
                      bufferElement(tile, row, col), b.i32(0));
            });
}

/// Each lane writes its pairs; 8 rows of 4 lanes cover all banks.
void KernelEmitter::storeMma(Value input, const SharedBuffer &tile) {
  MmaLayout layout(input);
  const SharedShape &shape = tile.shape;
  SmallVector<Value> values = registersOf(input);
  Value zero =
      arith::ConstantOp::create(b, b.getZeroAttr(layout.registerType()));
  auto write = [&](int64_t r, Value row, Value rowExists) {
    for (int64_t vector = 0; vector < shape.vectors(); ++vector) {
      Value value = zero;
      if (2 * vector < layout.colCount()) {
        value = values[(r * layout.colCount() + 2 * vector) / 2];
        if (!layout.hasCol(2 * vector)) {
          Value low = b.half(value, 0), high = b.half(value, 1);
          Value none = b.constant(layout.element, 0);
          value = b.vectorOfTwo(
              b.select(hasCol(layout, 2 * vector), low, none),
              b.select(hasCol(layout, 2 * vector + 1), high, none));
        }
        if (rowExists)
          value = b.select(rowExists, value, zero);
      }
      Value address = bufferAddress(tile, row, b.i32(vector));
      address = b.advance(address, b.mul(thread().pair, 2));
      b.storeVector(value, address, b.i32(0));
    }
  };
  for (int64_t r = 0; r < layout.rowCount(); ++r) {
    Value row = rowOf(layout, r);
    bool allInside = 16 * layout.warps * (r / 2 + 1) <= shape.paddedRows();
    Value rowExists = hasRow(layout, r);
    b.ifThen(allInside ? Value() : b.less(row, shape.paddedRows()),
             [&] { write(r, row, rowExists); });
  }
}

//===----------------------------------------------------------------------===//
// Into registers
//===----------------------------------------------------------------------===//

void KernelEmitter::convertToMma(ConvertOp op) {
  Value input = op.getInput();
  MmaLayout layout(op.getResult());
  SmallVector<Value> values;
  if (isShared(input.getType())) {
    SharedBuffer tile = sharedBufferOf(input);
    if (layout.isPacked() && layout.rows > 1) {
      registers[op.getResult()] = loadMma(tile, layout);
      return;
    }
    for (int64_t r = 0; r < layout.rowCount(); ++r)
      for (int64_t c = 0; c < layout.colCount(); ++c)
        values.push_back(b.load(
            bufferElement(tile, insideRow(layout, r), insideCol(layout, c)),
            b.i32(0), layout.element));
  } else if (registers.contains(input)) {
    beginLayoutConversion();
    SharedTile from = hasMmaLayout(input.getType()) ? localStoreMma(input)
                                                    : localStore(input);
    endLocalStores();
    for (int64_t r = 0; r < layout.rowCount(); ++r)
      for (int64_t c = 0; c < layout.colCount(); ++c)
        values.push_back(
            readShared(from, insideRow(layout, r), insideCol(layout, c)));
  } else {
    Memo memo;
    for (int64_t r = 0; r < layout.rowCount(); ++r)
      for (int64_t c = 0; c < layout.colCount(); ++c)
        values.push_back(mmaElement(input, layout, r, c, memo));
  }
  registers[op.getResult()] = pack(layout, values);
}

Value KernelEmitter::insideRow(const MmaLayout &layout, int64_t r) {
  Value row = rowOf(layout, r);
  return layout.hasRow(r)
             ? row
             : Value(arith::MinSIOp::create(b, row, b.i32(layout.rows - 1)));
}

Value KernelEmitter::insideCol(const MmaLayout &layout, int64_t c) {
  Value col = colOf(layout, c);
  return layout.hasCol(c)
             ? col
             : Value(arith::MinSIOp::create(b, col, b.i32(layout.cols - 1)));
}

KernelEmitter::SharedTile KernelEmitter::localStoreMma(Value tile) {
  MmaLayout layout(tile);
  SharedTile shared = allocate(layout.rows, layout.cols, layout.element);
  SmallVector<Value> elements = elementsOf(tile);
  Value first = isFirst(layout);
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    b.ifThen(b.both(hasRow(layout, r), first), [&] {
      for (int64_t c = 0; c < layout.colCount(); ++c)
        b.ifThen(hasCol(layout, c), [&] {
          writeShared(elements[r * layout.colCount() + c], shared,
                      rowOf(layout, r), colOf(layout, c));
        });
    });
  return shared;
}

void KernelEmitter::convertToBlocked(ConvertOp op) {
  Value input = op.getInput();
  if (!isShared(input.getType())) {
    beginLayoutConversion();
    SharedTile from = localStoreMma(input);
    endLocalStores();
    stillShared.try_emplace(op.getResult(), from);
    return readBack(op.getResult(), from);
  }
  SharedBuffer tile = sharedBufferOf(input);
  BlockedLayout blocked = blockedLayoutOf(op.getResult());
  SmallVector<Value> &values = registers[op.getResult()];
  Type element = cast<TileType>(op.getType()).getElementType();
  for (int64_t k = 0; k < blocked.registers(); ++k) {
    auto [row, col] = placeInside(blocked, k);
    values.push_back(b.load(bufferElement(tile, row, col), b.i32(0), element));
  }
}
