//===- NSAToTile.cpp - kernels of the nsa dialect -------------------------===//

#include "passes/Kernels/NSA/NSAToTile.h"

void nsa::populateNSAToTilePatterns(KernelPatterns &patterns) {
  populateCompressPatterns(patterns);
  populateDenseAttentionPatterns(patterns);
  populateSelectPatterns(patterns);
  populateSelectedAttentionPatterns(patterns);
  populateSelectedAttentionBackwardPatterns(patterns);
  populateCombinePatterns(patterns);
  populateStatisticsPatterns(patterns);
  populateGatedAttentionPatterns(patterns);
  populateGatedAttentionBackwardPatterns(patterns);
  populateCachePatterns(patterns);
  populateDecodeAttentionPatterns(patterns);
}
