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

MemRefType nsa::getRowsType(ArrayRef<int64_t> shape, Type element,
                            RowLayout layout) {
  std::optional<int64_t> elements = countElements(shape);
  if (!elements)
    return {};
  if (*elements == 0 || layout.width == *elements ||
      layout.width == layout.pitch)
    return MemRefType::get(shape, element);
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
      return {};
  }
  return MemRefType::get(
      shape, element,
      StridedLayoutAttr::get(element.getContext(), /*offset=*/0, strides));
}

std::optional<RowLayout> nsa::getRowLayout(MemRefType type) {
  if (!type.hasStaticShape())
    return std::nullopt;
  std::optional<int64_t> elements = countElements(type.getShape());
  if (!elements)
    return std::nullopt;
  if (type.getLayout().isIdentity())
    return RowLayout::dense(*elements);
  auto strided = dyn_cast<StridedLayoutAttr>(type.getLayout());
  if (!strided || *elements == 0)
    return std::nullopt;
  // The innermost stride that is not that of a dense tensor is the pitch.
  RowLayout layout = {1, 0};
  for (size_t d = type.getRank(); d-- > 0;) {
    if (type.getShape()[d] != 1 && strided.getStrides()[d] != layout.width) {
      layout.pitch = strided.getStrides()[d];
      break;
    }
    layout.width *= type.getShape()[d];
  }
  if (layout.pitch <= layout.width ||
      getRowsType(type.getShape(), type.getElementType(), layout) != type)
    return std::nullopt;
  return layout;
}

int64_t nsa::getElementSpan(MemRefType type) {
  int64_t elements = type.getNumElements();
  std::optional<RowLayout> layout = getRowLayout(type);
  assert(layout && "memory that does not lie in rows");
  if (layout->width == 0)
    return 0;
  return (elements / layout->width - 1) * layout->pitch + layout->width;
}
