//===- EmitFragmentMemory.cpp - loads and stores of fragments -------------===//

#include "passes/Conversion/TileToNVVM/AccessWidth.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// Whether an index changes along an axis of the access.
static bool varies(Value index, unsigned axis) {
  auto type = dyn_cast<TileType>(index.getType());
  return type && (axis == 0 ? type.getRows() : type.getCols()) > 1;
}

KernelEmitter::Addresses KernelEmitter::addressesOf(Value ref,
                                                    ValueRange indices,
                                                    const Fragment &fragment) {
  Memo memo;
  // The part of an address that the indices chosen by `filter` make.
  auto part = [&](int64_t r, int64_t c, function_ref<bool(Value)> filter) {
    SmallVector<Value> coordinates;
    for (Value index : indices)
      coordinates.push_back(filter(index)
                                ? fragmentElement(index, fragment, r, c, memo)
                                : Value());
    return addressOf(ref, indices, coordinates);
  };
  Addresses addresses;
  for (int64_t r = 0; r < fragment.rowCount(); ++r) {
    addresses.rows.push_back(
        part(r, 0, [](Value index) { return !varies(index, 1); }));
    Address &row = addresses.rows.back();
    row.valid = b.both(row.valid, hasRow(fragment, r));
  }
  for (int64_t c = 0; c < fragment.colCount(); ++c) {
    addresses.cols.push_back(part(0, c, [](Value index) {
      return varies(index, 1) && !varies(index, 0);
    }));
    Address &col = addresses.cols.back();
    col.valid = b.both(col.valid, hasCol(fragment, c));
  }
  auto isMixed = [](Value index) {
    return varies(index, 0) && varies(index, 1);
  };
  if (!llvm::any_of(indices, isMixed))
    return addresses;
  for (int64_t r = 0; r < fragment.rowCount(); ++r)
    for (int64_t c = 0; c < fragment.colCount(); ++c)
      addresses.mixed.push_back(part(r, c, isMixed));
  return addresses;
}

KernelEmitter::Address KernelEmitter::addressAt(const Addresses &addresses,
                                                const Fragment &fragment,
                                                int64_t r, int64_t c) {
  Address address = both(addresses.rows[r], addresses.cols[c]);
  if (addresses.mixed.empty())
    return address;
  return both(address, addresses.mixed[r * fragment.colCount() + c]);
}

/// Whether neighbouring columns can be moved together.
static bool movesPairs(const Fragment &fragment, Value ref,
                       ValueRange indices) {
  return fragment.cols % 2 == 0 &&
         fragment.element.getIntOrFloatBitWidth() >= 16 &&
         getAccessWidth(ref, indices, 2) == 2;
}

/// Like `loadElement`, of two elements.
Value KernelEmitter::loadPair(Value ref, const Address &address) {
  auto type = cast<MemRefType>(ref.getType());
  Type element = type.getElementType();
  auto pairType = VectorType::get({2}, element);
  if (!address.valid)
    return b.loadVector(scalar(ref), address.offset, element, 2);
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(pairType));
  Value offset = b.select(address.valid, address.offset,
                          b.constant(address.offset.getType(), 0));
  return b.select(address.valid, b.loadVector(scalar(ref), offset, element, 2),
                  zero);
}

void KernelEmitter::emitFragmentLoad(LoadOp op) {
  if (residentLines.contains(op.getResult()))
    return readLine(op);
  guardLoad(op);
  Fragment fragment(cast<TileType>(op.getType()));
  SmallVector<Value> values;
  if (cast<MemRefType>(op.getRef().getType()).getNumElements() == 0) {
    values.assign(fragment.elements(), b.constant(fragment.element, 0));
    registers[op.getResult()] = pack(fragment, values);
    return;
  }
  Addresses addresses = addressesOf(op.getRef(), op.getIndices(), fragment);
  bool pairs = movesPairs(fragment, op.getRef(), op.getIndices());
  for (int64_t r = 0; r < fragment.rowCount(); ++r)
    for (int64_t c = 0; c < fragment.colCount(); c += pairs ? 2 : 1) {
      Address address = addressAt(addresses, fragment, r, c);
      if (!pairs) {
        values.push_back(loadElement(op.getRef(), address));
        continue;
      }
      Value pair = loadPair(op.getRef(), address);
      if (fragment.isPacked())
        values.push_back(pair);
      else
        values.append({b.half(pair, 0), b.half(pair, 1)});
    }
  registers[op.getResult()] =
      pairs && fragment.isPacked() ? values : pack(fragment, values);
}

void KernelEmitter::emitFragmentStore(StoreOp op) {
  if (cast<MemRefType>(op.getRef().getType()).getNumElements() == 0)
    return;
  SmallVector<Value> values = registersOf(op.getValue());
  Fragment fragment(cast<TileType>(op.getValue().getType()));
  guardStore(op);
  Addresses addresses = addressesOf(op.getRef(), op.getIndices(), fragment);
  bool pairs = movesPairs(fragment, op.getRef(), op.getIndices());
  Value first = isFirst(fragment);
  auto store = [&](int64_t r, int64_t c) {
    Address address = addressAt(addresses, fragment, r, c);
    int64_t i = r * fragment.colCount() + c;
    b.ifThen(b.both(addresses.cols[c].valid, addresses.mixed.empty()
                                                 ? Value()
                                                 : addresses.mixed[i].valid),
             [&] {
               Value value = fragment.isPacked() ? values[i / 2] : values[i];
               if (pairs && !fragment.isPacked())
                 value = b.vectorOfTwo(value, values[i + 1]);
               else if (!pairs && fragment.isPacked())
                 value = b.half(value, i % 2);
               if (pairs)
                 b.storeVector(value, scalar(op.getRef()), address.offset);
               else
                 b.store(value, scalar(op.getRef()), address.offset);
             });
  };
  for (int64_t r = 0; r < fragment.rowCount(); ++r)
    b.ifThen(b.both(addresses.rows[r].valid, first), [&] {
      for (int64_t c = 0; c < fragment.colCount(); c += pairs ? 2 : 1)
        store(r, c);
    });
}
