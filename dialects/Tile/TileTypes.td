//===- TileTypes.td - the tile type ------------------------*- tablegen -*-===//

#ifndef NSA_DIALECTS_TILE_TILETYPES_TD
#define NSA_DIALECTS_TILE_TILETYPES_TD

include "dialects/Tile/TileDialect.td"
include "mlir/IR/AttrTypeBase.td"

def Tile_TileType : TypeDef<Tile_Dialect, "Tile"> {
  let mnemonic = "tile";
  let summary = "a value of one or two static dimensions";
  let description = [{
    `!tile.tile<64x32xf32>` is a value of 64 rows and 32 columns. A tile of one
    dimension behaves as one row. Element types are f32, bf16, f16, i32 and i1;
    every dimension is at least one.

    `!tile.tile<64x32xf32, #tile.mma<warps = 4>>` also says where in a CUDA
    block the elements are: `#tile.mma`, `#tile.shared` or
    `#tile.rematerialized`. `nsa-assign-layouts` chooses these. A tile without layout
    is wherever the target puts it; a target that decides that in IR has a layout
    of its own, which implements VerifiableTensorEncoding (`#tile_gpu.blocked`).
    Tiles of these mix in one operation, as those without layout do.
  }];
  let parameters = (ins
    ArrayRefParameter<"int64_t">:$shape,
    "::mlir::Type":$elementType,
    OptionalParameter<"::mlir::Attribute">:$layout);
  let builders = [
    TypeBuilderWithInferredContext<(ins
      "::llvm::ArrayRef<int64_t>":$shape, "::mlir::Type":$elementType,
      CArg<"::mlir::Attribute", "{}">:$layout), [{
      return $_get(elementType.getContext(), shape, elementType, layout);
    }]>
  ];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// One for a tile of one dimension.
    int64_t getRows() const {
      return getShape().size() == 1 ? 1 : getShape().front();
    }
    int64_t getCols() const { return getShape().back(); }
    int64_t getNumElements() const { return getRows() * getCols(); }

    /// The same shape and layout with another element type.
    TileType withElementType(::mlir::Type elementType) const {
      return TileType::get(getShape(), elementType, getLayout());
    }
    /// The same elements elsewhere; null is no layout.
    TileType withLayout(::mlir::Attribute layout) const {
      return TileType::get(getShape(), getElementType(), layout);
    }
  }];
}

/// A tile whose element type is one of `types`.
class TileOf<list<Type> types> : Type<
    And<[CPred<"::llvm::isa<::nsa::tile::TileType>($_self)">,
         Concat<"[](::mlir::Type elementType) { return ",
           SubstLeaves<"$_self", "elementType", AnyTypeOf<types>.predicate>,
           "; }(::llvm::cast<::nsa::tile::TileType>($_self).getElementType())">]>,
    "tile of " # AnyTypeOf<types>.summary, "::nsa::tile::TileType">;

def Tile_Scalar : AnyTypeOf<[F32, BF16, F16, I32, I1],
                            "f32, bf16, f16, i32 or i1">;
def Tile_AnyTile : TileOf<[F32, BF16, F16, I32, I1]>;
def Tile_F32Tile : TileOf<[F32]>;
def Tile_I32Tile : TileOf<[I32]>;
def Tile_DotTile : TileOf<[F32, BF16, F16]>;
def Tile_TileOrScalar : AnyTypeOf<[Tile_AnyTile, Tile_Scalar],
                                  "tile or scalar">;
def Tile_Index : AnyTypeOf<[I32, Tile_I32Tile], "i32 or tile of i32">;

#endif // NSA_DIALECTS_TILE_TILETYPES_TD
