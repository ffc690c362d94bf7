//===- LayoutPatterns.cpp - elements from one layout to another -----------===//

#include "passes/TileGPU/Scratch.h"
#include "passes/TileGPUToNVVM/Patterns.h"
#include "passes/TileGPUToNVVM/SharedBuffers.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Into shared memory
//===----------------------------------------------------------------------===//

/// Each lane writes its pairs; 8 rows of 4 lanes cover all banks.
static void storeMma(TileReader &in, Value input, const SharedBuffer &tile) {
  ThreadBuilder &b = in.b;
  RegisterLayout layout(input);
  const SharedShape &shape = tile.shape;
  SmallVector<Value> values = in.registersOf(input);
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
          value = b.vectorOf(
              {b.select(b.hasCol(layout, 2 * vector), low, none),
               b.select(b.hasCol(layout, 2 * vector + 1), high, none)});
        }
        if (rowExists)
          value = b.select(rowExists, value, zero);
      }
      Value address = bufferAddress(b, tile, row, b.i32(vector));
      address = b.advance(address, b.mul(b.place().pair, 2));
      b.store(value, address, b.i32(0));
    }
  };
  for (int64_t r = 0; r < layout.rowCount(); ++r) {
    Value row = b.rowOf(layout, r);
    bool allInside = 16 * layout.warps() * (r / 2 + 1) <= shape.paddedRows();
    Value rowExists = b.hasRow(layout, r);
    b.ifThen(allInside ? Value() : b.less(row, shape.paddedRows()),
             [&] { write(r, row, rowExists); });
  }
}

static Results lowerLocalStore(tile_gpu::LocalStoreOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  Value input = op.getTile();
  SharedBuffer tile = sharedBufferOf(in, op.getBuffer());
  if (hasMmaLayout(input.getType()) && RegisterLayout(input).isPacked()) {
    storeMma(in, input, tile);
    return {};
  }
  // Element by element: from the layout-conversion scratch, or computed.
  std::optional<ScratchTile> from;
  if (hasRegisters(input))
    from = storeInScratch(in, input);
  Type element = op.getBuffer().getType().getElementType();
  const SharedShape &shape = tile.shape;
  forPieces(b, shape.paddedRows() * shape.paddedCols(), shape.paddedCols(),
            [&](Value row, Value col) {
              Value inside =
                  b.both(b.less(row, shape.rows), b.less(col, shape.cols));
              Memo memo;
              Value value;
              if (from)
                value = from->read(b, b.clamp(row, shape.rows),
                                   b.clamp(col, shape.cols));
              else
                value = in.evaluate(input, row, col, memo);
              b.store(b.select(inside, value, b.constant(element, 0)),
                      bufferElement(b, tile, row, col), b.i32(0));
            });
  return {};
}

//===----------------------------------------------------------------------===//
// Into registers
//===----------------------------------------------------------------------===//

/// A tile in registers of the MMA layout.
static SmallVector<Value> loadMma(ThreadBuilder &b, const SharedBuffer &tile,
                                  const RegisterLayout &layout) {
  SmallVector<Value> values(layout.registers());
  int64_t perRow = layout.colCount() / 2;
  for (int64_t s = 0; s < layout.mTiles(); ++s) {
    Value start = mTileByte(b, tile.shape, layout.warps(), s);
    for (int64_t vector = 0; vector < perRow; vector += 2) {
      SmallVector<Value> matrices =
          loadMatrices(b, tile, MatrixOrder::RowsFirst, /*transpose=*/false, 0,
                       vector, start);
      for (int64_t i = 0; i < 4; ++i)
        if (vector + i / 2 < perRow)
          values[(2 * s + i % 2) * perRow + vector + i / 2] =
              b.bitcast(matrices[i], layout.registerType());
    }
  }
  return values;
}

static Results lowerConvert(ConvertOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  Value input = op.getInput();
  RegisterLayout layout(op.getResult());
  if (layout.isMma && !isShared(input.getType()) && !hasRegisters(input))
    return {pack(b, layout, in.elementsOf(input, layout))};
  if (!isShared(input.getType())) {
    ScratchTile from = storeInScratch(in, input);
    return {pack(b, layout, readBack(b, op.getResult(), from))};
  }
  SharedBuffer tile = sharedBufferOf(in, input);
  if (layout.isPacked() && layout.rows > 1)
    return {loadMma(b, tile, layout)};
  auto load = [&](Value row, Value col) {
    return b.load(bufferElement(b, tile, row, col), b.i32(0), layout.element);
  };
  return {pack(b, layout, makeElements(b, layout, load))};
}

static Results lowerTranspose(TransposeOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  ScratchTile from = storeInScratch(in, op.getInput());
  return {makeElements(
      b, RegisterLayout(op.getResult()),
      [&](Value row, Value col) { return from.read(b, col, row); })};
}

void nsa::cuda::populateLayoutPatterns(TilePatterns &patterns) {
  patterns.add(lowerLocalStore, lowerConvert, lowerTranspose);
}
