//===- Scratch.cpp - shared memory for layout conversions -----------------===//

#include "passes/TileGPU/Scratch.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/TileReader.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

static int64_t getScratchPitch(int64_t rows, int64_t cols, Type element) {
  return rows == 1 ? cols
                   : cols + std::max<int64_t>(4 / elementBytes(element), 1);
}

static int64_t getBytes(int64_t rows, int64_t cols, Type element) {
  return llvm::alignTo(
      rows * getScratchPitch(rows, cols, element) * elementBytes(element), 16);
}

static int64_t getTileBytes(Value value) {
  auto tile = cast<TileType>(value.getType());
  return getBytes(tile.getRows(), tile.getCols(), tile.getElementType());
}

/// Operands that are elements of a larger shape.
static int64_t getBroadcastBytes(ValueRange operands, Type shape) {
  if (!hasBlockedLayout(shape))
    return 0;
  RegisterLayout larger(cast<TileType>(shape));
  int64_t bytes = 0;
  for (Value operand : operands)
    if (isTile(operand) && !isVirtual(operand) &&
        !RegisterLayout(operand).hasElementsOf(larger))
      bytes += getTileBytes(operand);
  return bytes;
}

static int64_t getConvertBytes(Value input, bool isVirtualFree) {
  return isShared(input.getType()) || (isVirtualFree && isVirtual(input))
             ? 0
             : getTileBytes(input);
}

static int64_t getStoreBytes(LocalStoreOp op) {
  Value input = op.getTile();
  bool isPacked =
      hasMmaLayout(input.getType()) && RegisterLayout(input).isPacked();
  return isPacked || isVirtual(input) ? 0 : getTileBytes(input);
}

ReduceExchange::ReduceExchange(ReduceOp op) {
  bool alongRows = op.getAxis() == 1;
  RegisterLayout from(op.getInput()), to(op.getResult());
  if (from.isMma) {
    ofWarps = !alongRows && from.rows > 1 && from.warps() > 1;
    return;
  }
  bool isSame = to.threadsPerRow == from.threadsPerRow;
  if (alongRows) {
    ofWarps = from.cols > 1 && from.threadsPerRow > kWarp;
    ofResults = from.rows > 1 && !isSame;
  } else if (from.rows > 1) {
    ofWarps = from.threads > kWarp;
    ofResults = from.cols > 1 && (!isSame || to.width != from.width);
  }
}

static int64_t getReduceBytes(ReduceOp op) {
  RegisterLayout from(op.getInput());
  ReduceExchange exchange(op);
  if (!exchange.ofWarps && !exchange.ofResults)
    return 0;
  if (op.getAxis() == 0)
    return getBytes(from.warps(), from.isMma ? from.colCount() * 4 : from.cols,
                    from.element);
  return std::max(
      exchange.ofWarps ? getBytes(from.warps(), 1, from.element) : 0,
      exchange.ofResults ? getBytes(1, from.rows, from.element) : 0);
}

bool nsa::cuda::isInThreads(Value lists) {
  return RegisterLayout(lists).threadsPerRow == 1;
}

bool nsa::cuda::staysInRegisters(TopNOp op) {
  RegisterLayout best(op.getBestValues());
  return best.threadsPerRow == best.cols && best.colCount() == 1 &&
         best.cols <= kWarp && llvm::isPowerOf2_64(uint64_t(best.cols));
}

static int64_t getTopNBytes(TopNOp op) {
  int64_t bytes = getTileBytes(op.getValues());
  if (isInThreads(op.getBestValues()) || staysInRegisters(op))
    return bytes;
  return bytes + getTileBytes(op.getBestValues()) +
         getTileBytes(op.getBestIndices());
}

int64_t nsa::cuda::getScratchBytes(Operation *op) {
  if (op->getNumResults() > 0 && isRematerialized(op->getResult(0).getType()))
    return 0;
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([](LoadOp load) {
        return getBroadcastBytes(load.getIndices(), load.getType());
      })
      .Case([](StoreOp store) {
        return getBroadcastBytes(store.getIndices(),
                                 store.getValue().getType());
      })
      .Case([](MapOp map) {
        return getBroadcastBytes(map.getInputs(), map.getShapeType());
      })
      .Case([](DotOp dot) -> int64_t {
        return hasMmaLayout(dot.getType())
                   ? 0
                   : getTileBytes(dot.getA()) + getTileBytes(dot.getB());
      })
      .Case([](ConvertOp convert) {
        return getConvertBytes(convert.getInput(),
                               hasMmaLayout(convert.getType()));
      })
      .Case([](LocalStoreOp store) { return getStoreBytes(store); })
      .Case([](ReduceOp reduce) { return getReduceBytes(reduce); })
      .Case([](TransposeOp t) { return getTileBytes(t.getInput()); })
      .Case([](TopNOp top) { return getTopNBytes(top); })
      .Case([](SortOp sort) {
        return isInThreads(sort.getInput()) ? 0 : getTileBytes(sort.getInput());
      })
      .Default([](Operation *) -> int64_t { return 0; });
}

//===----------------------------------------------------------------------===//
// Layout conversions
//===----------------------------------------------------------------------===//

Scratch::Scratch(TileReader &in) : in(in) { BarrierOp::create(in.b); }

void Scratch::endStores() { BarrierOp::create(in.b); }

static ScratchTile getScratchTile(ThreadBuilder &b, int64_t offset,
                                  int64_t rows, int64_t cols, Type element) {
  return {b.advance(b.scratchBase(), b.i32(offset)),
          getScratchPitch(rows, cols, element), element};
}

ScratchTile Scratch::allocate(int64_t rows, int64_t cols, Type element) {
  ScratchTile tile = getScratchTile(in.b, used, rows, cols, element);
  used += getBytes(rows, cols, element);
  return tile;
}

ScratchTile Scratch::store(Value tile) {
  ThreadBuilder &b = in.b;
  RegisterLayout layout(tile);
  ScratchTile to = allocate(layout.rows, layout.cols, layout.element);
  SmallVector<Value> elements = in.elementsOf(tile);
  auto write = [&](int64_t r, int64_t c, Value row, Value col) {
    to.write(b, elements[r * layout.colCount() + c], row, col);
  };
  for (int64_t r = 0; r < layout.rowCount(); ++r) {
    if (layout.isMma) {
      // Threads have many elements of a row.
      b.ifThen(b.both(b.hasRow(layout, r), b.isFirst(layout)), [&] {
        for (int64_t c = 0; c < layout.colCount(); ++c)
          b.ifThen(b.hasCol(layout, c), [&] {
            write(r, c, b.rowOf(layout, r), b.colOf(layout, c));
          });
      });
      continue;
    }
    for (int64_t c = 0; c < layout.colCount(); ++c) {
      Value row = b.rowOf(layout, r), col = b.colOf(layout, c);
      b.ifThen(b.isOwner(layout, r, c), [&] { write(r, c, row, col); });
    }
  }
  return to;
}

Value ScratchTile::read(ThreadBuilder &b, Value row, Value col) const {
  return b.load(base, b.add(b.mul(row, pitch), col), element);
}

void ScratchTile::write(ThreadBuilder &b, Value value, Value row,
                        Value col) const {
  b.store(value, base, b.add(b.mul(row, pitch), col));
}

/// Whether a tile was converted to its layout in the block of its user, and the
/// scratch has not been used since.
static bool isStillShared(OpOperand &operand) {
  auto convert = operand.get().getDefiningOp<ConvertOp>();
  Operation *user = operand.getOwner();
  if (!convert || convert->getBlock() != user->getBlock() ||
      getScratchBytes(convert) == 0 || hasMmaLayout(convert.getType()))
    return false;
  for (Operation *op = convert->getNextNode(); op != user;
       op = op->getNextNode())
    if (contains(op, [](Operation *inner) { return getScratchBytes(inner); }))
      return false;
  return true;
}

ScratchTile nsa::cuda::storeInScratch(TileReader &in, Value tile) {
  Scratch scratch(in);
  ScratchTile stored = scratch.store(tile);
  scratch.endStores();
  return stored;
}

ScratchTile nsa::cuda::share(TileReader &in, OpOperand &operand) {
  Value tile = operand.get();
  if (isStillShared(operand)) {
    RegisterLayout layout(tile);
    return getScratchTile(in.b, 0, layout.rows, layout.cols, layout.element);
  }
  return storeInScratch(in, tile);
}

SmallVector<Value> nsa::cuda::readBack(ThreadBuilder &b, Value tile,
                                       const ScratchTile &from) {
  return makeElements(b, RegisterLayout(tile), [&](Value row, Value col) {
    return from.read(b, row, col);
  });
}
