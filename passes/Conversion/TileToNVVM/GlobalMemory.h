//===- GlobalMemory.h - addresses and accesses of threads -------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_GLOBALMEMORY_H
#define NSA_PASSES_CONVERSION_TILETONVVM_GLOBALMEMORY_H

#include "passes/Conversion/TileToNVVM/TileReader.h"

namespace nsa::cuda {

struct Address {
  mlir::Value offset;
  /// Whether every coordinate is inside; null if that is known.
  mlir::Value valid;
};

/// Whether every coordinate of an index is known to be inside.
bool isInside(TileBounds &bounds, mlir::Value index, const Extent &extent);
/// The address of coordinates of indices; those that are null are left out.
Address addressOf(TileReader &in, mlir::Value ref, mlir::ValueRange indices,
                  mlir::ValueRange coordinates);
Address both(ThreadBuilder &b, const Address &lhs, const Address &rhs);
/// Reads an element, or the vector of `count` that lie together; element 0 and
/// on instead of those outside, for which it gives zeros.
mlir::Value loadFrom(TileReader &in, mlir::Value ref, const Address &address,
                     int64_t count = 1);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_GLOBALMEMORY_H
