//===- GlobalMemory.cpp - addresses and accesses of threads ---------------===//

#include "passes/Conversion/TileToNVVM/GlobalMemory.h"
#include "passes/Conversion/TileToNVVM/AccessWidth.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

/// Whether every coordinate of an index is inside. A piece whose length divides
/// the extent and the number where it begins is inside if it begins there.
bool nsa::cuda::isInside(TileBounds &bounds, Value index,
                         const Extent &extent) {
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

Address nsa::cuda::addressOf(TileReader &in, Value ref, ValueRange indices,
                             ValueRange coordinates) {
  ThreadBuilder &b = in.b;
  const ExtentTable &extents = in.bounds.getExtents();
  auto type = cast<MemRefType>(ref.getType());
  // Where it starts is part of the pointer that the launch passes.
  SmallVector<Extent> shape = extents.getShape(type),
                      strides = extents.getStrides(type);
  int64_t last = 0;
  for (auto [extent, stride] : llvm::zip_equal(shape, strides))
    last += std::max<int64_t>(int64_t(extent) - 1, 0) * int64_t(stride);
  bool wide = last > INT32_MAX || extents.isNeededBy(type);

  Address address;
  for (auto [index, coordinate, extent, stride] :
       llvm::zip_equal(indices, coordinates, shape, strides)) {
    if (!coordinate)
      continue;
    if (!isInside(in.bounds, index, extent))
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

Address nsa::cuda::both(ThreadBuilder &b, const Address &lhs,
                        const Address &rhs) {
  return {b.add(lhs.offset, rhs.offset), b.both(lhs.valid, rhs.valid)};
}

Value nsa::cuda::loadFrom(TileReader &in, Value ref, const Address &address,
                          int64_t count) {
  ThreadBuilder &b = in.b;
  auto type = cast<MemRefType>(ref.getType());
  Type element = type.getElementType();
  Type loaded = count == 1 ? element : VectorType::get({count}, element);
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(loaded));
  if (type.getNumElements() == 0)
    return zero;
  auto load = [&](Value offset) {
    return count == 1 ? b.load(in.scalar(ref), offset, element)
                      : b.loadVector(in.scalar(ref), offset, element, count);
  };
  if (!address.valid)
    return load(address.offset);
  Value offset = b.select(address.valid, address.offset,
                          b.constant(address.offset.getType(), 0));
  return b.select(address.valid, load(offset), zero);
}
