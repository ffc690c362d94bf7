//===- LaunchGroup.h - kernels side by side in one launch -------*- C++ -*-===//
//
// Horizontal fusion: independent kernels run as one launch, their programs
// numbered one after the other.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_LAUNCHGROUP_H
#define NSA_PASSES_KERNELS_LAUNCHGROUP_H

#include "passes/Kernels/KernelCache.h"

#include <functional>

namespace nsa {

/// One kernel of a group, as it would be launched alone. `build` gets its own
/// inputs and outputs, and its programs see a grid of their own.
struct LaunchPart {
  KernelSpec spec;
  llvm::SmallVector<mlir::Value> inputs;
  llvm::SmallVector<mlir::Type> outputs;
  std::function<void(tile::TileBuilder &b, llvm::ArrayRef<mlir::Value> args)>
      build;
};

/// Launches a part alone.
mlir::ResultRange launch(KernelCache &cache, mlir::OpBuilder &builder,
                         mlir::Operation *op, const LaunchPart &part);

/// Launches the parts as one kernel of `op`, called after the first part's
/// shape, and returns the outputs of each. Groups of other parts, or of parts
/// with other inputs, are other kernels.
llvm::SmallVector<llvm::SmallVector<mlir::Value>>
launchTogether(KernelCache &cache, mlir::OpBuilder &builder,
               mlir::Operation *op, llvm::StringRef suffix,
               llvm::ArrayRef<LaunchPart> parts);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_LAUNCHGROUP_H
