//===- MemoryPatterns.cpp - loads and stores ------------------------------===//

#include "passes/TileGPU/GlobalAccesses.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/Patterns.h"
#include "passes/TileGPUToNVVM/TileReader.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// MMA tiles
//===----------------------------------------------------------------------===//

/// Whether an index changes along an axis of the access.
static bool varies(Value index, unsigned axis) {
  auto type = dyn_cast<TileType>(index.getType());
  return type && (axis == 0 ? type.getRows() : type.getCols()) > 1;
}

namespace {
/// Offsets of the elements of a tile in the MMA layout, in parts that are the
/// same in a row or a column.
struct Addresses {
  SmallVector<Address> rows, cols;
  /// Of each element, if a coordinate depends on both.
  SmallVector<Address> mixed;
};
} // namespace

static Addresses addressesOf(TileReader &in, Value ref, ValueRange indices,
                             const RegisterLayout &layout) {
  ThreadBuilder &b = in.b;
  Memo memo;
  // The part of an address that the indices chosen by `filter` make.
  auto part = [&](int64_t r, int64_t c, function_ref<bool(Value)> filter) {
    SmallVector<Value> coordinates;
    for (Value index : indices)
      coordinates.push_back(
          filter(index) ? in.read(index, in.at(layout, r, c), memo) : Value());
    return addressOf(in, ref, indices, coordinates);
  };
  Addresses addresses;
  for (int64_t r = 0; r < layout.rowCount(); ++r) {
    addresses.rows.push_back(
        part(r, 0, [](Value index) { return !varies(index, 1); }));
    Address &row = addresses.rows.back();
    row.valid = b.both(row.valid, b.hasRow(layout, r));
  }
  for (int64_t c = 0; c < layout.colCount(); ++c) {
    addresses.cols.push_back(part(0, c, [](Value index) {
      return varies(index, 1) && !varies(index, 0);
    }));
    Address &col = addresses.cols.back();
    col.valid = b.both(col.valid, b.hasCol(layout, c));
  }
  auto isMixed = [](Value index) {
    return varies(index, 0) && varies(index, 1);
  };
  if (!llvm::any_of(indices, isMixed))
    return addresses;
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    for (int64_t c = 0; c < layout.colCount(); ++c)
      addresses.mixed.push_back(part(r, c, isMixed));
  return addresses;
}

static Address addressAt(ThreadBuilder &b, const Addresses &addresses,
                         const RegisterLayout &layout, int64_t r, int64_t c) {
  Address address = both(b, addresses.rows[r], addresses.cols[c]);
  if (addresses.mixed.empty())
    return address;
  return both(b, address, addresses.mixed[r * layout.colCount() + c]);
}

/// Whether neighbouring columns can be moved together.
static bool movesPairs(const RegisterLayout &layout, Value ref,
                       ValueRange indices) {
  return layout.cols % 2 == 0 && layout.element.getIntOrFloatBitWidth() >= 16 &&
         getAccessWidth(ref, indices, 2) == 2;
}

static Results lowerMmaLoad(LoadOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  RegisterLayout layout(op.getResult());
  SmallVector<Value> values;
  if (cast<MemRefType>(op.getRef().getType()).getNumElements() == 0) {
    values.assign(layout.elements(), b.constant(layout.element, 0));
    return {pack(b, layout, values)};
  }
  Addresses addresses = addressesOf(in, op.getRef(), op.getIndices(), layout);
  bool pairs = movesPairs(layout, op.getRef(), op.getIndices());
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    for (int64_t c = 0; c < layout.colCount(); c += pairs ? 2 : 1) {
      Address address = addressAt(b, addresses, layout, r, c);
      Value loaded = loadFrom(in, op.getRef(), address, pairs ? 2 : 1);
      if (pairs && !layout.isPacked())
        values.append({b.half(loaded, 0), b.half(loaded, 1)});
      else
        values.push_back(loaded);
    }
  return {pairs && layout.isPacked() ? values : pack(b, layout, values)};
}

/// Whether the quad of threads that has a row can store 16 bytes each of it.
static bool movesVectors(const RegisterLayout &layout, StoreOp op) {
  return layout.isPacked() && layout.rows > 1 && layout.cols % 32 == 0 &&
         getAccessWidth(op.getRef(), op.getIndices(), 8) == 8;
}

/// Exchanges words among the threads of a quad: the one with number q gets word
/// q of all, in the order of the threads.
static SmallVector<Value> transposeQuad(ThreadBuilder &b,
                                        ArrayRef<Value> words) {
  Value bits[2];
  for (int64_t i = 0; i < 2; ++i) {
    // `pair` is twice the number in the quad.
    Value bit = arith::AndIOp::create(b, b.place().pair, b.i32(2 << i));
    bits[i] = b.differs(bit, 0);
  }
  // Of two words a thread keeps one, by a bit of its number, and gets the same
  // one of its partner, which belongs before or after its own.
  auto exchange = [&](Value isHigh, unsigned mask, Value low,
                      Value high) -> std::pair<Value, Value> {
    Value other = b.shuffle(b.select(isHigh, low, high), mask);
    return {b.select(isHigh, other, low), b.select(isHigh, high, other)};
  };
  auto [a0, a2] = exchange(bits[1], 2, words[0], words[2]);
  auto [a1, a3] = exchange(bits[1], 2, words[1], words[3]);
  auto [b0, b1] = exchange(bits[0], 1, a0, a1);
  auto [b2, b3] = exchange(bits[0], 1, a2, a3);
  return {b0, b1, b2, b3};
}

/// Stores 8 neighbouring columns at once: threads have 2 each of 32.
static void storeVectors(TileReader &in, StoreOp op,
                         const RegisterLayout &layout,
                         const Addresses &addresses, ArrayRef<Value> values) {
  ThreadBuilder &b = in.b;
  auto vectorType = VectorType::get({8}, layout.element);
  // Where the columns of this thread begin, from those of its MMA tile.
  Value ahead = b.mul(b.place().pair, 3);
  // Vectors lie inside if they begin there. The last index is the only one that
  // changes along columns.
  Value columns = op.getIndices().back();
  Extent extent = in.bounds.getExtents().find(
      cast<MemRefType>(op.getRef().getType()).getShape().back());
  bool isBound = !isInside(in.bounds, columns, extent);
  Memo memo;
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    for (int64_t c = 0; c < layout.colCount(); c += 8) {
      SmallVector<Value> own;
      for (int64_t j = 0; j < 4; ++j)
        own.push_back(b.bitcast(values[(r * layout.colCount() + c) / 2 + j],
                                b.getI32Type()));
      Value vector = b.vectorOf(transposeQuad(b, own));
      Address address = addressAt(b, addresses, layout, r, c);
      Value offset = ahead;
      if (address.offset.getType() != offset.getType())
        offset = arith::ExtSIOp::create(b, address.offset.getType(), offset);
      Value valid = addresses.rows[r].valid;
      if (isBound) {
        Value first = in.read(columns, in.at(layout, r, c), memo);
        valid = b.both(valid, b.inside(b.add(first, ahead), extent));
      }
      b.ifThen(valid, [&] {
        b.store(b.bitcast(vector, vectorType), in.scalar(op.getRef()),
                b.add(address.offset, offset));
      });
    }
}

static Results lowerMmaStore(StoreOp op, TileReader &in) {
  if (cast<MemRefType>(op.getRef().getType()).getNumElements() == 0)
    return {};
  ThreadBuilder &b = in.b;
  SmallVector<Value> values = in.registersOf(op.getValue());
  RegisterLayout layout(op.getValue());
  Addresses addresses = addressesOf(in, op.getRef(), op.getIndices(), layout);
  if (movesVectors(layout, op) && addresses.mixed.empty())
    return storeVectors(in, op, layout, addresses, values), Results();
  bool pairs = movesPairs(layout, op.getRef(), op.getIndices());
  Value first = b.isFirst(layout);
  auto store = [&](int64_t r, int64_t c) {
    Address address = addressAt(b, addresses, layout, r, c);
    int64_t i = r * layout.colCount() + c;
    b.ifThen(b.both(addresses.cols[c].valid, addresses.mixed.empty()
                                                 ? Value()
                                                 : addresses.mixed[i].valid),
             [&] {
               Value value = layout.isPacked() ? values[i / 2] : values[i];
               if (pairs && !layout.isPacked())
                 value = b.vectorOf({value, values[i + 1]});
               else if (!pairs && layout.isPacked())
                 value = b.half(value, i % 2);
               b.store(value, in.scalar(op.getRef()), address.offset);
             });
  };
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    b.ifThen(b.both(addresses.rows[r].valid, first), [&] {
      for (int64_t c = 0; c < layout.colCount(); c += pairs ? 2 : 1)
        store(r, c);
    });
  return {};
}

//===----------------------------------------------------------------------===//
// Scalars and tiles of blocked layouts
//===----------------------------------------------------------------------===//

/// Calls `body` with the number of the first of the elements that one access of
/// a thread moves, how many it moves, their row and column, and their address.
static void forAccesses(
    TileReader &in, Value ref, ValueRange indices, const RegisterLayout &layout,
    function_ref<void(int64_t, int64_t, int64_t, int64_t, Address)> body) {
  in.exchange(indices, layout);
  int64_t step = getAccessWidth(ref, indices, layout.width);
  Memo memo;
  for (int64_t k = 0; k < layout.elements(); k += step) {
    int64_t r = k / layout.colCount(), c = k % layout.colCount();
    TileReader::Element element = in.at(layout, r, c);
    SmallVector<Value> coordinates = llvm::map_to_vector(
        indices, [&](Value index) { return in.read(index, element, memo); });
    body(k, step, r, c, addressOf(in, ref, indices, coordinates));
  }
}

static SmallVector<Value> getScalars(TileReader &in, ValueRange values) {
  return llvm::map_to_vector(values,
                             [&](Value value) { return in.scalar(value); });
}

static Results lowerLoad(LoadOp op, TileReader &in) {
  if (hasMmaLayout(op.getType()))
    return lowerMmaLoad(op, in);
  auto shape = dyn_cast<TileType>(op.getType());
  if (!shape)
    return {{loadFrom(in, op.getRef(),
                      addressOf(in, op.getRef(), op.getIndices(),
                                getScalars(in, op.getIndices())))}};
  ThreadBuilder &b = in.b;
  RegisterLayout layout(shape);
  SmallVector<Value> values;
  auto load = [&](int64_t, int64_t step, int64_t r, int64_t c, Address from) {
    // Threads beyond the tile have coordinates that may be out of bounds.
    from.valid = b.both(from.valid, b.hasElement(layout, r, c));
    Value loaded = loadFrom(in, op.getRef(), from, step);
    if (step == 1)
      values.push_back(loaded);
    else
      for (int64_t i = 0; i < step; ++i)
        values.push_back(b.half(loaded, i));
  };
  forAccesses(in, op.getRef(), op.getIndices(), layout, load);
  return {std::move(values)};
}

static Results lowerStore(StoreOp op, TileReader &in) {
  if (hasMmaLayout(op.getValue().getType()))
    return lowerMmaStore(op, in);
  ThreadBuilder &b = in.b;
  auto type = cast<MemRefType>(op.getRef().getType());
  if (type.getNumElements() == 0)
    return {};
  auto shape = dyn_cast<TileType>(op.getValue().getType());
  if (!shape) {
    Address address = addressOf(in, op.getRef(), op.getIndices(),
                                getScalars(in, op.getIndices()));
    b.ifThen(b.both(b.equal(b.threadId(), 0), address.valid), [&] {
      b.store(in.scalar(op.getValue()), in.scalar(op.getRef()), address.offset);
    });
    return {};
  }
  SmallVector<Value> values = in.registersOf(op.getValue());
  RegisterLayout layout(shape);
  auto store = [&](int64_t k, int64_t step, int64_t r, int64_t c, Address to) {
    b.ifThen(b.both(to.valid, b.isOwner(layout, r, c)), [&] {
      Value value =
          step == 1 ? values[k] : b.vectorOf(ArrayRef(values).slice(k, step));
      b.store(value, in.scalar(op.getRef()), to.offset);
    });
  };
  forAccesses(in, op.getRef(), op.getIndices(), layout, store);
  return {};
}

/// The same address, which strides say how to read.
static Results lowerView(ViewOp op, TileReader &in) {
  return {{in.scalar(op.getRef())}};
}

void nsa::cuda::populateMemoryPatterns(TilePatterns &patterns) {
  patterns.add(lowerLoad, lowerStore, lowerView);
}
