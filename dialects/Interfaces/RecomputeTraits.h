//===- RecomputeTraits.h - what backward may compute again ------*- C++ -*-===//
//
// The traits by which `nsa-recompute` judges operations. RecomputeTraits.td
// says what each means; an operation without any is computed again only
// together with the block that it lies in.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_INTERFACES_RECOMPUTETRAITS_H
#define NSA_INTERFACES_RECOMPUTETRAITS_H

#include "mlir/IR/OpDefinition.h"

namespace nsa {

template <typename OpT>
class CheapToRecompute
    : public mlir::OpTrait::TraitBase<OpT, CheapToRecompute> {};

template <typename OpT>
class KeptForBackward : public mlir::OpTrait::TraitBase<OpT, KeptForBackward> {
};

template <typename OpT>
class ViewOfOperand : public mlir::OpTrait::TraitBase<OpT, ViewOfOperand> {
public:
  static llvm::LogicalResult verifyTrait(mlir::Operation *op) {
    static_assert(OpT::template hasTrait<mlir::OpTrait::OneOperand>(),
                  "a view has one operand");
    return llvm::success();
  }
};

template <typename OpT>
class ViewOfArguments : public mlir::OpTrait::TraitBase<OpT, ViewOfArguments> {
};

} // namespace nsa

#endif // NSA_INTERFACES_RECOMPUTETRAITS_H
