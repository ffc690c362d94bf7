//===- FunctionUtils.h - straight-line functions ----------------*- C++ -*-===//
//
// What the passes on model functions share. A model function is one block that
// ends in func.return.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_GRAPH_FUNCTIONUTILS_H
#define NSA_PASSES_GRAPH_FUNCTIONUTILS_H

#include "dialects/NN/NNAttributes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace nsa {

/// The return of a function with a body. Emits an error if it has not exactly
/// one block.
mlir::FailureOr<mlir::func::ReturnOp> getReturn(mlir::func::FuncOp function);

/// Tags of the locations of operations that passes derive from the model's.
inline constexpr llvm::StringLiteral kBackwardTag = "backward";
inline constexpr llvm::StringLiteral kRecomputeTag = "recompute";

/// `location` prefixed with a tag.
mlir::Location tagLocation(mlir::Location location, llvm::StringRef tag);

/// Whether the location of the operation has this tag as its prefix.
bool isTagged(mlir::Operation *op, llvm::StringRef tag);

/// Whether values of the type have a floating-point element type.
bool isFloatTensor(mlir::Type type);

/// The position of the result named `loss`. Emits an error if there is none or
/// if it is no tensor<f32>.
mlir::FailureOr<unsigned> findLoss(mlir::func::FuncOp function);

/// Infers the result types of an operation again after those of its operands
/// changed, and verifies it. Emits an error if the operation does not infer its
/// types or does not verify.
llvm::LogicalResult inferResultTypes(mlir::Operation *op);

/// Infers them wherever they may follow from `changed`, in a function of one
/// block, whose type follows, too. Returns how many operations were looked at.
mlir::FailureOr<unsigned> inferResultTypes(mlir::func::FuncOp function,
                                           llvm::DenseSet<mlir::Value> changed);

/// Makes the function type follow the block arguments and returned values.
void updateFunctionType(mlir::func::FuncOp function);

/// The attributes that give an argument its name and role.
mlir::NamedAttrList nameArgument(mlir::MLIRContext *context,
                                 const llvm::Twine &name,
                                 nn::ArgumentRole role);

/// Adds arguments and results to a function. Its type and its attributes are
/// built anew at every change, so they follow all at once, in `update`; until
/// then only the body is complete.
class Signature {
public:
  explicit Signature(mlir::func::FuncOp function);

  mlir::BlockArgument addArgument(mlir::Type type,
                                  mlir::NamedAttrList attributes,
                                  mlir::Location loc);
  /// A persistent tensor that starts with one number everywhere.
  mlir::BlockArgument addState(const llvm::Twine &name, nn::ArgumentRole role,
                               double initial, mlir::Type type,
                               mlir::Location loc);
  /// One that the optimizer calls `state`, of the parameter or parameters
  /// `of`.
  mlir::BlockArgument addOptimizerState(llvm::StringRef state,
                                        const llvm::Twine &of, double initial,
                                        mlir::Type type, mlir::Location loc);
  /// Returns the position of the new result.
  unsigned addResult(mlir::Value value, mlir::NamedAttrList attributes);
  /// The attributes of an argument or a result, to read and to change.
  mlir::NamedAttrList &getArgument(unsigned index) { return arguments[index]; }
  mlir::NamedAttrList &getResult(unsigned index) { return results[index]; }
  /// Makes the function what this says.
  void update();

private:
  mlir::func::FuncOp function;
  llvm::SmallVector<mlir::NamedAttrList> arguments, results;
};

/// Keeps only the results at the positions `keep`, in that order, with their
/// attributes.
void keepResults(mlir::func::FuncOp function, llvm::ArrayRef<unsigned> keep);

/// Erases operations without effects and uses. Returns how many.
unsigned eraseDeadOps(mlir::func::FuncOp function);

} // namespace nsa

#endif // NSA_PASSES_GRAPH_FUNCTIONUTILS_H
