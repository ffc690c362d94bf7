//===- MaskAnalysis.h - masks that are intervals of columns -----*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_MASKANALYSIS_H
#define NSA_PASSES_CONVERSION_TILETONVVM_MASKANALYSIS_H

#include "dialects/Tile/TileOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SetVector.h"

namespace nsa::cuda {

/// Selects of a map's body whose conditions hold in one interval of columns of
/// each row: if they hold in the first and in the last column of a tile, they
/// hold in all. Coordinates do not overflow. And shortcuts that are open to
/// whole rows.
struct Masks {
  llvm::SmallVector<mlir::arith::SelectOp> selects;
  /// What computes the conditions, in order, and the arguments of the body that
  /// this needs.
  llvm::SetVector<mlir::Operation *> operations;
  llvm::SetVector<mlir::Value> arguments;
};

Masks findMasks(tile::MapOp map);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_MASKANALYSIS_H
