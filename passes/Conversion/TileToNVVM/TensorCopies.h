//===- TensorCopies.h - loads that the TMA unit can make --------*- C++ -*-===//
//
// On sm_90a one thread can have a box of a tensor copied to shared memory
// (cp.async.bulk.tensor), swizzled as dots of warpgroups read it. What the
// tensor looks like is a parameter of the kernel, a tensor map. No IR is made
// here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_TENSORCOPIES_H
#define NSA_PASSES_CONVERSION_TILETONVVM_TENSORCOPIES_H

#include "dialects/RT/RTOps.h"
#include "passes/Conversion/TileToNVVM/AccessWidth.h"

namespace nsa::cuda {

/// A load as TMA tiles that lie beside each other: the swizzle atom columns of
/// a shared tile, or one line of 4-byte elements.
struct TensorCopy {
  rt::TensorMapAttr map;
  /// Where the first box starts along each dimension, innermost first.
  llvm::SmallVector<mlir::Value> start;
  /// How many tiles there are along the innermost dimension, and the elements
  /// and bytes of each.
  int64_t boxes, boxElements, boxBytes;

  int64_t bytes() const { return boxes * boxBytes; }
};

/// A copy to a buffer, or the load of a line of a tile in the MMA layout, as
/// TMA tiles. Nothing if it needs more than ranges along one or two dimensions
/// of an argument, padding, or places that are no multiples of 16 bytes.
std::optional<TensorCopy> findTensorCopy(const ReadAccess &access);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_TENSORCOPIES_H
