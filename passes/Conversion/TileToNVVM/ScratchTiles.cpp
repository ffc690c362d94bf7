//===- ScratchTiles.cpp - layout conversions through scratch --------------===//

#include "passes/Conversion/TileToNVVM/ScratchTiles.h"
#include "passes/Conversion/TileToNVVM/BlockedTiles.h"
#include "passes/Conversion/TileToNVVM/Scratch.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using nsa::tile_gpu::BarrierOp;

Scratch::Scratch(TileReader &in) : in(in) { BarrierOp::create(in.b); }

void Scratch::endStores() { BarrierOp::create(in.b); }

static ScratchTile getScratchTile(ThreadBuilder &b, int64_t offset,
                                  int64_t rows, int64_t cols, Type element) {
  return {b.address(b.scratchBase(), b.i32(offset), b.getI8Type()),
          getScratchPitch(rows, cols, element), element};
}

ScratchTile Scratch::allocate(int64_t rows, int64_t cols, Type element) {
  ScratchTile tile = getScratchTile(in.b, used, rows, cols, element);
  used += getScratchBytes(rows, cols, element);
  return tile;
}

ScratchTile Scratch::store(Value tile) {
  auto type = cast<TileType>(tile.getType());
  ScratchTile to =
      allocate(type.getRows(), type.getCols(), type.getElementType());
  if (hasMmaLayout(type))
    storeMma(tile, to);
  else
    storeBlocked(tile, to);
  return to;
}

void Scratch::storeBlocked(Value tile, const ScratchTile &to) {
  ThreadBuilder &b = in.b;
  BlockedLayout blocked = blockedLayoutOf(tile);
  for (auto [k, value] : llvm::enumerate(in.registersOf(tile))) {
    auto [row, col] = placeOf(b, blocked, int64_t(k));
    b.ifThen(isOwner(b, blocked, int64_t(k)),
             [&, row = row, col = col, value = value] {
               writeScratch(b, value, to, row, col);
             });
  }
}

void Scratch::storeMma(Value tile, const ScratchTile &to) {
  ThreadBuilder &b = in.b;
  MmaLayout layout(tile);
  SmallVector<Value> elements = in.elementsOf(tile);
  Value first = b.isFirst(layout);
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    b.ifThen(b.both(b.hasRow(layout, r), first), [&] {
      for (int64_t c = 0; c < layout.colCount(); ++c)
        b.ifThen(b.hasCol(layout, c), [&] {
          writeScratch(b, elements[r * layout.colCount() + c], to,
                       b.rowOf(layout, r), b.colOf(layout, c));
        });
    });
}

Value nsa::cuda::readScratch(ThreadBuilder &b, const ScratchTile &tile,
                             Value row, Value col) {
  return b.load(tile.base, b.add(b.mul(row, tile.pitch), col), tile.element);
}

void nsa::cuda::writeScratch(ThreadBuilder &b, Value value,
                             const ScratchTile &tile, Value row, Value col) {
  b.store(value, tile.base, b.add(b.mul(row, tile.pitch), col));
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
  auto type = cast<TileType>(tile.getType());
  if (isStillShared(operand))
    return getScratchTile(in.b, 0, type.getRows(), type.getCols(),
                          type.getElementType());
  return storeInScratch(in, tile);
}

SmallVector<Value> nsa::cuda::readBack(ThreadBuilder &b, Value tile,
                                       const ScratchTile &from) {
  return makeRegisters(b, blockedLayoutOf(tile), [&](Value row, Value col) {
    return readScratch(b, from, row, col);
  });
}
