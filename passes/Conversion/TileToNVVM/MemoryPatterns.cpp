//===- MemoryPatterns.cpp - loads and stores ------------------------------===//

#include "passes/Conversion/TileToNVVM/AccessWidth.h"
#include "passes/Conversion/TileToNVVM/BlockedTiles.h"
#include "passes/Conversion/TileToNVVM/GlobalMemory.h"
#include "passes/Conversion/TileToNVVM/Patterns.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// Like `loadElement`, of elements that lie together.
static SmallVector<Value> loadTogether(TileReader &in, Value ref,
                                       const Address &address, int64_t count) {
  ThreadBuilder &b = in.b;
  if (count == 1)
    return {loadElement(in, ref, address)};
  auto type = cast<MemRefType>(ref.getType());
  Type element = type.getElementType();
  if (type.getNumElements() == 0)
    return SmallVector<Value>(count, b.constant(element, 0));
  Value vector;
  if (!address.valid) {
    vector = b.loadVector(in.scalar(ref), address.offset, element, count);
  } else {
    Value offset = b.select(address.valid, address.offset,
                            b.constant(address.offset.getType(), 0));
    vector = b.loadVector(in.scalar(ref), offset, element, count);
    TypedAttr zeros = b.getZeroAttr(vector.getType());
    vector =
        b.select(address.valid, vector, arith::ConstantOp::create(b, zeros));
  }
  SmallVector<Value> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(LLVM::ExtractElementOp::create(b, vector, b.i32(i)));
  return values;
}

static void storeTogether(TileReader &in, ValueRange values, Value ref,
                          const Address &address) {
  ThreadBuilder &b = in.b;
  if (values.size() == 1)
    return b.store(values[0], in.scalar(ref), address.offset);
  auto type = VectorType::get({static_cast<int64_t>(values.size())},
                              values[0].getType());
  Value vector = LLVM::PoisonOp::create(b, type);
  for (auto [i, value] : llvm::enumerate(values))
    vector = LLVM::InsertElementOp::create(b, vector, value, b.i32(i));
  b.storeVector(vector, in.scalar(ref), address.offset);
}

/// Where register `k` of an access to memory is.
static Address addressAt(TileReader &in, Value ref, ValueRange indices,
                         ArrayRef<Source> sources, const BlockedLayout &blocked,
                         int64_t k) {
  auto [row, col] = placeInside(in.b, blocked, k);
  SmallVector<Value> coordinates;
  for (const Source &source : sources)
    coordinates.push_back(in.element(source, k, row, col));
  return addressOf(in, ref, indices, coordinates);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

static SmallVector<Value> getScalars(TileReader &in, ValueRange values) {
  return llvm::map_to_vector(values,
                             [&](Value value) { return in.scalar(value); });
}

static Results lowerLoad(LoadOp op, TileReader &in) {
  if (hasMmaLayout(op.getType()))
    return lowerMmaLoad(op, in);
  auto shape = dyn_cast<TileType>(op.getType());
  if (!shape)
    return {{loadElement(in, op.getRef(),
                         addressOf(in, op.getRef(), op.getIndices(),
                                   getScalars(in, op.getIndices())))}};
  ThreadBuilder &b = in.b;
  SmallVector<Source> sources = in.prepare(op.getIndices(), shape);
  BlockedLayout blocked = blockedLayoutOf(shape);
  int64_t step = getAccessWidth(op.getRef(), op.getIndices(), blocked.width);
  SmallVector<Value> values;
  for (int64_t k = 0; k < blocked.registers(); k += step) {
    Address address =
        addressAt(in, op.getRef(), op.getIndices(), sources, blocked, k);
    // Threads beyond the tile have coordinates that nobody vouches for.
    address.valid = b.both(address.valid, isElement(b, blocked, k));
    llvm::append_range(values, loadTogether(in, op.getRef(), address, step));
  }
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
    Value first = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                        b.threadId(), b.i32(0));
    b.ifThen(b.both(first, address.valid), [&] {
      b.store(in.scalar(op.getValue()), in.scalar(op.getRef()), address.offset);
    });
    return {};
  }
  SmallVector<Value> values = in.registersOf(op.getValue());
  SmallVector<Source> sources = in.prepare(op.getIndices(), shape);
  BlockedLayout blocked = blockedLayoutOf(shape);
  int64_t step = getAccessWidth(op.getRef(), op.getIndices(), blocked.width);
  for (int64_t k = 0; k < blocked.registers(); k += step) {
    Address address =
        addressAt(in, op.getRef(), op.getIndices(), sources, blocked, k);
    b.ifThen(b.both(address.valid, isOwner(b, blocked, k)), [&] {
      storeTogether(in, ValueRange(values).slice(k, step), op.getRef(),
                    address);
    });
  }
  return {};
}

/// The same address, which strides say how to read.
static Results lowerView(ViewOp op, TileReader &in) {
  return {{in.scalar(op.getRef())}};
}

void nsa::cuda::populateMemoryPatterns(TilePatterns &patterns) {
  patterns.add(lowerLoad, lowerStore, lowerView);
}
