//===- EmitMemory.cpp - loads and stores of registers ---------------------===//

#include "passes/Conversion/TileToNVVM/AccessWidth.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

/// Whether every coordinate of an index is inside. A piece whose length divides
/// the extent and the number where it begins is inside if it begins there.
bool KernelEmitter::isInside(Value index, const Extent &extent) {
  if (bounds.isInside(index, extent))
    return true;
  auto range = index.getDefiningOp<RangeOp>();
  if (!extent.isConstant() || !range || range.getStep() != 1)
    return false;
  int64_t length = range.getType().getNumElements();
  return llvm::isPowerOf2_64(length) && int64_t(extent) % length == 0 &&
         getDivisor(range.getStart(), length) == length &&
         bounds.isInside(range.getStart(), extent);
}

/// Coordinates that are null are left out.
KernelEmitter::Address KernelEmitter::addressOf(Value ref, ValueRange operands,
                                                ValueRange coordinates) {
  auto type = cast<MemRefType>(ref.getType());
  // Where it starts is part of the pointer that the launch passes.
  SmallVector<Extent> shape = bounds.getExtents().getShape(type),
                      strides = bounds.getExtents().getStrides(type);
  int64_t last = 0;
  for (auto [extent, stride] : llvm::zip_equal(shape, strides))
    last += std::max<int64_t>(int64_t(extent) - 1, 0) * int64_t(stride);
  bool wide = last > INT32_MAX || bounds.getExtents().isNeededBy(type);

  Address address;
  for (auto [operand, coordinate, extent, stride] :
       llvm::zip_equal(operands, coordinates, shape, strides)) {
    if (!coordinate)
      continue;
    if (!isInside(operand, extent))
      address.valid = b.both(address.valid, b.inside(coordinate, extent));
    Value term = coordinate;
    if (wide)
      term = arith::ExtSIOp::create(b, b.getI64Type(), term);
    term = b.mul(term, stride);
    address.offset = address.offset ? b.add(address.offset, term) : term;
  }
  if (!address.offset)
    address.offset = wide ? b.i64(0) : b.i32(0);
  return address;
}

KernelEmitter::Address KernelEmitter::both(const Address &lhs,
                                           const Address &rhs) {
  return {b.add(lhs.offset, rhs.offset), b.both(lhs.valid, rhs.valid)};
}

/// Reads element 0 instead of one outside: every tensor has that.
Value KernelEmitter::loadElement(Value ref, const Address &address) {
  auto type = cast<MemRefType>(ref.getType());
  Type element = type.getElementType();
  Value zero = b.constant(element, 0);
  if (type.getNumElements() == 0)
    return zero;
  if (!address.valid)
    return b.load(scalar(ref), address.offset, element);
  Value offset = b.select(address.valid, address.offset,
                          b.constant(address.offset.getType(), 0));
  return b.select(address.valid, b.load(scalar(ref), offset, element), zero);
}

SmallVector<Value>
KernelEmitter::loadTogether(Value ref, const Address &address, int64_t count) {
  if (count == 1)
    return {loadElement(ref, address)};
  auto type = cast<MemRefType>(ref.getType());
  Type element = type.getElementType();
  if (type.getNumElements() == 0)
    return SmallVector<Value>(count, b.constant(element, 0));
  Value vector;
  if (!address.valid) {
    vector = b.loadVector(scalar(ref), address.offset, element, count);
  } else {
    Value offset = b.select(address.valid, address.offset,
                            b.constant(address.offset.getType(), 0));
    vector = b.loadVector(scalar(ref), offset, element, count);
    TypedAttr zeros = b.getZeroAttr(vector.getType());
    vector =
        b.select(address.valid, vector, arith::ConstantOp::create(b, zeros));
  }
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(LLVM::ExtractElementOp::create(b, vector, b.i32(i)));
  return values;
}

void KernelEmitter::storeTogether(ValueRange values, Value ref,
                                  const Address &address) {
  if (values.size() == 1)
    return b.store(values[0], scalar(ref), address.offset);
  auto type = VectorType::get({static_cast<int64_t>(values.size())},
                              values[0].getType());
  Value vector = LLVM::PoisonOp::create(b, type);
  for (auto [i, value] : llvm::enumerate(values))
    vector = LLVM::InsertElementOp::create(b, vector, value, b.i32(i));
  b.storeVector(vector, scalar(ref), address.offset);
}

KernelEmitter::Address KernelEmitter::addressAt(Value ref, ValueRange indices,
                                                ArrayRef<Source> sources,
                                                const BlockedLayout &blocked,
                                                int64_t k) {
  auto [row, col] = placeInside(blocked, k);
  SmallVector<Value> coordinates;
  for (const Source &source : sources)
    coordinates.push_back(element(source, k, row, col));
  return addressOf(ref, indices, coordinates);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void KernelEmitter::emitLoad(LoadOp op) {
  auto shape = dyn_cast<TileType>(op.getType());
  if (!shape) {
    SmallVector<Value> coordinates = flatten(op.getIndices());
    scalars.map(op.getResult(),
                loadElement(op.getRef(), addressOf(op.getRef(), op.getIndices(),
                                                   coordinates)));
    return;
  }
  SmallVector<Source> sources = prepare(op.getIndices(), shape);
  BlockedLayout blocked = blockedLayoutOf(shape);
  int64_t step = getAccessWidth(op.getRef(), op.getIndices(), blocked.width);
  SmallVector<Value> values;
  for (int64_t k = 0; k < blocked.registers(); k += step) {
    Address address =
        addressAt(op.getRef(), op.getIndices(), sources, blocked, k);
    // Threads beyond the tile have coordinates that nobody vouches for.
    address.valid = b.both(address.valid, isElement(blocked, k));
    llvm::append_range(values, loadTogether(op.getRef(), address, step));
  }
  registers[op.getResult()] = std::move(values);
}

void KernelEmitter::emitStore(StoreOp op) {
  auto type = cast<MemRefType>(op.getRef().getType());
  if (type.getNumElements() == 0)
    return;
  auto shape = dyn_cast<TileType>(op.getValue().getType());
  if (!shape) {
    SmallVector<Value> coordinates = flatten(op.getIndices());
    Address address = addressOf(op.getRef(), op.getIndices(), coordinates);
    Value first =
        arith::CmpIOp::create(b, arith::CmpIPredicate::eq, tid, b.i32(0));
    b.ifThen(b.both(first, address.valid), [&] {
      b.store(scalar(op.getValue()), scalar(op.getRef()), address.offset);
    });
    return;
  }
  SmallVector<Value> values = registersOf(op.getValue());
  SmallVector<Source> sources = prepare(op.getIndices(), shape);
  BlockedLayout blocked = blockedLayoutOf(shape);
  int64_t step = getAccessWidth(op.getRef(), op.getIndices(), blocked.width);
  for (int64_t k = 0; k < blocked.registers(); k += step) {
    Address address =
        addressAt(op.getRef(), op.getIndices(), sources, blocked, k);
    b.ifThen(b.both(address.valid, isOwner(blocked, k)), [&] {
      storeTogether(ValueRange(values).slice(k, step), op.getRef(), address);
    });
  }
}
