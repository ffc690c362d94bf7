//===- NSAToTile.h - kernels of the nsa dialect, by file --------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_NSATOTILE_NSATOTILE_H
#define NSA_PASSES_CONVERSION_NSATOTILE_NSATOTILE_H

#include "passes/Conversion/KernelCache.h"

namespace nsa {

void populateCompressPatterns(mlir::RewritePatternSet &patterns,
                              KernelCache &cache);
/// Compression of keys and values at once.
void populateCompressKeyValuePatterns(mlir::RewritePatternSet &patterns,
                                      KernelCache &cache);
/// Compressed and window attention, forward and backward.
void populateDenseAttentionPatterns(mlir::RewritePatternSet &patterns,
                                    KernelCache &cache);
void populateSelectPatterns(mlir::RewritePatternSet &patterns,
                            KernelCache &cache);
void populateSelectedAttentionPatterns(mlir::RewritePatternSet &patterns,
                                       KernelCache &cache);
void populateSelectedAttentionBackwardPatterns(
    mlir::RewritePatternSet &patterns, KernelCache &cache);
void populateCombinePatterns(mlir::RewritePatternSet &patterns,
                             KernelCache &cache);
/// Of gates and of selected blocks.
void populateStatisticsPatterns(mlir::RewritePatternSet &patterns,
                                KernelCache &cache);
void populateGatedAttentionPatterns(mlir::RewritePatternSet &patterns,
                                    KernelCache &cache);
void populateGatedAttentionBackwardPatterns(mlir::RewritePatternSet &patterns,
                                            KernelCache &cache);

/// Caches, and what one token at a time does with its position.
void populateCachePatterns(mlir::RewritePatternSet &patterns,
                           KernelCache &cache);
/// Attention to caches.
void populateDecodeAttentionPatterns(mlir::RewritePatternSet &patterns,
                                     KernelCache &cache);

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
