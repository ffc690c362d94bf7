//===- ShapeChecks.h - verifier helpers for static shapes -------*- C++ -*-===//
//
// What the verifiers of the graph dialects share. Each check reports on the
// op, in one lower-case line with what was found and what was expected.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_INTERFACES_SHAPECHECKS_H
#define NSA_INTERFACES_SHAPECHECKS_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

namespace nsa {

/// Dimension `index` of a ranked tensor.
inline int64_t getDim(mlir::Value value, unsigned index) {
  return llvm::cast<mlir::RankedTensorType>(value.getType()).getDimSize(index);
}

inline llvm::ArrayRef<int64_t> getShape(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType()).getShape();
}

inline mlir::Type getElementType(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType()).getElementType();
}

/// The product, or the largest number if it does not fit: attributes come from
/// the user and may be as large as they like.
inline int64_t saturatingProduct(int64_t lhs, int64_t rhs) {
  int64_t product;
  bool overflow = llvm::MulOverflow(lhs, rhs, product);
  return overflow ? std::numeric_limits<int64_t>::max() : product;
}

/// Elements of a tensor of this shape, or the largest number.
inline int64_t saturatingElements(llvm::ArrayRef<int64_t> shape) {
  if (llvm::is_contained(shape, 0))
    return 0;
  int64_t elements = 1;
  for (int64_t extent : shape)
    elements = saturatingProduct(elements, extent);
  return elements;
}

/// "2x3x4", or "scalar" for rank 0.
inline std::string formatShape(llvm::ArrayRef<int64_t> shape) {
  if (shape.empty())
    return "scalar";
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::interleave(shape, os, "x");
  return text;
}

/// The operand `name` has exactly the shape `expected`.
inline llvm::LogicalResult checkShape(mlir::Operation *op, llvm::StringRef name,
                                      mlir::Value value,
                                      llvm::ArrayRef<int64_t> expected) {
  if (getShape(value) == expected)
    return llvm::success();
  return op->emitOpError(name) << " has shape " << formatShape(getShape(value))
                               << ", expected " << formatShape(expected);
}

/// The two quantities are equal.
inline llvm::LogicalResult checkEqual(mlir::Operation *op, llvm::StringRef what,
                                      int64_t found, llvm::StringRef other,
                                      int64_t expected) {
  if (found == expected)
    return llvm::success();
  return op->emitOpError(what) << " (" << found << ") must be equal to "
                               << other << " (" << expected << ")";
}

/// `found` is a multiple of the positive number `divisor`.
inline llvm::LogicalResult checkMultiple(mlir::Operation *op,
                                         llvm::StringRef what, int64_t found,
                                         llvm::StringRef other,
                                         int64_t divisor) {
  if (found % divisor == 0)
    return llvm::success();
  return op->emitOpError(what) << " (" << found << ") must be a multiple of "
                               << other << " (" << divisor << ")";
}

/// `found` is at most `bound`.
inline llvm::LogicalResult checkAtMost(mlir::Operation *op,
                                       llvm::StringRef what, int64_t found,
                                       llvm::StringRef other, int64_t bound) {
  if (found <= bound)
    return llvm::success();
  return op->emitOpError(what) << " (" << found << ") must be at most " << other
                               << " (" << bound << ")";
}

/// No dimension of the operand is empty.
inline llvm::LogicalResult
checkNotEmpty(mlir::Operation *op, llvm::StringRef name, mlir::Value value) {
  if (!llvm::is_contained(getShape(value), 0))
    return llvm::success();
  return op->emitOpError(name) << " has shape " << formatShape(getShape(value))
                               << " with an empty dimension";
}

} // namespace nsa

#endif // NSA_INTERFACES_SHAPECHECKS_H
