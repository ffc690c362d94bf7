//===- NSAToTile.h - kernels of the nsa dialect, by file --------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_NSATOTILE_NSATOTILE_H
#define NSA_PASSES_CONVERSION_NSATOTILE_NSATOTILE_H

#include "passes/Conversion/KernelCache.h"

namespace nsa {

void populateCompressPatterns(KernelPatterns &patterns);
/// Compression of keys and values at once.
void populateCompressKeyValuePatterns(KernelPatterns &patterns);
/// Compressed and window attention, forward and backward.
void populateDenseAttentionPatterns(KernelPatterns &patterns);
void populateSelectPatterns(KernelPatterns &patterns);
void populateSelectedAttentionPatterns(KernelPatterns &patterns);
void populateSelectedAttentionBackwardPatterns(KernelPatterns &patterns);
void populateCombinePatterns(KernelPatterns &patterns);
/// Of gates and of selected blocks.
void populateStatisticsPatterns(KernelPatterns &patterns);
void populateGatedAttentionPatterns(KernelPatterns &patterns);
void populateGatedAttentionBackwardPatterns(KernelPatterns &patterns);

/// Caches, and what one token at a time does with its position.
void populateCachePatterns(KernelPatterns &patterns);
/// Attention to caches.
void populateDecodeAttentionPatterns(KernelPatterns &patterns);

/// Launches what one token of each sequence does with caches in a few kernels
/// whose programs fill a GPU: all that writes caches at once; attention and
/// scores in parts of the cached rows; and the sum of all parts and branches.
void launchDecodeSteps(mlir::ModuleOp module, KernelCache &cache);

/// Replaces attention that rotates what it loads where the launch that
/// compresses its keys can do it: on machines with many programs, each of which
/// would read the table of angles.
void rotateWithCompression(mlir::ModuleOp module, KernelCache &cache);

} // namespace nsa

#endif // NSA_PASSES_CONVERSION_NSATOTILE_NSATOTILE_H
