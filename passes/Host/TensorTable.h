//===- TensorTable.h - the named tensors of a program -----------*- C++ -*-===//

#ifndef NSA_PASSES_HOST_TENSORTABLE_H
#define NSA_PASSES_HOST_TENSORTABLE_H

#include "dialects/NN/NNAttributes.h"
#include "dialects/RT/RTOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace nsa {

/// The `rt.tensor` of every argument and result of a module's functions.
/// Persistent tensors are shared by name, inputs and outputs by name and type.
class TensorTable {
public:
  explicit TensorTable(mlir::ModuleOp module)
      : module(module), symbols(module) {}

  /// Creates the tensors at the beginning of the module. Fails, with a
  /// diagnostic at the argument, where two functions disagree about a name.
  mlir::LogicalResult add(llvm::ArrayRef<mlir::func::FuncOp> functions);

  rt::TensorOp getArgument(mlir::func::FuncOp function, unsigned index) const {
    return arguments.lookup({function.getOperation(), index});
  }

  /// The output of a result; null for a result that updates an argument.
  rt::TensorOp getResult(mlir::func::FuncOp function, unsigned index) const {
    return results.lookup({function.getOperation(), index});
  }

  /// The tensors that have an initial value, in the order of the module.
  llvm::SmallVector<rt::TensorOp> getInitialized() const;

  /// The symbols of the module, tensors included.
  mlir::SymbolTable &getSymbols() { return symbols; }

private:
  using Key = std::pair<mlir::Operation *, unsigned>;

  mlir::LogicalResult addPersistent(mlir::func::FuncOp function,
                                    unsigned index);
  mlir::LogicalResult addIO(mlir::func::FuncOp function);
  /// The input or output called `name`, or null after a diagnostic.
  rt::TensorOp claimIO(mlir::func::FuncOp function, const std::string &name,
                       rt::TensorRole role, mlir::Type tensorType,
                       mlir::Location loc);
  rt::TensorOp create(llvm::StringRef name, rt::TensorRole role,
                      mlir::MemRefType type, nn::InitAttr init, bool decay,
                      llvm::StringRef state, mlir::Location loc);

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  llvm::SmallVector<rt::TensorOp> tensors;
  llvm::DenseMap<Key, rt::TensorOp> arguments;
  llvm::DenseMap<Key, rt::TensorOp> results;
};

/// The memory of a tensor, or null if the runtime has none of this type.
mlir::MemRefType getMemoryType(mlir::Type tensorType);

/// The dense memory that holds `type`, with what lies between its rows.
mlir::MemRefType getBufferType(mlir::MemRefType type);

} // namespace nsa

#endif // NSA_PASSES_HOST_TENSORTABLE_H
