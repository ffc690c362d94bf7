//===- Extents.h - sizes that are known at the call -------------*- C++ -*-===//
//
// An operator whose tensors have `?` for the batch and the length of sequences
// is compiled once for all of them. In the types of the compiler a number
// stands for each such extent, one that no other dimension has, and for each
// that follows from them; a table says for what. Choices of tiles are made for
// these numbers; what is computed with them in a kernel, or by the host, is an
// expression of the two extents of a call.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_INTERFACES_EXTENTS_H
#define NSA_DIALECTS_INTERFACES_EXTENTS_H

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

#include <type_traits>

namespace nsa {

/// The extents of a call, in the order in which kernels get them.
inline constexpr unsigned kNumExtents = 2;
inline constexpr unsigned kBatchExtent = 0, kSequenceExtent = 1;

/// A size: a constant, or a number that stands for an expression of the extents
/// of a call. The expression is the largest of the results of a map of two
/// symbols.
class Extent {
public:
  Extent(int64_t number = 1) : number(number) {}
  Extent(int64_t number, mlir::AffineMap map) : number(number), map(map) {}
  /// Extent number `index` of a call, for which `number` stands.
  static Extent argument(int64_t number, unsigned index,
                         mlir::MLIRContext *context);

  bool isConstant() const { return !map; }
  /// The constant, or the number that stands for it: what choices are made by,
  /// and types are made of. What a kernel counts with is the extent itself.
  explicit operator int64_t() const { return number; }
  /// Null for a constant.
  mlir::AffineMap getMap() const { return map; }
  /// A map for constants too.
  mlir::AffineMap getMap(mlir::MLIRContext *context) const;
  /// What it is for a call with these extents.
  int64_t evaluate(llvm::ArrayRef<int64_t> extents) const;

private:
  int64_t number;
  mlir::AffineMap map;
};

/// Integers are taken as constants, so that no expression is lost.
template <typename T>
using IfInteger = std::enable_if_t<std::is_integral_v<T>, int>;

Extent addExtents(const Extent &lhs, int64_t rhs);
Extent operator+(const Extent &lhs, const Extent &rhs);
Extent multiplyExtents(const Extent &lhs, const Extent &rhs);
template <typename T, IfInteger<T> = 0>
Extent operator+(const Extent &lhs, T rhs) {
  return addExtents(lhs, static_cast<int64_t>(rhs));
}
template <typename T, IfInteger<T> = 0>
Extent operator+(T lhs, const Extent &rhs) {
  return rhs + lhs;
}
template <typename T, IfInteger<T> = 0>
Extent operator-(const Extent &lhs, T rhs) {
  return addExtents(lhs, -static_cast<int64_t>(rhs));
}
/// Of sizes that are not negative.
inline Extent operator*(const Extent &lhs, const Extent &rhs) {
  return multiplyExtents(lhs, rhs);
}
template <typename T, IfInteger<T> = 0>
Extent operator*(const Extent &lhs, T rhs) {
  return multiplyExtents(lhs, Extent(static_cast<int64_t>(rhs)));
}
template <typename T, IfInteger<T> = 0>
Extent operator*(T lhs, const Extent &rhs) {
  return rhs * lhs;
}
/// The divisor is positive.
Extent ceilDiv(const Extent &lhs, int64_t divisor);
Extent floorDiv(const Extent &lhs, int64_t divisor);
Extent atLeast(const Extent &size, int64_t least);

/// Whether an attribute is the map of an extent.
bool isExtentMap(mlir::Attribute attribute);

/// A number that divides the size whatever the extents are, the largest that
/// its expression shows; 0 for the constant 0.
int64_t getKnownDivisor(const Extent &size);

/// What numbers stand for, as the attribute `nsa.extents` of an operation or
/// the next one around it says.
class ExtentTable {
public:
  ExtentTable() = default;
  static ExtentTable of(mlir::Operation *op);
  /// Whether an attribute is what writeTo() writes.
  static bool isTable(mlir::Attribute attribute);

  bool empty() const { return entries.empty(); }
  /// What an extent of a type is.
  Extent find(int64_t number) const;
  /// Adds an extent that is no constant. False if its number is there for
  /// another one.
  bool add(const Extent &extent);
  /// Writes the attribute of `op`, and removes it where the table is empty.
  void writeTo(mlir::Operation *op) const;

  llvm::ArrayRef<Extent> getEntries() const { return entries; }
  llvm::SmallVector<Extent> getShape(mlir::ShapedType type) const;
  /// The elements from one index of a memref to the next, for each dimension.
  llvm::SmallVector<Extent> getStrides(mlir::MemRefType type) const;
  /// Elements, and those from the first to the last, both included.
  Extent getNumElements(mlir::ShapedType type) const;
  Extent getElementSpan(mlir::MemRefType type) const;
  /// Whether some dimension of the type is no constant.
  bool isNeededBy(mlir::ShapedType type) const;

private:
  llvm::SmallVector<Extent> entries;
};

/// What types of these sizes are made of.
llvm::SmallVector<int64_t> getNumbers(llvm::ArrayRef<Extent> shape);

/// For names: the number, or N where it is known at the call.
std::string formatExtent(const Extent &extent);

/// Dimension `index` of a tensor.
Extent getExtent(mlir::Value tensor, unsigned index);

/// The extent of an axis of a kernel's grid.
Extent getGridExtent(mlir::Operation *kernel, unsigned axis);
void setGridExtents(mlir::Operation *kernel, llvm::ArrayRef<Extent> grid);

/// Computes an expression of the values `extents`, of their integer type.
mlir::Value expandExtent(mlir::OpBuilder &builder, mlir::Location loc,
                         const Extent &extent, mlir::ValueRange extents);

} // namespace nsa

#endif // NSA_DIALECTS_INTERFACES_EXTENTS_H
