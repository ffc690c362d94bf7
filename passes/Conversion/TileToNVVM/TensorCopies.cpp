//===- TensorCopies.cpp - loads that the TMA unit can make ----------------===//

#include "passes/Conversion/TileToNVVM/TensorCopies.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/Extents.h"
#include "nsa/Artifact/TensorMap.h"
#include "passes/Conversion/TileToNVVM/RegisterLayout.h"
#include "passes/Conversion/TileToNVVM/SharedTiles.h"
#include "passes/Conversion/TileToNVVM/TileUtils.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

static constexpr auto unit = int64_t(tensorMapAlignment);

/// The axis of a tile along which an index goes in steps of one; -1 for the
/// same index everywhere, nothing for other indices.
static std::optional<int64_t> getAxis(Value index) {
  if (!isa<TileType>(index.getType()))
    return -1;
  auto range = index.getDefiningOp<RangeOp>();
  if (!range || range.getStep() != 1)
    return std::nullopt;
  return range.getAxis();
}

static Value getStart(Value index) {
  if (auto range = index.getDefiningOp<RangeOp>())
    return range.getStart();
  return index;
}

namespace {
/// The elements of a box along the rows and the columns of a tile.
struct Box {
  int64_t rows, cols;
  /// The axis of the tile that lies along the innermost dimension.
  int64_t innerAxis;
  unsigned swizzle;
};
} // namespace

/// The box of a shared tile: a swizzle atom column of its columns.
static std::optional<Box> getAtomColumn(Value buffer) {
  SharedShape shape(buffer);
  if (shape.rows != shape.paddedRows() || shape.cols != shape.paddedCols())
    return std::nullopt;
  return Box{shape.rows, shape.atomVectors() * SharedShape::vectorElements, 1,
             unsigned(shape.rowBytes())};
}

/// The box of a row or a column of 4-byte elements.
static std::optional<Box> getLine(Value line) {
  RegisterLayout layout(line);
  bool isRow = layout.rows == 1;
  int64_t length = isRow ? layout.cols : layout.rows;
  if (layout.element.getIntOrFloatBitWidth() != 32 ||
      length != layout.lineLength())
    return std::nullopt;
  return Box{layout.rows, layout.cols, isRow ? 1 : 0, 0};
}

/// Bytes from element to element along each dimension but the innermost.
static std::optional<SmallVector<int64_t>>
getStrides(MemRefType type, const ExtentTable &extents) {
  SmallVector<Extent> strides = extents.getStrides(type);
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  if (int64_t(strides.back()) != 1)
    return std::nullopt;
  SmallVector<int64_t> result;
  for (const Extent &stride : llvm::reverse(ArrayRef(strides).drop_back())) {
    if (int64_t(stride) <= 0 || getKnownDivisor(stride) * bytes % unit != 0)
      return std::nullopt;
    result.push_back(int64_t(stride) * bytes);
  }
  return result;
}

/// How many elements a box has along each dimension of an access, innermost
/// first.
static std::optional<SmallVector<int64_t>> getExtents(ValueRange indices,
                                                      const Box &box) {
  SmallVector<int64_t> extents;
  bool hasRows = box.rows == 1, hasCols = box.cols == 1;
  for (Value index : llvm::reverse(indices)) {
    std::optional<int64_t> axis = getAxis(index);
    if (!axis)
      return std::nullopt;
    bool isFirst = extents.empty();
    if (isFirst != (*axis == box.innerAxis))
      return std::nullopt;
    // A diagonal is no box.
    if ((*axis == 0 && hasRows) || (*axis == 1 && hasCols))
      return std::nullopt;
    extents.push_back(*axis < 0 ? 1 : *axis == 0 ? box.rows : box.cols);
    hasRows |= *axis == 0;
    hasCols |= *axis == 1;
  }
  return hasRows && hasCols ? std::optional(extents) : std::nullopt;
}

std::optional<TensorCopy> nsa::cuda::findTensorCopy(const ReadAccess &access) {
  auto argument = dyn_cast<BlockArgument>(access.ref);
  auto type = cast<MemRefType>(access.ref.getType());
  auto tile = dyn_cast<TileType>(access.type);
  if (!argument || !tile || type.getRank() < 1 ||
      type.getRank() > int64_t(maxTensorMapRank) ||
      type.getNumElements() == 0 ||
      getAlignment(access.ref) % kTensorAlignment != 0)
    return std::nullopt;
  std::optional<Box> box =
      isShared(tile) ? getAtomColumn(access.target) : getLine(access.target);
  std::optional<SmallVector<int64_t>> strides =
      getStrides(type, ExtentTable::of(access.op->getParentOfType<KernelOp>()));
  if (!box || !strides)
    return std::nullopt;
  std::optional<SmallVector<int64_t>> extents =
      getExtents(access.indices, *box);
  if (!extents || llvm::any_of(*extents, [](int64_t n) {
        return n > int64_t(maxTensorMapBox);
      }))
    return std::nullopt;
  TensorCopy copy;
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  copy.boxElements = extents->front();
  copy.boxBytes = box->rows * box->cols * bytes;
  copy.boxes = isShared(tile) ? tile.getCols() / box->cols : 1;
  if (copy.boxElements * bytes % unit != 0)
    return std::nullopt;
  for (Value index : llvm::reverse(access.indices))
    copy.start.push_back(getStart(index));
  // An H200 takes other places for an illegal instruction.
  if (getDivisor(copy.start.front(), unit / bytes) != unit / bytes)
    return std::nullopt;
  SmallVector<int64_t> shape(llvm::reverse(type.getShape()));
  Builder b(type.getContext());
  copy.map = rt::TensorMapAttr::get(
      type.getContext(), argument.getArgNumber(), type.getElementType(),
      b.getDenseI64ArrayAttr(shape), b.getDenseI64ArrayAttr(*strides),
      b.getDenseI64ArrayAttr(*extents), box->swizzle);
  return copy;
}
