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

#endif // NSA_DIALECTS_TILE_TILEDIALECT_H
