//===- ThreadLists.h - lists that lie in one thread each --------*- C++ -*-===//

#ifndef NSA_PASSES_TILEGPUTONVVM_THREADLISTS_H
#define NSA_PASSES_TILEGPUTONVVM_THREADLISTS_H

#include "passes/TileGPUToNVVM/Patterns.h"

namespace nsa::cuda {

/// What is not above it is no candidate.
inline constexpr double kLeast = -0.5;

/// A top-n, and a sort, of rows that lie in one thread each (`isInThreads`).
Results lowerTopNInThreads(tile::TopNOp op, TileReader &in);
Results lowerSortInThreads(tile::SortOp op, TileReader &in);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPUTONVVM_THREADLISTS_H
