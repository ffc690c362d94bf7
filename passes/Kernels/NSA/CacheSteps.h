//===- CacheSteps.h - all that a step writes to caches at once --*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_CACHESTEPS_H
#define NSA_PASSES_KERNELS_NSA_CACHESTEPS_H

#include "passes/Kernels/LaunchGroup.h"

namespace nsa {

/// Merges the launches that rotate rows of a token, write rows to caches and
/// compress earlier rows, as far as they are independent.
void launchCacheSteps(mlir::Block &block, KernelCache &cache);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_CACHESTEPS_H
