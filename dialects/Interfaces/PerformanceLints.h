//===- PerformanceLints.h - names of performance lints ----------*- C++ -*-===//
//-*-===//

#ifndef NSA_DIALECTS_INTERFACES_PERFORMANCELINTS_H
#define NSA_DIALECTS_INTERFACES_PERFORMANCELINTS_H

#include "dialects/Interfaces/AttributeNames.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SetVector.h"

namespace nsa {

// See nsa-check-performance-lints for what they mean.
inline constexpr llvm::StringLiteral kScalarLoopPath = "scalar-loop";
inline constexpr llvm::StringLiteral kScalarAccessPath = "scalar-access";
inline constexpr llvm::StringLiteral kScalarProductPath = "scalar-product";
inline constexpr llvm::StringLiteral kUnfusedPath = "unfused";
inline constexpr llvm::StringLiteral kSpillPath = "spill";
inline constexpr llvm::StringLiteral kSerialisedPath = "serialised";
inline constexpr llvm::StringLiteral kCopyPath = "copy";

/// A kernel with fewer bytes of arguments is never slow: passing over them
/// takes little longer than starting it.
inline constexpr uint64_t kNegligibleBytes = 128 << 10;

/// The names in the attribute of an operation.
inline llvm::SmallVector<llvm::StringRef>
getPerformanceLints(mlir::Operation *op) {
  llvm::SmallVector<llvm::StringRef> names;
  if (auto paths = op->getAttrOfType<mlir::ArrayAttr>(kPerformanceLintsAttr))
    for (auto name : paths.getAsValueRange<mlir::StringAttr>())
      names.push_back(name);
  return names;
}

/// Adds names to the attribute of an operation, each once.
inline void addPerformanceLints(mlir::Operation *op,
                                llvm::ArrayRef<llvm::StringRef> added) {
  llvm::SetVector<llvm::StringRef> names;
  names.insert_range(getPerformanceLints(op));
  names.insert_range(added);
  if (!names.empty())
    op->setAttr(
        kPerformanceLintsAttr,
        mlir::Builder(op->getContext()).getStrArrayAttr(names.getArrayRef()));
}

/// The bytes of memory that a kernel with these arguments is given.
inline uint64_t getArgumentBytes(mlir::TypeRange arguments) {
  uint64_t bytes = 0;
  for (mlir::Type type : arguments) {
    auto memory = mlir::cast<mlir::MemRefType>(type);
    bytes += uint64_t(memory.getNumElements()) *
             llvm::divideCeil(memory.getElementTypeBitWidth(), 8);
  }
  return bytes;
}

} // namespace nsa

#endif // NSA_DIALECTS_INTERFACES_PERFORMANCELINTS_H
