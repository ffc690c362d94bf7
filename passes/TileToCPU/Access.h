//===- Access.h - how a load or store walks through memory ------*- C++ -*-===//

#ifndef NSA_PASSES_TILETOCPU_ACCESS_H
#define NSA_PASSES_TILETOCPU_ACCESS_H

#include "passes/Analysis/TileBounds.h"
#include "passes/TileToCPU/VectorBuilder.h"

namespace nsa::cpu {

/// The axis along which vectors run: 0 for a column, 1 for everything else.
inline unsigned innerAxis(tile::TileType type) {
  return type.getCols() == 1 && type.getRows() > 1 ? 0 : 1;
}

/// A `tile.load` or `tile.store` of a tile. "Inner" is the axis along which
/// vectors run, "outer" the other one.
struct Access {
  Access(tile::LoadOp op, TileBounds &bounds, unsigned width);
  Access(tile::StoreOp op, TileBounds &bounds, unsigned width);

  mlir::Value ref;
  llvm::SmallVector<mlir::Value> indices;
  tile::TileType type;
  llvm::SmallVector<Extent> extents, strides;
  /// Per dimension: every coordinate is known to be inside.
  llvm::SmallVector<bool> proven;
  /// Consecutive inner elements are neighbours in memory, because the index of
  /// dimension `innerDim` alone moves, by one. -1 if the inner extent is one.
  bool contiguous = false;
  int innerDim = -1;
  /// What a load reads are the first (0) or second (1) elements of neighbouring
  /// pairs, in whole vectors and all inside; -1 if they are not. Such an access
  /// is not contiguous.
  int ofPairs = -1;
  /// May be evaluated inside a loop nest: contiguous, and masks (which exist
  /// for 32-bit elements only) are not needed or possible.
  bool fusible = false;

  bool allProven() const {
    return llvm::all_of(proven, [](bool p) { return p; });
  }

private:
  /// Recognises pairs: the last dimension has extent two and a constant index,
  /// and the one before moves by one.
  int findPairs(unsigned width) const;

  Access(mlir::Value ref, mlir::ValueRange indices, tile::TileType type,
         TileBounds &bounds, unsigned width);
};

} // namespace nsa::cpu

#endif // NSA_PASSES_TILETOCPU_ACCESS_H
