//===- EmitLines.cpp - rows and columns in shared memory ------------------===//
//
// Rows and columns of 32-bit elements that a loop copies ahead.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

Value KernelEmitter::stagedAddress(const StagedVector &line, Value bytes) {
  Value start = b.advance(b.advance(sharedBase, line.stage), bytes);
  return b.advance(start, line.offset);
}

/// Where a line lies that has been copied.
KernelEmitter::StagedVector KernelEmitter::stagedVectorOf(Value line) {
  auto read = line.getDefiningOp<tile_gpu::LocalLoadOp>();
  return {getOffset(read.getBuffer()), scalar(read.getStage())};
}

/// The elements that a line has in MMA tiles: those of the tile that is loaded.
static MmaLayout getLineLayout(Value buffer) {
  for (Operation *user : buffer.getUsers())
    if (auto read = dyn_cast<tile_gpu::LocalLoadOp>(user))
      return MmaLayout(read.getTile());
  llvm_unreachable("a line that nothing loads");
}

/// Copies a line by 4 or 16 bytes, zeros for elements outside.
void KernelEmitter::copyLine(tile_gpu::AsyncCopyOp op) {
  MmaLayout layout = getLineLayout(op.getBuffer());
  StagedVector line{getOffset(op.getBuffer()), scalar(op.getStage())};
  bool isRow = layout.rows == 1;
  int64_t length = isRow ? layout.cols : layout.rows;
  int64_t padded = layout.lineLength();
  auto width = int64_t(op.getWidth());
  auto copy = [&](Value, Value piece) {
    Memo memo;
    Value place = b.mul(piece, width);
    SmallVector<Value> coordinates;
    for (Value index : op.getIndices())
      coordinates.push_back(isRow ? evaluate(index, b.i32(0), place, memo)
                                  : evaluate(index, place, b.i32(0), memo));
    Address address = addressOf(op.getRef(), op.getIndices(), coordinates);
    if (length != padded)
      address.valid = b.both(address.valid, b.less(place, length));
    Value size;
    if (address.valid)
      size = b.select(address.valid, b.i32(4 * width), b.i32(0));
    NVVM::CpAsyncOp::create(
        b, stagedAddress(line, b.mul(piece, 4 * width)),
        b.address(scalar(op.getRef()), address.offset, layout.element),
        uint32_t(4 * width),
        width == 4 ? NVVM::LoadCacheModifierKind::CG
                   : NVVM::LoadCacheModifierKind::CA,
        size);
  };
  int64_t pieces = padded / width;
  forPieces(pieces, pieces, copy);
}

/// A line that was copied, as the threads hold it: a column now, a row where it
/// is used.
void KernelEmitter::readLine(Value line) {
  MmaLayout layout(line);
  if (layout.rows == 1) {
    deferred.insert(line);
    return;
  }
  SmallVector<Value> values;
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    values.push_back(
        b.load(stagedAddress(stagedVectorOf(line), b.mul(rowOf(layout, r), 4)),
               b.i32(0), layout.element));
  registers[line] = std::move(values);
}

/// Columns `2 * pair` and the next of a row that was copied.
Value KernelEmitter::loadLinePair(Value line, int64_t pair) {
  Value first = stagedAddress(stagedVectorOf(line), b.mul(thread().pair, 4));
  return b.loadVector(b.advance(first, 4 * 8 * pair), b.i32(0),
                      MmaLayout(line).element, 2);
}
