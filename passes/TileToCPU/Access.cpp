//===- Access.cpp - how a load or store walks through memory --------------===//

#include "passes/TileToCPU/Access.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace nsa::cpu;
using namespace nsa::tile;

Access::Access(LoadOp op, TileBounds &bounds, unsigned width)
    : Access(op.getRef(), op.getIndices(),
             cast<TileType>(op.getResult().getType()), bounds, width) {
  ofPairs = findPairs(width);
}

Access::Access(StoreOp op, TileBounds &bounds, unsigned width)
    : Access(op.getRef(), op.getIndices(),
             cast<TileType>(op.getValue().getType()), bounds, width) {}

/// Whether the elements of an index differ along an axis.
static bool varies(Value index, unsigned axis) {
  auto type = dyn_cast<TileType>(index.getType());
  return type && (axis == 0 ? type.getRows() : type.getCols()) > 1;
}

Access::Access(Value ref, ValueRange indices, TileType type, TileBounds &bounds,
               unsigned width)
    : ref(ref), indices(indices), type(type) {
  auto memref = cast<MemRefType>(ref.getType());
  extents = bounds.getExtents().getShape(memref);
  strides = bounds.getExtents().getStrides(memref);
  unsigned inner = innerAxis(type);
  contiguous = true;
  for (auto [d, index] : llvm::enumerate(indices)) {
    proven.push_back(bounds.isInside(index, extents[d]));
    if (!varies(index, inner))
      continue;
    auto range = index.getDefiningOp<RangeOp>();
    if (innerDim >= 0 || !range || range.getStep() != 1 ||
        int64_t(strides[d]) != 1)
      contiguous = false;
    innerDim = d;
  }
  int64_t extent = inner == 0 ? type.getRows() : type.getCols();
  bool wide = memoryBytes(type.getElementType()) == 4;
  bool wholeVectors = extent % lanesFor(extent, width) == 0;
  fusible = contiguous && (wide || (allProven() && wholeVectors));
}

int Access::findPairs(unsigned width) const {
  size_t rank = extents.size();
  int64_t extent = innerAxis(type) == 0 ? type.getRows() : type.getCols();
  bool wholeVectors = memoryBytes(type.getElementType()) == 4 &&
                      extent % lanesFor(extent, width) == 0;
  bool movesByPairs = rank >= 2 && int64_t(extents.back()) == 2 &&
                      innerDim == static_cast<int>(rank) - 2 &&
                      int64_t(strides[innerDim]) == 2 &&
                      int64_t(strides.back()) == 1;
  if (!movesByPairs || !wholeVectors || !allProven())
    return -1;
  auto range = indices[innerDim].getDefiningOp<RangeOp>();
  APInt place;
  if (!range || range.getStep() != 1 ||
      !matchPattern(indices.back(), m_ConstantInt(&place)))
    return -1;
  return static_cast<int>(place.getSExtValue());
}
