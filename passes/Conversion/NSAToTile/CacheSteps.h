//===- CacheSteps.h - all that a step writes to caches at once --*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_NSATOTILE_CACHESTEPS_H
#define NSA_PASSES_CONVERSION_NSATOTILE_CACHESTEPS_H

#include "passes/Conversion/LaunchGroup.h"

namespace nsa {

/// Launches together what rotates rows of a token, writes rows to caches, and
/// compresses those before them, as far as they do not need each other.
void launchCacheSteps(mlir::Block &block, KernelCache &cache);

} // namespace nsa

#endif // NSA_PASSES_CONVERSION_NSATOTILE_CACHESTEPS_H
