//===- OptimizerOpInterface.h - steps of optimizers -------------*- C++ -*-===//
//
// The interfaces through which passes build, fuse, shard and lower the steps of
// an optimizer, whichever it is. docs/add-an-optimizer.md says how to add one.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_INTERFACES_OPTIMIZEROPINTERFACE_H
#define NSA_INTERFACES_OPTIMIZEROPINTERFACE_H

#include "dialects/Interfaces/Expr.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"

namespace nsa {

class OptimizerOpInterface;

/// Emits a load of the scalar at the coordinates of some memory.
using ScalarLoader = llvm::function_ref<Expr(mlir::Value memory,
                                             llvm::ArrayRef<int64_t> indices)>;

/// A tensor that an optimizer keeps for a weight. Checkpoints call it
/// `name.weight`; the name has no dot.
struct OptimizerState {
  llvm::StringRef name;
  mlir::RankedTensorType type;
  /// The value of every element before the first step.
  double initial = 0.0;
};

/// Operands and results are those that `OptimizerOpInterface` says.
llvm::LogicalResult verifyOptimizerOp(mlir::Operation *op);

} // namespace nsa

#include "dialects/Interfaces/OptimizerOpInterface.h.inc"

namespace nsa {

/// An optimizer of which no operation is there yet: the operation `nn.KIND`.
class OptimizerKind {
public:
  /// The optimizer called `kind`, such as "adamw"; nothing if there is none.
  static std::optional<OptimizerKind> find(mlir::MLIRContext *context,
                                           llvm::StringRef kind);
  /// The names of all, in alphabetical order.
  static llvm::SmallVector<llvm::StringRef> list(mlir::MLIRContext *context);

  bool canUpdate(mlir::RankedTensorType weight) const {
    return methods->canUpdate(weight);
  }
  llvm::StringRef getCompanion() const { return methods->getCompanion(); }
  llvm::SmallVector<OptimizerState>
  getStateSpecs(mlir::RankedTensorType weight) const {
    return methods->getStateSpecs(weight);
  }
  /// `operands` are those that `OptimizerOpInterface` says, `compute` is the
  /// element type in which the model computes with the weight: an optimizer
  /// with an attribute `element_type` makes its matmuls in it.
  OptimizerOpInterface create(mlir::OpBuilder &builder, mlir::Location loc,
                              mlir::ValueRange operands, bool decay,
                              mlir::Type compute) const;
  mlir::OperationName getName() const { return name; }

private:
  OptimizerKind(mlir::OperationName name,
                OptimizerOpInterface::Concept *methods)
      : name(name), methods(methods) {}

  mlir::OperationName name;
  OptimizerOpInterface::Concept *methods;
};

} // namespace nsa

#endif // NSA_INTERFACES_OPTIMIZEROPINTERFACE_H
