//===- GlobalAccesses.h - what operations do to arguments -------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_GLOBALACCESSES_H
#define NSA_PASSES_CONVERSION_TILETONVVM_GLOBALACCESSES_H

#include "dialects/TileGPU/TileGPUOps.h"

namespace nsa::cuda {

/// A read or a write of an argument of a kernel.
struct GlobalAccess {
  mlir::Value argument;
  bool isWrite;
  /// The load or store, if each element is one thread's; null if several
  /// threads may have it.
  mlir::Operation *owned;

  bool operator==(const GlobalAccess &other) const {
    return argument == other.argument && isWrite == other.isWrite &&
           owned == other.owned;
  }
};

/// What an operation reads and writes itself, or where threads evaluate its
/// operands; regions aside. A wait for loads by TMA is the read of these.
llvm::SmallVector<GlobalAccess> getGlobalAccesses(mlir::Operation *op);

/// Whether the same threads access the same elements, each its own.
bool haveSameOwners(const GlobalAccess &x, const GlobalAccess &y);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_GLOBALACCESSES_H
