//===- Combine.h - how reductions combine elements --------------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_COMBINE_H
#define NSA_PASSES_CONVERSION_TILETONVVM_COMBINE_H

#include "dialects/Tile/TileOps.h"
#include "passes/Conversion/TileToNVVM/ThreadBuilder.h"

namespace nsa::cuda {

mlir::Value combine(ThreadBuilder &b, tile::ReduceKind kind, mlir::Value x,
                    mlir::Value y);

/// The larger (smaller) number, in one instruction; a NaN does not win.
mlir::Value getMaximum(ThreadBuilder &b, mlir::Value x, mlir::Value y);
mlir::Value getMinimum(ThreadBuilder &b, mlir::Value x, mlir::Value y);

/// What changes nothing when it is combined with another element.
mlir::Value neutralElement(ThreadBuilder &b, tile::ReduceKind kind,
                           mlir::Type element);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_COMBINE_H
