//===- PrepareKernel.h - save registers before emission ---------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_PREPAREKERNEL_H
#define NSA_PASSES_CONVERSION_TILETONVVM_PREPAREKERNEL_H

#include "dialects/Tile/TileOps.h"

namespace nsa::cuda {

/// Rewrites a kernel with fragments so that fewer of them live at once:
///
/// - A loop that starts a sum of products at zero, which is then added to
///   another sum, continues that sum instead. The order of the additions
///   changes.
/// - A tile that is loaded before a loop and used behind it is loaded there.
/// - Operands a that are the same in all iterations stay in shared memory where
///   a loop carries many sums, and of all products that warpgroups may make
///   (`wgmma`).
/// - What all threads repeat in an iteration is made behind its first products.
void prepareKernel(tile::KernelOp kernel, bool wgmma);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_PREPAREKERNEL_H
