//===- EmitMemory.cpp - tiles from and to memory --------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/TileToCPU/CpuEmitter.h"

using namespace mlir;
using namespace nsa::cpu;
using namespace nsa::tile;

/// Both coordinates of an outer position and the first inner position.
static std::pair<Value, Value> rowStart(VectorBuilder &b, TileType type,
                                        Value outer) {
  Value zero = b.i64(0);
  if (innerAxis(type) == 0)
    return {zero, outer};
  return {outer, zero};
}

CpuEmitter::RowAddress CpuEmitter::rowAddress(const Access &access,
                                              Value outer) {
  auto [row, col] = rowStart(b, access.type, outer);
  RowAddress address;
  address.offset = b.i64(0);
  for (auto [d, index] : llvm::enumerate(access.indices)) {
    Value place = coordinate(index, row, col);
    address.offset =
        b.add(address.offset, multiply(b.toI64(place), access.strides[d]));
    if (access.proven[d])
      continue;
    if (static_cast<int>(d) == access.innerDim) {
      address.start = place;
      address.extent = access.extents[d];
    } else {
      address.valid =
          b.logicalAnd(address.valid, isInside(place, access.extents[d]));
    }
  }
  return address;
}

/// The address of a scalar, and whether it is inside (null if that is known).
std::pair<Value, Value> CpuEmitter::scalarPlace(Value ref, ValueRange indices) {
  auto type = cast<MemRefType>(ref.getType());
  Value offset = b.i64(0), valid;
  const ExtentTable &table = bounds.getExtents();
  for (auto [index, extent, stride] :
       llvm::zip(indices, table.getShape(type), table.getStrides(type))) {
    Value place = scalar(index);
    offset = b.add(offset, multiply(b.toI64(place), stride));
    if (!bounds.isInside(index, extent))
      valid = b.logicalAnd(valid, isInside(place, extent));
  }
  return {offset, valid};
}

void CpuEmitter::emitLoad(LoadOp op) {
  Type type = op.getResult().getType();
  if (!isa<TileType>(type)) {
    auto [offset, valid] = scalarPlace(op.getRef(), op.getIndices());
    scalars.map(op.getResult(),
                b.load(scalar(op.getRef()), offset, type, 1, valid));
    return;
  }
  if (op->use_empty())
    return;
  const Access &access = fusion.getAccess(op);
  if (access.contiguous) {
    estimateRows(op, access.type);
    return emitRows(access, bufferOf(op.getResult()), /*isLoad=*/true);
  }
  if (access.ofPairs >= 0)
    return emitPairs(access, bufferOf(op.getResult()));
  estimateElements(op, access.type);
  emitElements(access, op.getResult(), /*isLoad=*/true);
}

void CpuEmitter::emitStore(StoreOp op) {
  Type type = op.getValue().getType();
  if (!isa<TileType>(type)) {
    auto [offset, valid] = scalarPlace(op.getRef(), op.getIndices());
    return b.store(scalar(op.getValue()), scalar(op.getRef()), offset, type,
                   valid);
  }
  const Access &access = fusion.getAccess(op);
  if (access.contiguous && hasBuffer(op.getValue())) {
    estimateRows(op, access.type);
    return emitRows(access, bufferOf(op.getValue()), /*isLoad=*/false);
  }
  estimateElements(op, access.type);
  emitElements(access, op.getValue(), /*isLoad=*/false);
}

//===----------------------------------------------------------------------===//
// One element of each pair
//===----------------------------------------------------------------------===//

void CpuEmitter::emitPairs(const Access &access, const Buffer &buffer) {
  bool column = innerAxis(access.type) == 0;
  int64_t inner = column ? access.type.getRows() : access.type.getCols();
  int64_t outerExtent = column ? 1 : access.type.getRows();
  unsigned lanes = lanesFor(inner, width);
  Type element = memoryType(buffer.layout.elementType);
  Value memory = scalar(access.ref);
  work.addVectors(access.type.getNumElements(), 2 * kAccessCost, lanes);
  b.loop(outerExtent, 1, [&](Value outer) {
    RowAddress address = rowAddress(access, outer);
    Value first = b.mul(outer, buffer.layout.rowStride);
    b.loop(inner, lanes, [&](Value i) {
      Value there = b.add(address.offset, b.mul(i, 2));
      b.store(b.loadOfPairs(memory, there, element, lanes, access.ofPairs == 1),
              buffer.base, b.add(first, i), element);
    });
  });
}

//===----------------------------------------------------------------------===//
// Rows of neighbours
//===----------------------------------------------------------------------===//

/// Whether the elements of a row after its whole vectors move under a mask,
/// which exists for elements of 4 bytes; a mask also clears the padding.
static bool masksRest(int64_t inner, unsigned lanes, Type element) {
  return inner % lanes != 0 && memoryBytes(element) == 4;
}

/// The cost of emitRows where all coordinates are inside.
void CpuEmitter::estimateRows(Operation *op, TileType type) {
  bool column = innerAxis(type) == 0;
  double rows = column ? 1 : type.getRows();
  int64_t inner = column ? type.getRows() : type.getCols();
  unsigned lanes = lanesFor(inner, width);
  bool masks = masksRest(inner, lanes, type.getElementType());
  int64_t whole = masks ? roundUp(inner, lanes) : inner / lanes * lanes;
  work.addVectors(rows * whole, kAccessCost, lanes);
  if (whole < inner)
    work.addScalars(PerformanceLint::ScalarAccess, op, rows * (inner - whole),
                    1);
}

/// The cost of emitElements.
void CpuEmitter::estimateElements(Operation *op, TileType type) {
  work.addScalars(PerformanceLint::ScalarAccess, op, type.getNumElements(), 3);
}

void CpuEmitter::emitRows(const Access &access, const Buffer &buffer,
                          bool isLoad) {
  bool column = innerAxis(access.type) == 0;
  int64_t inner = column ? access.type.getRows() : access.type.getCols();
  int64_t outerExtent = column ? 1 : access.type.getRows();
  b.loop(outerExtent, 1, [&](Value outer) {
    RowAddress address = rowAddress(access, outer);
    auto copy = [&] { copyRow(access, address, buffer, outer, inner, isLoad); };
    if (!address.valid)
      return copy();
    b.ifThen(
        address.valid, copy, !isLoad ? llvm::function_ref<void()>() : [&] {
          unsigned lanes = lanesFor(inner, width);
          Type element = buffer.layout.elementType;
          Value zero = b.constant(memoryType(element), 0, lanes);
          Value first = b.mul(outer, buffer.layout.rowStride);
          b.loop(roundUp(inner, lanes), lanes, [&](Value i) {
            b.store(zero, buffer.base, b.add(first, i), memoryType(element));
          });
        });
  });
}

/// Copies the elements of one row whose inner coordinate is inside; a load sets
/// the others to zero.
void CpuEmitter::copyRow(const Access &access, const RowAddress &address,
                         const Buffer &buffer, Value outer, int64_t inner,
                         bool isLoad) {
  Type element = memoryType(buffer.layout.elementType);
  Value memory = scalar(access.ref);
  Value first = b.mul(outer, buffer.layout.rowStride);
  auto move = [&](Value i, unsigned lanes, Value mask = {}) {
    Value there = b.add(address.offset, i), here = b.add(first, i);
    if (isLoad)
      b.store(b.load(memory, there, element, lanes, mask), buffer.base, here,
              element);
    else
      b.store(b.load(buffer.base, here, element, lanes), memory, there, element,
              mask);
  };
  unsigned lanes = lanesFor(inner, width);
  auto moveAll = [&] {
    int64_t whole = inner / lanes * lanes;
    b.loop(whole, lanes, [&](Value i) { move(i, lanes); });
    if (masksRest(inner, lanes, element))
      return move(b.i64(whole), lanes, b.firstLanes(inner - whole, lanes));
    // Padding may hold anything, but arithmetic on what happens to be a
    // subnormal number costs a hundred cycles and more.
    if (isLoad && whole < inner)
      b.store(b.constant(element, 0, lanes), buffer.base, b.add(first, whole),
              element);
    b.loop(inner, 1, [&](Value i) { move(i, 1); }, whole);
  };
  if (!address.start)
    return moveAll();
  auto clamp = [&](Value value) {
    Value low = arith::MaxSIOp::create(b, value, b.i64(0));
    return arith::MinSIOp::create(b, low, b.i64(inner));
  };
  Value start = b.toI64(address.start);
  Value begin = clamp(arith::SubIOp::create(b, b.i64(0), start));
  Value end = clamp(arith::SubIOp::create(b, size(address.extent), start));
  Value count = arith::SubIOp::create(b, end, begin);
  Value isWhole =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, count, b.i64(inner));
  b.ifThen(isWhole, moveAll, [&] {
    if (isLoad) {
      Value zero = b.constant(element, 0, lanes);
      b.loop(roundUp(inner, lanes), lanes, [&](Value i) {
        b.store(zero, buffer.base, b.add(first, i), element);
      });
    }
    b.loop(begin, end, 1, ValueRange(),
           [&](Value i, ValueRange) -> SmallVector<Value> {
             move(i, 1);
             return {};
           });
  });
}

//===----------------------------------------------------------------------===//
// Elements anywhere
//===----------------------------------------------------------------------===//

/// The elements one by one, each with its own address and check.
void CpuEmitter::emitElements(const Access &access, Value tile, bool isLoad) {
  Value memory = scalar(access.ref);
  TileLayout layout = layoutOf(tile);
  Type element = memoryType(layout.elementType);
  auto visit = [&](Value row, Value col) {
    Value there = b.i64(0), valid;
    for (auto [d, index] : llvm::enumerate(access.indices)) {
      Value place = coordinate(index, row, col);
      there = b.add(there, multiply(b.toI64(place), access.strides[d]));
      if (!access.proven[d])
        valid = b.logicalAnd(valid, isInside(place, access.extents[d]));
    }
    Value here = b.add(b.mul(row, layout.rowStride), col);
    if (isLoad)
      return b.store(b.load(memory, there, element, 1, valid),
                     bufferOf(tile).base, here, element);
    Value value = splatScalar(tile);
    if (!value && tile.getDefiningOp<RangeOp>())
      value = coordinate(tile, row, col);
    if (!value)
      value = b.load(bufferOf(tile).base, here, element, 1);
    b.store(value, memory, there, element, valid);
  };
  b.loop(layout.rows, 1, [&](Value row) {
    b.loop(layout.cols, 1, [&](Value col) { visit(row, col); });
  });
}
