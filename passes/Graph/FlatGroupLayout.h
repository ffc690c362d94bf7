//===- FlatGroupLayout.h - which tensors are neighbours ---------*- C++ -*-===//

#ifndef NSA_PASSES_GRAPH_FLATGROUPLAYOUT_H
#define NSA_PASSES_GRAPH_FLATGROUPLAYOUT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace nsa {

/// The flat groups of a module so far: the functions share the memory of their
/// persistent tensors, so each tensor has the same neighbours in all of them. A
/// flat group may be a range of a longer one.
class FlatGroupLayout {
public:
  /// Starts from the flat groups that there are.
  explicit FlatGroupLayout(mlir::ModuleOp module);

  /// Whether these tensors may lie one after the other; then they do.
  bool claim(llvm::ArrayRef<llvm::StringRef> tensors);

  /// The numbers of `tensors` in an order that keeps claimed groups together,
  /// else as they are.
  llvm::SmallVector<unsigned>
  arrange(llvm::ArrayRef<llvm::StringRef> tensors) const;

private:
  /// Flat groups, as names each between line breaks, and the longest that a
  /// tensor is in.
  llvm::SmallVector<std::string> groups;
  llvm::StringMap<unsigned> longest;
};

} // namespace nsa

#endif // NSA_PASSES_GRAPH_FLATGROUPLAYOUT_H
