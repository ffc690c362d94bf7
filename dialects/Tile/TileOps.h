//===- TileOps.h - operations on tiles --------------------------*- C++ -*-===//

#ifndef NSA_DIALECTS_TILE_TILEOPS_H
#define NSA_DIALECTS_TILE_TILEOPS_H

#include "dialects/Interfaces/OpChecks.h"
#include "dialects/Tile/TileDialect.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Tile/TileEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Tile/TileAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/Tile/TileOps.h.inc"

namespace nsa::tile {

/// Checks an access to elements of `ref` that make a value of type `value`, by
/// the rules of `tile.load`.
mlir::LogicalResult verifyAccess(mlir::Operation *op, mlir::MemRefType ref,
                                 mlir::ValueRange indices, mlir::Type value);

} // namespace nsa::tile

#endif // NSA_DIALECTS_TILE_TILEOPS_H
