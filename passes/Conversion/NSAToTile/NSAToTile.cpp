//===- NSAToTile.cpp - kernels of the nsa dialect -------------------------===//

#include "passes/Conversion/NSAToTile/NSAToTile.h"

void nsa::populateNSAToTilePatterns(mlir::RewritePatternSet &patterns,
                                    KernelCache &cache) {
  populateCompressPatterns(patterns, cache);
  populateCompressKeyValuePatterns(patterns, cache);
  populateDenseAttentionPatterns(patterns, cache);
  populateSelectPatterns(patterns, cache);
  populateSelectedAttentionPatterns(patterns, cache);
  populateSelectedAttentionBackwardPatterns(patterns, cache);
  populateCombinePatterns(patterns, cache);
  populateStatisticsPatterns(patterns, cache);
  populateGatedAttentionPatterns(patterns, cache);
  populateGatedAttentionBackwardPatterns(patterns, cache);
  populateCachePatterns(patterns, cache);
  populateDecodeAttentionPatterns(patterns, cache);
}
