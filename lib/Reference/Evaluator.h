//===- Evaluator.h - runs nsa and nn functions in fp64 ----------*- C++ -*-===//
//
// Interprets a straight-line function of nsa and nn operations with the
// algorithms of lib/Reference. It never calls a kernel: this is what kernels
// are compared with.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_REFERENCE_EVALUATOR_H
#define NSA_LIB_REFERENCE_EVALUATOR_H

#include "lib/Reference/Kernels/Arithmetic.h"
#include "lib/Reference/Kernels/Tensor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

#include <functional>

namespace nsa::reference {

/// Gives an operation's results (shaped like its result types) from its
/// operands.
using Handler = std::function<llvm::LogicalResult(
    mlir::Operation *op, llvm::ArrayRef<const Tensor *> operands,
    llvm::SmallVectorImpl<Tensor> &results)>;

/// Sees the results of an operation before anyone reads them, and may change
/// them.
using ResultHook =
    std::function<void(mlir::Operation *op, llvm::MutableArrayRef<Tensor>)>;

/// How an operation's formula is evaluated.
using ArithmeticOf = std::function<Arithmetic(mlir::Operation *op)>;

class Evaluator {
public:
  /// With `roundResults`, every result is rounded to its element type, which
  /// gives the error that the types alone cause.
  explicit Evaluator(bool roundResults = false);
  Evaluator(const Evaluator &) = delete;
  Evaluator &operator=(const Evaluator &) = delete;

  /// Adds the meaning of one operation.
  template <typename OpTy>
  void
  add(std::function<llvm::LogicalResult(OpTy op,
                                        llvm::ArrayRef<const Tensor *> operands,
                                        llvm::SmallVectorImpl<Tensor> &results)>
          handler) {
    handlers[OpTy::getOperationName()] =
        [handler = std::move(handler)](mlir::Operation *op,
                                       llvm::ArrayRef<const Tensor *> operands,
                                       llvm::SmallVectorImpl<Tensor> &results) {
          return handler(llvm::cast<OpTy>(op), operands, results);
        };
  }

  /// Calls `hook` after every operation.
  void setResultHook(ResultHook hook) { resultHook = std::move(hook); }

  /// Operations with products of products are evaluated in this arithmetic
  /// instead of F64.
  void setArithmetic(ArithmeticOf of) { arithmetic = std::move(of); }
  Arithmetic getArithmetic(mlir::Operation *op) const {
    return arithmetic ? arithmetic(op) : Arithmetic::F64;
  }

  /// Evaluates `function` on `inputs`, one for each argument. Emits an error
  /// at an operation that has no meaning here.
  llvm::LogicalResult run(mlir::func::FuncOp function,
                          llvm::ArrayRef<Tensor> inputs,
                          llvm::SmallVectorImpl<Tensor> &results) const;

private:
  llvm::LogicalResult runOp(mlir::Operation *op,
                            llvm::DenseMap<mlir::Value, Tensor> &values) const;
  /// Runs the operations of an `nn.fused` or `nsa.fused` one by one.
  template <typename OpT>
  llvm::LogicalResult
  runFused(OpT op, llvm::DenseMap<mlir::Value, Tensor> &values) const;

  bool roundResults;
  ResultHook resultHook;
  ArithmeticOf arithmetic;
  llvm::StringMap<Handler> handlers;
};

/// Registers the operations of one dialect.
void addNSAHandlers(Evaluator &evaluator);
void addNNHandlers(Evaluator &evaluator);

/// `value` rounded to the nearest number of a floating-point type.
double roundTo(mlir::Type type, double value);

/// The shape of a ranked tensor type.
std::vector<int64_t> shapeOf(mlir::Value value);

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_EVALUATOR_H
