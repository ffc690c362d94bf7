//===- RowLayout.h - memory that is columns of wider rows -------*- C++ -*-===//
//
// A part of the columns of a matrix is no dense tensor: its rows lie further
// apart than they are long. Kernels and the host program know such memory by
// the strides of its memref type; the offset belongs to the base address.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_INTERFACES_ROWLAYOUT_H
#define NSA_INTERFACES_ROWLAYOUT_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

namespace nsa {

/// Rows of `width` neighbouring elements that begin `pitch` elements apart.
/// Dense memory is one row of all elements.
struct RowLayout {
  int64_t width, pitch;

  static RowLayout dense(int64_t elements) { return {elements, elements}; }

  bool operator==(const RowLayout &other) const {
    return width == other.width && pitch == other.pitch;
  }
};

/// How the elements of a memref of static shape lie; nothing if not in rows, or
/// if its layout has an offset.
std::optional<RowLayout> getRowLayout(mlir::MemRefType type);

/// The memref of this shape in this layout, or null if no trailing dimensions
/// of the shape make a row.
mlir::MemRefType getRowsType(llvm::ArrayRef<int64_t> shape, mlir::Type element,
                             RowLayout layout);

/// Elements from the first of a memref in rows to its last, both included.
int64_t getElementSpan(mlir::MemRefType type);

/// The tensor of this shape whose rows, along the last dimension, begin `pitch`
/// elements apart in memory: strides are its encoding.
mlir::RankedTensorType getPaddedType(llvm::ArrayRef<int64_t> shape,
                                     mlir::Type element, int64_t pitch);

/// The memory of a tensor of static shape: dense, or as its encoding says.
mlir::MemRefType getMemRefType(mlir::RankedTensorType type);

} // namespace nsa

#endif // NSA_INTERFACES_ROWLAYOUT_H
