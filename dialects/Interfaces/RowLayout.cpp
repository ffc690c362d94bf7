//===- RowLayout.cpp - memory that is columns of wider rows ---------------===//

#include "dialects/Interfaces/RowLayout.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace nsa;

/// Types come from the user: nothing may overflow.
static std::optional<int64_t> countElements(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  if (llvm::is_contained(shape, 0))
    return 0;
  for (int64_t extent : shape)
    if (llvm::MulOverflow(count, extent, count))
      return std::nullopt;
  return count;
}

/// The strides of columns of wider rows, if rows end where a dimension does.
static std::optional<SmallVector<int64_t>> getStrides(ArrayRef<int64_t> shape,
                                                      RowLayout layout) {
  SmallVector<int64_t> strides(shape.size());
  int64_t stride = 1;
  bool inRow = true;
  for (size_t d = shape.size(); d-- > 0;) {
    // A dimension of one element belongs to the row, wherever it is.
    if (inRow && stride == layout.width && shape[d] != 1) {
      inRow = false;
      stride = layout.pitch;
    }
    strides[d] = stride;
    if (llvm::MulOverflow(stride, shape[d], stride) ||
        (inRow && stride > layout.width))
      return std::nullopt;
  }
  return strides;
}

MemRefType nsa::getRowsType(ArrayRef<int64_t> shape, Type element,
                            RowLayout layout) {
  std::optional<int64_t> elements = countElements(shape);
  if (!elements)
    return {};
  if (*elements == 0 || layout.width == *elements ||
      layout.width == layout.pitch)
    return MemRefType::get(shape, element);
  std::optional<SmallVector<int64_t>> strides = getStrides(shape, layout);
  if (!strides)
    return {};
  return MemRefType::get(
      shape, element,
      StridedLayoutAttr::get(element.getContext(), /*offset=*/0, *strides));
}

/// The layout of columns of wider rows.
static std::optional<RowLayout> getColumnLayout(ArrayRef<int64_t> shape,
                                                StridedLayoutAttr strided) {
  // The innermost stride that is not that of a dense tensor is the pitch.
  RowLayout layout = {1, 0};
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strided.getStrides()[d] != layout.width) {
      layout.pitch = strided.getStrides()[d];
      break;
    }
    layout.width *= shape[d];
  }
  if (layout.pitch <= layout.width || strided.getOffset() != 0 ||
      getStrides(shape, layout) != SmallVector<int64_t>(strided.getStrides()))
    return std::nullopt;
  return layout;
}

std::optional<RowLayout> nsa::getRowLayout(MemRefType type) {
  if (!type.hasStaticShape())
    return std::nullopt;
  std::optional<int64_t> elements = countElements(type.getShape());
  if (!elements)
    return std::nullopt;
  // Whether a layout is the identity is dear to ask: it takes an affine map.
  auto strided = dyn_cast<StridedLayoutAttr>(type.getLayout());
  if (strided && *elements != 0)
    if (std::optional<RowLayout> layout =
            getColumnLayout(type.getShape(), strided))
      return layout;
  if (type.getLayout().isIdentity())
    return RowLayout::dense(*elements);
  return std::nullopt;
}

RankedTensorType nsa::getPaddedType(ArrayRef<int64_t> shape, Type element,
                                    int64_t pitch) {
  MemRefType rows = getRowsType(shape, element, {shape.back(), pitch});
  assert(rows && "rows that are not the last dimension");
  return RankedTensorType::get(shape, element, rows.getLayout());
}

MemRefType nsa::getMemRefType(RankedTensorType type) {
  auto layout = dyn_cast_or_null<MemRefLayoutAttrInterface>(type.getEncoding());
  return MemRefType::get(type.getShape(), type.getElementType(), layout);
}

int64_t nsa::getElementSpan(MemRefType type) {
  int64_t elements = type.getNumElements();
  std::optional<RowLayout> layout = getRowLayout(type);
  assert(layout && "memory that does not lie in rows");
  if (layout->width == 0)
    return 0;
  return (elements / layout->width - 1) * layout->pitch + layout->width;
}
