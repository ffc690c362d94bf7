//===- LaunchOverlap.h - which launches may begin early ---------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CUDA_LAUNCHOVERLAP_H
#define NSA_LIB_TARGET_CUDA_LAUNCHOVERLAP_H

#include "mlir/IR/BuiltinOps.h"

namespace nsa {

/// Marks the kernels of the entry `decode`, if there is one: its launches are
/// short, and each may begin while the one before it ends. Says which arguments
/// hold what nothing in the entry writes; those that the kernel does not use
/// are prefetched, as far as they fit the cache.
void noteLaunchOverlap(mlir::ModuleOp module);

} // namespace nsa

#endif // NSA_LIB_TARGET_CUDA_LAUNCHOVERLAP_H
