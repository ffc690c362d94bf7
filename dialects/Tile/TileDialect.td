//===- TileDialect.td - the tile dialect -------------------*- tablegen -*-===//

#ifndef NSA_DIALECTS_TILE_TILEDIALECT_TD
#define NSA_DIALECTS_TILE_TILEDIALECT_TD

include "dialects/Interfaces/OpChecks.td"
include "mlir/IR/OpBase.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::nsa::tile";
  let summary = "Kernels as programs over tiles of static shape";
  let description = [{
    A kernel is a grid of independent programs. A program loads tiles from
    memory, computes on them as values and stores tiles back; inside a program
    memory effects happen in program order. Scalars are plain builtin types,
    coordinates are `i32`, control flow is `scf.for` and `scf.if` whose
    iteration arguments and results may be tiles.

    A coordinate outside its dimension is legal everywhere: the element reads
    as zero and is never written, so no kernel needs a remainder case.
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect"];
  let extraClassDeclaration = [{
    void registerTypes();
  }];
}

class Tile_Op<string mnemonic, list<Trait> traits = []>
    : Op<Tile_Dialect, mnemonic,
         !listconcat(traits, [NSA_LimitedSizes, NSA_KnownAttributes])>;

#endif // NSA_DIALECTS_TILE_TILEDIALECT_TD
