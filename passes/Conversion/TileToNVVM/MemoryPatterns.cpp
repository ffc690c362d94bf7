//===- MemoryPatterns.cpp - loads and stores ------------------------------===//

#include "passes/Conversion/TileToNVVM/AccessWidth.h"
#include "passes/Conversion/TileToNVVM/BlockedTiles.h"
#include "passes/Conversion/TileToNVVM/GlobalMemory.h"
#include "passes/Conversion/TileToNVVM/Patterns.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

static void storeTogether(TileReader &in, ValueRange values, Value ref,
                          const Address &address) {
  if (values.size() == 1)
    return in.b.store(values[0], in.scalar(ref), address.offset);
  in.b.storeVector(in.b.vectorOf(values), in.scalar(ref), address.offset);
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
    return {{loadFrom(in, op.getRef(),
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
    Value loaded = loadFrom(in, op.getRef(), address, step);
    if (step == 1)
      values.push_back(loaded);
    else
      for (int64_t i = 0; i < step; ++i)
        values.push_back(b.half(loaded, i));
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
    b.ifThen(b.both(b.equal(b.threadId(), 0), address.valid), [&] {
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
