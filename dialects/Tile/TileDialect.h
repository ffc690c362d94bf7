//===- TileDialect.h - the tile dialect -------------------------*- C++ -*-===//
//
// Kernels as programs over tiles of static shape; TileOps.td says what every
// operation computes.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_TILE_TILEDIALECT_H
#define NSA_DIALECTS_TILE_TILEDIALECT_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"

#include "dialects/Tile/TileDialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Tile/TileTypes.h.inc"

namespace nsa::tile {

/// On a `tile.map`: its results are rounded to their element types before
/// anything uses them. Without it, a product may become part of the sum that
/// another map makes of it.
inline constexpr llvm::StringLiteral kRoundedAttr = "tile.rounded";

} // namespace nsa::tile

#endif // NSA_DIALECTS_TILE_TILEDIALECT_H
