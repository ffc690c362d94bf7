//===- NSAToTile.cpp - kernels of the nsa dialect -------------------------===//

#include "passes/Kernels/NSA/NSAToTile.h"

void nsa::populateNSAToTilePatterns(KernelPatterns &patterns) {
  populateCompressPatterns(patterns);
  populateAttentionPatterns(patterns);
  populateSelectPatterns(patterns);
  populateAttentionBackwardPatterns(patterns);
  populateCombinePatterns(patterns);
  populateStatisticsPatterns(patterns);
  populateCachePatterns(patterns);
  populateDecodeAttentionPatterns(patterns);
}
