//===- AccessWidth.h - elements that can be moved together ------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_ACCESSWIDTH_H
#define NSA_PASSES_CONVERSION_TILETONVVM_ACCESSWIDTH_H

#include "dialects/Tile/TileOps.h"

namespace nsa::cuda {

/// The largest power of two up to `most` such that this many columns of an
/// access, beginning at a multiple of the number, always lie together in
/// memory, aligned as a whole, and are either all inside or all outside. An
/// argument that is columns of wider rows begins at a multiple of 8 elements:
/// that is how `nsa-merge-projections` cuts them for a GPU.
int64_t getAccessWidth(mlir::Value ref, mlir::ValueRange indices, int64_t most);

/// The largest power of two up to `most`, itself one, that surely divides an
/// i32.
int64_t getDivisor(mlir::Value value, int64_t most);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_ACCESSWIDTH_H
