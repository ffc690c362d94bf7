//===- ReleaseStatistics.h - statistics as LLVM was built -------*- C++ -*-===//
//
// llvm::Statistic has other members in a build with assertions than in one
// without. This project keeps its assertions although the packaged LLVM has
// none, so that what LLVM constructs would lack the members that a pass here
// counts with. Where CMake finds a release build of LLVM it includes this file
// ahead of every source that defines passes: statistics are then what they are
// in LLVM, empty.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_RELEASESTATISTICS_H
#define NSA_PASSES_RELEASESTATISTICS_H

#ifndef NDEBUG
#define NDEBUG
#include "llvm/ADT/Statistic.h"
#undef NDEBUG
// It may have been included as if without assertions.
#include <cassert>
#endif

static_assert(!LLVM_ENABLE_STATS, "this file comes before any other");

#endif // NSA_PASSES_RELEASESTATISTICS_H
