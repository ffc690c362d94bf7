//===- FuseUpdates.h - one update of many tensors ---------------*- C++ -*-===//

#ifndef NSA_PASSES_TRANSFORMS_FUSEUPDATES_H
#define NSA_PASSES_TRANSFORMS_FUSEUPDATES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

namespace nsa {

/// The bundles of a module so far: the functions share the memory of their
/// persistent tensors, so each tensor has the same neighbours in all of them.
class BundleLayout {
public:
  /// Whether these tensors may lie one after the other; then they do.
  bool claim(llvm::ArrayRef<llvm::StringRef> tensors);

private:
  llvm::StringMap<std::string> neighbours;
};

/// Turns the `nn.adamw` operations of a function that have the same scalars
/// into one on bundles, and its `nn.gradient_norm` and the fills of gradients
/// into one of each on the bundle of all gradients. Returns how many
/// operations were replaced.
unsigned fuseUpdates(mlir::func::FuncOp function, BundleLayout &layout);

} // namespace nsa

#endif // NSA_PASSES_TRANSFORMS_FUSEUPDATES_H
