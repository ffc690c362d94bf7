//===- OpChecks.h - what every op of the project verifies -------*- C++ -*-===//
//
// The traits of OpChecks.td.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_INTERFACES_OPCHECKS_H
#define NSA_INTERFACES_OPCHECKS_H

#include "mlir/IR/OpDefinition.h"

namespace nsa {

/// Elements of a tensor at most.
constexpr int64_t kMaxElements = int64_t(1) << 48;

/// A shaped type of static shape has at most `kMaxElements`; reported on `op`.
llvm::LogicalResult checkNumElements(mlir::Operation *op, mlir::Type type);

/// Every attribute of the operation that is not its own has the prefix of a
/// dialect.
llvm::LogicalResult checkAttributes(mlir::Operation *op);

/// "; did you mean `X`?" with the one of `known` that is nearest to `name`, or
/// nothing if none is near.
std::string suggestName(llvm::StringRef name,
                        llvm::ArrayRef<llvm::StringRef> known);

/// Reports an attribute with the prefix of a dialect that is none of the
/// `known` ones of this dialect, or not where it stands.
llvm::LogicalResult refuseAttribute(mlir::Operation *op,
                                    mlir::NamedAttribute attribute,
                                    llvm::ArrayRef<llvm::StringRef> known = {});

template <typename OpT>
class KnownAttributes : public mlir::OpTrait::TraitBase<OpT, KnownAttributes> {
public:
  static llvm::LogicalResult verifyTrait(mlir::Operation *op) {
    return checkAttributes(op);
  }
};

template <typename OpT>
class LimitedSizes : public mlir::OpTrait::TraitBase<OpT, LimitedSizes> {
public:
  static llvm::LogicalResult verifyTrait(mlir::Operation *op) {
    for (mlir::Type type : op->getOperandTypes())
      if (failed(checkNumElements(op, type)))
        return llvm::failure();
    for (mlir::Type type : op->getResultTypes())
      if (failed(checkNumElements(op, type)))
        return llvm::failure();
    return llvm::success();
  }
};

template <typename AttrT>
class InitialValue
    : public mlir::AttributeTrait::TraitBase<AttrT, InitialValue> {};

} // namespace nsa

#endif // NSA_INTERFACES_OPCHECKS_H
