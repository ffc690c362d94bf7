//===- NNToTile.cpp - kernels of the nn dialect ---------------------------===//

#include "passes/Conversion/KernelCache.h"

void nsa::populateNNToTilePatterns(mlir::RewritePatternSet &patterns,
                                   KernelCache &cache) {}
