//===- SinkRows.h - rows behind dots ----------------------------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_SINKROWS_H
#define NSA_PASSES_CONVERSION_TILETONVVM_SINKROWS_H

#include "dialects/Tile/TileOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace nsa::cuda {

/// Moves an operation to its first use, if it passes no store, but something
/// that `counts`. With `toMaps` also if the use is a map.
void sink(mlir::Operation *op,
          llvm::function_ref<bool(mlir::Operation *)> counts, bool toMaps);

/// Moves the operations of a loop's body of which `isRow` holds to their first
/// uses, past dots: a row takes registers of all threads.
void sinkRows(mlir::scf::ForOp loop,
              llvm::function_ref<bool(mlir::Operation *)> isRow);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_SINKROWS_H
