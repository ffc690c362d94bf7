//===- EmitConvert.cpp - elements from one layout to another --------------===//

#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

void KernelEmitter::emitConvert(ConvertOp op) {
  if (op.getInput().getType() == op.getType()) {
    if (isShared(op.getType()))
      residents.try_emplace(op.getResult(), residents.at(op.getInput()));
    else
      registers[op.getResult()] = registersOf(op.getInput());
    return;
  }
  if (isShared(op.getType()))
    return convertToShared(op);
  if (isFragment(op.getType()))
    return convertToFragment(op);
  convertToSpread(op);
}

//===----------------------------------------------------------------------===//
// Into shared memory
//===----------------------------------------------------------------------===//

void KernelEmitter::convertToShared(ConvertOp op) {
  if (op->use_empty())
    return;
  Value input = op.getInput();
  Resident tile = makeResident(op.getResult());
  markShared(op.getResult(), tile_gpu::SharedAccessKind::Write);
  if (isFragment(input.getType()) && Fragment(input).isPacked())
    return storeFragment(input, tile);
  // Element by element: from an exchange area, or computed.
  std::optional<SharedTile> from;
  if (registers.contains(input)) {
    beginExchange();
    from =
        isFragment(input.getType()) ? publishFragment(input) : publish(input);
    endPublishing();
    // Behind the barriers of the exchange.
    markShared(op.getResult(), tile_gpu::SharedAccessKind::Write);
  }
  Type element = cast<TileType>(op.getType()).getElementType();
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
                      residentElement(tile, row, col), b.i32(0));
            });
}

/// Each lane writes its pairs; 8 rows of 4 lanes cover all banks.
void KernelEmitter::storeFragment(Value input, const Resident &tile) {
  Fragment fragment(input);
  const SharedShape &shape = tile.shape;
  SmallVector<Value> values = registersOf(input);
  Value zero =
      arith::ConstantOp::create(b, b.getZeroAttr(fragment.registerType()));
  auto write = [&](int64_t r, Value row, Value rowExists) {
    for (int64_t chunk = 0; chunk < shape.chunks(); ++chunk) {
      Value value = zero;
      if (2 * chunk < fragment.colCount()) {
        value = values[(r * fragment.colCount() + 2 * chunk) / 2];
        if (!fragment.hasCol(2 * chunk)) {
          Value low = b.half(value, 0), high = b.half(value, 1);
          Value none = b.constant(fragment.element, 0);
          value = b.vectorOfTwo(
              b.select(hasCol(fragment, 2 * chunk), low, none),
              b.select(hasCol(fragment, 2 * chunk + 1), high, none));
        }
        if (rowExists)
          value = b.select(rowExists, value, zero);
      }
      Value address = residentAddress(tile, row, b.i32(chunk));
      address = b.advance(address, b.mul(thread().pair, 2));
      b.storeVector(value, address, b.i32(0));
    }
  };
  for (int64_t r = 0; r < fragment.rowCount(); ++r) {
    Value row = rowOf(fragment, r);
    bool allInside = 16 * fragment.warps * (r / 2 + 1) <= shape.paddedRows();
    Value rowExists = hasRow(fragment, r);
    b.ifThen(allInside ? Value() : b.less(row, shape.paddedRows()),
             [&] { write(r, row, rowExists); });
  }
}

//===----------------------------------------------------------------------===//
// Into registers
//===----------------------------------------------------------------------===//

void KernelEmitter::convertToFragment(ConvertOp op) {
  Value input = op.getInput();
  Fragment fragment(op.getResult());
  SmallVector<Value> values;
  if (isShared(input.getType())) {
    markShared(input, tile_gpu::SharedAccessKind::Read);
    Resident tile = residents.at(input);
    if (fragment.isPacked() && fragment.rows > 1) {
      registers[op.getResult()] = loadFragment(tile, fragment);
      return;
    }
    for (int64_t r = 0; r < fragment.rowCount(); ++r)
      for (int64_t c = 0; c < fragment.colCount(); ++c)
        values.push_back(b.load(residentElement(tile, insideRow(fragment, r),
                                                insideCol(fragment, c)),
                                b.i32(0), fragment.element));
  } else if (registers.contains(input)) {
    beginExchange();
    SharedTile from =
        isFragment(input.getType()) ? publishFragment(input) : publish(input);
    endPublishing();
    for (int64_t r = 0; r < fragment.rowCount(); ++r)
      for (int64_t c = 0; c < fragment.colCount(); ++c)
        values.push_back(
            readShared(from, insideRow(fragment, r), insideCol(fragment, c)));
  } else {
    Memo memo;
    for (int64_t r = 0; r < fragment.rowCount(); ++r)
      for (int64_t c = 0; c < fragment.colCount(); ++c)
        values.push_back(fragmentElement(input, fragment, r, c, memo));
  }
  registers[op.getResult()] = pack(fragment, values);
}

Value KernelEmitter::insideRow(const Fragment &fragment, int64_t r) {
  Value row = rowOf(fragment, r);
  return fragment.hasRow(r)
             ? row
             : Value(arith::MinSIOp::create(b, row, b.i32(fragment.rows - 1)));
}

Value KernelEmitter::insideCol(const Fragment &fragment, int64_t c) {
  Value col = colOf(fragment, c);
  return fragment.hasCol(c)
             ? col
             : Value(arith::MinSIOp::create(b, col, b.i32(fragment.cols - 1)));
}

KernelEmitter::SharedTile KernelEmitter::publishFragment(Value tile) {
  Fragment fragment(tile);
  SharedTile shared = allocate(fragment.rows, fragment.cols, fragment.element);
  SmallVector<Value> elements = elementsOf(tile);
  Value first = isFirst(fragment);
  for (int64_t r = 0; r < fragment.rowCount(); ++r)
    b.ifThen(b.both(hasRow(fragment, r), first), [&] {
      for (int64_t c = 0; c < fragment.colCount(); ++c)
        b.ifThen(hasCol(fragment, c), [&] {
          writeShared(elements[r * fragment.colCount() + c], shared,
                      rowOf(fragment, r), colOf(fragment, c));
        });
    });
  return shared;
}

void KernelEmitter::convertToSpread(ConvertOp op) {
  Value input = op.getInput();
  if (!isShared(input.getType())) {
    beginExchange();
    SharedTile from = publishFragment(input);
    endPublishing();
    stillShared.try_emplace(op.getResult(), from);
    return readBack(op.getResult(), from);
  }
  markShared(input, tile_gpu::SharedAccessKind::Read);
  Resident tile = residents.at(input);
  Spread spread = spreadOf(op.getResult());
  SmallVector<Value> &values = registers[op.getResult()];
  Type element = cast<TileType>(op.getType()).getElementType();
  for (int64_t k = 0; k < spread.registers(); ++k) {
    auto [row, col] = placeInside(spread, k);
    values.push_back(
        b.load(residentElement(tile, row, col), b.i32(0), element));
  }
}
