//===- AccessWidth.h - elements that can be moved together ------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_ACCESSWIDTH_H
#define NSA_PASSES_CONVERSION_TILETONVVM_ACCESSWIDTH_H

#include "dialects/Tile/TileOps.h"

namespace nsa::cuda {

/// The kernel's argument that `ref` shows.
mlir::Value getArgument(mlir::Value ref);

/// Bytes of which the address of the kernel's argument behind `ref` is a
/// multiple.
int64_t getAlignment(mlir::Value ref);

/// The largest power of two up to `most` such that this many columns of an
/// access, beginning at a multiple of the number, always lie together in
/// memory, aligned as a whole, and are either all inside or all outside.
int64_t getAccessWidth(mlir::Value ref, mlir::ValueRange indices, int64_t most);

/// The largest power of two up to `most`, itself one, that surely divides an
/// i32.
int64_t getDivisor(mlir::Value value, int64_t most);

/// How many elements of `ref`, of `cols` columns, one access of a thread can
/// move.
int64_t getMostTogether(mlir::Value ref, int64_t cols);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_ACCESSWIDTH_H
