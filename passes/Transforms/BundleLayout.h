//===- BundleLayout.h - which tensors are neighbours ------------*- C++ -*-===//

#ifndef NSA_PASSES_TRANSFORMS_BUNDLELAYOUT_H
#define NSA_PASSES_TRANSFORMS_BUNDLELAYOUT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace nsa {

/// The bundles of a module so far: the functions share the memory of their
/// persistent tensors, so each tensor has the same neighbours in all of them. A
/// bundle may be a stretch of a longer one.
class BundleLayout {
public:
  /// Starts from the bundles that there are.
  explicit BundleLayout(mlir::ModuleOp module);

  /// Whether these tensors may lie one after the other; then they do.
  bool claim(llvm::ArrayRef<llvm::StringRef> tensors);

  /// The numbers of `tensors` in an order that leaves together what is claimed,
  /// else as they are.
  llvm::SmallVector<unsigned>
  arrange(llvm::ArrayRef<llvm::StringRef> tensors) const;

private:
  /// Bundles, as names each between line breaks, and the longest that a tensor
  /// is in.
  llvm::SmallVector<std::string> bundles;
  llvm::StringMap<unsigned> longest;
};

} // namespace nsa

#endif // NSA_PASSES_TRANSFORMS_BUNDLELAYOUT_H
