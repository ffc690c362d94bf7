//===- Assembly.h - instructions as text ------------------------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_ASSEMBLY_H
#define NSA_PASSES_CONVERSION_TILETONVVM_ASSEMBLY_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace nsa::cuda {

/// An instruction as text. In it, $0 and on are the results, which start as
/// `tied` if there are any, and then the inputs. With `ordersMemory` no access
/// to memory moves across.
struct Assembly {
  std::string text;
  llvm::SmallVector<mlir::Type> results;
  llvm::SmallVector<mlir::Value> inputs, tied;
  bool ordersMemory = false;

  llvm::SmallVector<mlir::Value> create(mlir::ImplicitLocOpBuilder &b) const;
};

/// Passes values through an instruction that orders accesses to registers:
/// what computes them stays before it, what uses them behind it. What they are
/// then.
llvm::SmallVector<mlir::Value> passThrough(mlir::ImplicitLocOpBuilder &b,
                                           llvm::StringRef instruction,
                                           mlir::ValueRange values);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_ASSEMBLY_H
