//===- NSAToTile.h - kernels of the nsa dialect, by file --------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_NSATOTILE_H
#define NSA_PASSES_KERNELS_NSA_NSATOTILE_H

#include "passes/Kernels/KernelCache.h"

namespace nsa {

void populateCompressPatterns(KernelPatterns &patterns);
/// Attention of every visibility, alone and in gated sums.
void populateAttentionPatterns(KernelPatterns &patterns);
void populateAttentionBackwardPatterns(KernelPatterns &patterns);
void populateSelectPatterns(KernelPatterns &patterns);
void populateCombinePatterns(KernelPatterns &patterns);
/// Of gates and of selected blocks.
void populateStatisticsPatterns(KernelPatterns &patterns);

/// Caches, and what one token at a time does with its position.
void populateCachePatterns(KernelPatterns &patterns);
/// Attention to caches.
void populateDecodeAttentionPatterns(KernelPatterns &patterns);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_NSATOTILE_H
