//===- TileLayouts.td - where the elements of a tile are ---*- tablegen -*-===//

#ifndef NSA_DIALECTS_TILE_TILELAYOUTS_TD
#define NSA_DIALECTS_TILE_TILELAYOUTS_TD

include "dialects/Tile/TileDialect.td"
include "mlir/IR/AttrTypeBase.td"

class Tile_Layout<string name, string mnemonic_>
    : AttrDef<Tile_Dialect, name> {
  let mnemonic = mnemonic_;
}

def Tile_MmaLayoutAttr : Tile_Layout<"MmaLayout", "mma"> {
  let summary = "accumulator registers of `mma.sync`";
  let description = [{
    Rows come in M-tiles of 16; M-tile `s` belongs to warp `s % warps` and is that
    warp's M-tile `s / warps`. Of every 8 columns of an M-tile, a lane holds rows
    `lane / 4` and `lane / 4 + 8`, columns `2 * (lane % 4)` and the next one.

    A dimension of size one is repeated: an Mx1 tile takes 2 registers per M-tile,
    equal in the 4 lanes of a quad; a 1xN tile 2 registers per 8 columns, equal
    in all quads and warps; a 1x1 tile one register.

    Rows and columns that fill up the last M-tile and the last 8 columns are
    padding: loads give 0 there, stores leave them out. Tiles of bf16 and f16
    are packed in pairs, which is operand A of m16n8k16.

    Example: `#tile.mma<warps = 4>`
  }];
  let parameters = (ins "int64_t":$warps);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Tile_SharedAttr : Tile_Layout<"Shared", "shared"> {
  let summary = "swizzled shared memory, as `ldmatrix` reads it";
  let description = [{
    A tile of bf16 or f16. Chunks of 16 bytes are permuted within their row by
    the number of the row, so that neither reading a column of chunks nor
    writing a row of them has bank conflicts. Rows are rounded up to 16 and
    filled with zeros.

    Example: `#tile.shared`
  }];
}

def Tile_RematerializedAttr : Tile_Layout<"Rematerialized", "rematerialized"> {
  let summary = "no registers: rematerialized at each use";
  let description = [{
    For coordinates and masks: ranges, splats, loads from memory that the kernel
    does not write, and maps of these.

    Example: `#tile.rematerialized`
  }];
}

#endif // NSA_DIALECTS_TILE_TILELAYOUTS_TD
