//===- TileOps.td - operations on tiles --------------------*- tablegen -*-===//

#ifndef NSA_DIALECTS_TILE_TILEOPS_TD
#define NSA_DIALECTS_TILE_TILEOPS_TD

include "dialects/Tile/TileLayouts.td"
include "dialects/Tile/TileTypes.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/InferIntRangeInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

//===----------------------------------------------------------------------===//
// Kernels and their launches
//===----------------------------------------------------------------------===//

def Tile_KernelOp : Tile_Op<"kernel", [
    FunctionOpInterface, IsolatedFromAbove, OpAsmOpInterface]> {
  let opDocGroup = NSA_DocGroup<"Kernels and their launches">;
  let summary = "a grid of independent programs";
  let description = [{
    A symbol whose arguments are memrefs of static shape, inputs first, then the
    last `num_outputs` of them outputs. The body runs once per point of `grid`
    (x, y, z). `flops` and `bytes` are the work and the traffic of one launch,
    where known.

    The layout of an argument is the identity or that of columns of a wider
    matrix: trailing dimensions lie together as rows, and rows at equal distances.
    `memref<2x64x4x8xf32, strided<[6144, 96, 8, 1]>>` are 2 * 64 rows of 32
    elements, 96 elements apart.

    Example:

    ```mlir
    tile.kernel private @double(%x: memref<128xf32>, %y: memref<128xf32>)
        attributes {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32} {
      %p = tile.program_id 0 : i32
      %c64 = arith.constant 64 : i32
      %start = arith.muli %p, %c64 : i32
      %i = tile.range %start : !tile.tile<1x64xi32>
      %v = tile.load %x[%i] : memref<128xf32>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xf32>
      %w = tile.map (%v : !tile.tile<1x64xf32>) -> !tile.tile<1x64xf32> {
      ^bb0(%e: f32):
        %s = arith.addf %e, %e : f32
        tile.yield %s : f32
      }
      tile.store %w, %y[%i] : !tile.tile<1x64xf32>, memref<128xf32>, (!tile.tile<1x64xi32>)
      tile.return
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       TypeAttrOf<FunctionType>:$function_type,
                       OptionalAttr<StrAttr>:$sym_visibility,
                       OptionalAttr<DictArrayAttr>:$arg_attrs,
                       OptionalAttr<DictArrayAttr>:$res_attrs,
                       DenseI32ArrayAttr:$grid,
                       I32Attr:$num_outputs,
                       OptionalAttr<I64Attr>:$flops,
                       OptionalAttr<I64Attr>:$bytes);
  let regions = (region SizedRegion<1>:$body);
  let builders = [OpBuilder<(ins
    "::llvm::StringRef":$name, "::mlir::FunctionType":$type,
    "::llvm::ArrayRef<int32_t>":$grid, "int32_t":$numOutputs)>];
  let skipDefaultBuilders = 1;
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() {
      return getFunctionType().getInputs();
    }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() {
      return getFunctionType().getResults();
    }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
    unsigned getNumInputs() { return getNumArguments() - getNumOutputs(); }

    /// How many programs a launch runs.
    int64_t getNumPrograms() {
      int64_t count = 1;
      for (int32_t extent : getGrid())
        count *= extent;
      return count;
    }
  }];
}

def Tile_ReturnOp : Tile_Op<"return", [
    Pure, Terminator, ParentOneOf<["KernelOp"]>]> {
  let opDocGroup = NSA_DocGroup<"Kernels and their launches">;
  let summary = "end of a kernel";
  let assemblyFormat = "attr-dict";
}

def Tile_LaunchOp : Tile_Op<"launch", [
    Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let opDocGroup = NSA_DocGroup<"Kernels and their launches">;
  let summary = "run a kernel on tensors";
  let description = [{
    The operands are the kernel's inputs, the results are its outputs; shapes
    and element types equal those of the kernel's arguments.

    Example:

    ```mlir
    %y = tile.launch @double(%x) : (tensor<128xf32>) -> tensor<128xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel,
                       Variadic<AnyRankedTensor>:$inputs);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let assemblyFormat = [{
    $kernel `(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs)
  }];
}

def Tile_ProgramIdOp : Tile_Op<"program_id", [
    Pure, DeclareOpInterfaceMethods<InferIntRangeInterface,
                                    ["inferResultRanges"]>]> {
  let opDocGroup = NSA_DocGroup<"Kernels and their launches">;
  let summary = "coordinate of the program in the grid";
  let description = [{
    `axis` 0 is x, 1 is y and 2 is z. Programs are numbered `(z * grid_y + y) * grid_x + x`.

    Example:

    ```mlir
    %p = tile.program_id 0 : i32
    ```
  }];
  let arguments = (ins ConfinedAttr<I32Attr, [
    IntNonNegative, IntMaxValue<2>]>:$axis);
  let results = (outs I32:$id);
  let assemblyFormat = "$axis attr-dict `:` type($id)";
}

def Tile_ExtentOp : Tile_Op<"extent", [
    Pure, DeclareOpInterfaceMethods<InferIntRangeInterface,
                                    ["inferResultRanges"]>]> {
  let opDocGroup = NSA_DocGroup<"Kernels and their launches">;
  let summary = "an extent that is an argument of a launch";
  let description = [{
    `number` 0 is the batch and 1 the length of its sequences, of kernels that are
    compiled for any. A launch passes them after the kernel's memory.

    Example:

    ```mlir
    %tokens = tile.extent 1 : i32
    ```
  }];
  let arguments = (ins ConfinedAttr<I32Attr, [
    IntNonNegative, IntMaxValue<1>]>:$number);
  let results = (outs I32:$extent);
  let assemblyFormat = "$number attr-dict `:` type($extent)";
}

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

def Tile_RangeOp : Tile_Op<"range", [Pure]> {
  let opDocGroup = NSA_DocGroup<"Creation">;
  let summary = "consecutive integers along the only non-unit axis";
  let description = [{
    Element `i` along the axis is `start + i * step`.

    Example:

    ```mlir
    %rows = tile.range %start : !tile.tile<64x1xi32>
    %cols = tile.range %zero {step = 2 : i32} : !tile.tile<1x32xi32>
    ```
  }];
  let arguments = (ins I32:$start, DefaultValuedAttr<I32Attr, "1">:$step);
  let results = (outs Tile_I32Tile:$result);
  let assemblyFormat = "$start attr-dict `:` qualified(type($result))";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The axis along which elements differ, of a shape read as rows, columns.
    unsigned getAxis() { return getType().getCols() == 1 ? 0 : 1; }
  }];
}

def Tile_SplatOp : Tile_Op<"splat", [
    Pure, TypesMatchWith<"element type matches the scalar", "result", "value",
      "::llvm::cast<::nsa::tile::TileType>($_self).getElementType()">]> {
  let opDocGroup = NSA_DocGroup<"Creation">;
  let summary = "a tile whose elements are all one scalar";
  let description = [{
    Example:

    ```mlir
    %zeros = tile.splat %zero : !tile.tile<64x64xf32>
    ```
  }];
  let arguments = (ins Tile_Scalar:$value);
  let results = (outs Tile_AnyTile:$result);
  let assemblyFormat = "$value attr-dict `:` qualified(type($result))";
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

def Tile_ViewOp : Tile_Op<"view", [Pure]> {
  let opDocGroup = NSA_DocGroup<"Memory">;
  let summary = "the same elements in another shape";
  let description = [{
    A kernel argument read as a memref of the same element type, number of
    elements and length and distance of rows, so it is the same address.

    Example:

    ```mlir
    %flat = tile.view %x : memref<2x64x32xf32> -> memref<4096xf32>
    %rows = tile.view %y : memref<2x64x32xf32, strided<[6144, 96, 1]>> -> memref<128x32xf32, strided<[96, 1]>>
    ```
  }];
  let arguments = (ins AnyStaticShapeMemRef:$ref);
  let results = (outs AnyStaticShapeMemRef:$result);
  let assemblyFormat = [{
    $ref attr-dict `:` type($ref) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_LoadOp : Tile_Op<"load", []> {
  let opDocGroup = NSA_DocGroup<"Memory">;
  let summary = "read elements at computed coordinates";
  let description = [{
    There is one index per dimension of the memref, a scalar or a tile. Index
    tiles broadcast together to the shape of the result, whose element `e` is

        result[e] = ref[i0[e], i1[e], ...]   if every coordinate is inside
                  = 0                        otherwise; memory is not touched

    With scalar indices only, the result is a scalar under the same rule.

    Index tiles have the layout of the result or `#tile.rematerialized`.

    Example:

    ```mlir
    %q = tile.load %ref[%b, %rows, %h, %cols]
        : memref<1x256x4x64xf32>, (i32, !tile.tile<64x1xi32>, i32, !tile.tile<1x64xi32>)
        -> !tile.tile<64x64xf32>
    ```
  }];
  let arguments = (ins Arg<AnyStaticShapeMemRef, "", [MemRead]>:$ref,
                       Variadic<Tile_Index>:$indices);
  let results = (outs Tile_TileOrScalar:$result);
  let assemblyFormat = [{
    $ref `[` $indices `]` attr-dict `:` type($ref) `,`
    functional-type($indices, $result)
  }];
  let hasVerifier = 1;
}

def Tile_StoreOp : Tile_Op<"store", []> {
  let opDocGroup = NSA_DocGroup<"Memory">;
  let summary = "write elements at computed coordinates";
  let description = [{
    The rules of `tile.load`; an element with a coordinate outside its dimension
    is not written. The coordinates of the elements written must differ. Some
    thread holds the value: its layout is not `#tile.rematerialized`.

    Example:

    ```mlir
    tile.store %o, %ref[%rows, %cols]
        : !tile.tile<64x64xf32>, memref<256x64xf32>, (!tile.tile<64x1xi32>, !tile.tile<1x64xi32>)
    ```
  }];
  let arguments = (ins Tile_TileOrScalar:$value,
                       Arg<AnyStaticShapeMemRef, "", [MemWrite]>:$ref,
                       Variadic<Tile_Index>:$indices);
  let assemblyFormat = [{
    $value `,` $ref `[` $indices `]` attr-dict `:` type($value) `,` type($ref)
    `,` custom<TypeList>(type($indices))
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Computation
//===----------------------------------------------------------------------===//

def Tile_YieldOp : Tile_Op<"yield", [
    Pure, Terminator, ParentOneOf<["MapOp"]>]> {
  let opDocGroup = NSA_DocGroup<"Computation">;
  let summary = "the elements that one run of a map's body computes";
  let arguments = (ins Variadic<Tile_Scalar>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ::mlir::ValueRange()); }]>];
}

def Tile_MapOp : Tile_Op<"map", [
    Pure, SingleBlockImplicitTerminator<"YieldOp">]> {
  let opDocGroup = NSA_DocGroup<"Computation">;
  let summary = "elementwise computation";
  let description = [{
    The body runs once per element of the results, on one element of each input.
    A dimension of size one of an input is repeated. Scalars of the
    surroundings may be used directly; tiles may not. All results have one
    shape and layout, their element types may differ. The body holds elementwise
    `arith` and `math` operations on scalars only. Inputs have the layout of the
    results or `#tile.rematerialized`; `#tile.shared` has no maps.

    Example:

    ```mlir
    %p = tile.map (%s, %m : !tile.tile<64x32xf32>, !tile.tile<64x1xf32>) -> !tile.tile<64x32xf32> {
    ^bb0(%x: f32, %max: f32):
      %d = arith.subf %x, %max : f32
      %e = math.exp %d : f32
      tile.yield %e : f32
    }
    ```
  }];
  let arguments = (ins Variadic<Tile_AnyTile>:$inputs);
  let results = (outs Variadic<Tile_AnyTile>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    ` ` `(` ($inputs^ `:` type($inputs))? `)` attr-dict `->` type($results) $body
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The shape of every result.
    ::nsa::tile::TileType getShapeType() {
      return ::llvm::cast<::nsa::tile::TileType>(getResult(0).getType());
    }
    /// The elements that the body computes, one per result.
    ::mlir::OperandRange getYielded() {
      return getBody().front().getTerminator()->getOperands();
    }
  }];
}

def Tile_DotOp : Tile_Op<"dot", [
    Pure, AllTypesMatch<["acc", "result"]>]> {
  let opDocGroup = NSA_DocGroup<"Computation">;
  let summary = "matmul added to an accumulator";
  let description = [{
    `result = acc + op(a) * op(b)` where `op` transposes on request: a is MxK
    (KxM with `transpose_a`), b is KxN (NxK with `transpose_b`), acc is MxN in
    f32. Products and sums are f32.

    A dot with layouts accumulates in `#tile.mma`, has b in
    `#tile.shared`, and a in either; an `a` in the MMA layout is not transposed.

    Example:

    ```mlir
    %s = tile.dot %q, %k, %zeros {transpose_b}
        : !tile.tile<64x16xbf16>, !tile.tile<32x16xbf16>, !tile.tile<64x32xf32>
    ```
  }];
  let arguments = (ins Tile_DotTile:$a, Tile_DotTile:$b, Tile_F32Tile:$acc,
                       UnitAttr:$transpose_a, UnitAttr:$transpose_b);
  let results = (outs Tile_F32Tile:$result);
  let assemblyFormat = [{
    $a `,` $b `,` $acc attr-dict `:` qualified(type($a)) `,`
    qualified(type($b)) `,` qualified(type($acc))
  }];
  let hasVerifier = 1;
}

def Tile_ReduceKind : I32EnumAttr<"ReduceKind", "how elements combine", [
    I32EnumAttrCase<"Add", 0, "add">,
    I32EnumAttrCase<"Max", 1, "max">,
    I32EnumAttrCase<"Min", 2, "min">]> {
  let cppNamespace = "::nsa::tile";
  let genSpecializedAttr = 0;
}
def Tile_ReduceKindAttr
    : EnumAttr<Tile_Dialect, Tile_ReduceKind, "reduce_kind">;

def Tile_ReduceOp : Tile_Op<"reduce", [
    Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let opDocGroup = NSA_DocGroup<"Computation">;
  let summary = "combine the elements along one axis";
  let description = [{
    `kind` is `add`, `max` or `min`. The axis keeps size one in the result. The order of the combination is
    fixed by the shape and layout, which the result shares: none or
    `#tile.mma`; of the target's own, any two. NaN elements do not win a
    maximum or minimum.

    Example:

    ```mlir
    %m = tile.reduce max %s {axis = 1 : i32} : !tile.tile<64x32xf32> -> !tile.tile<64x1xf32>
    ```
  }];
  let arguments = (ins Tile_ReduceKindAttr:$kind,
                       TileOf<[F32, I32]>:$input,
                       ConfinedAttr<I32Attr, [IntNonNegative, IntMaxValue<1>]>:$axis);
  let results = (outs TileOf<[F32, I32]>:$result);
  let assemblyFormat = [{
    $kind $input attr-dict `:` qualified(type($input)) `->`
    qualified(type($result))
  }];
  let extraClassDeclaration = [{
    /// The inferred type says nothing of a target's own layouts.
    static bool isCompatibleReturnTypes(::mlir::TypeRange inferred,
                                        ::mlir::TypeRange types);
  }];
  let hasVerifier = 1;
}

def Tile_AnyOp : Tile_Op<"any", [Pure]> {
  let opDocGroup = NSA_DocGroup<"Computation">;
  let summary = "whether some element is true";
  let description = [{
    A scalar, so that control flow can depend on the elements of a tile.

    With `warp_uniform`, which takes one element for each row, a thread that computes a
    part of the rows may look at these rows only, and differ from others: an
    `scf.if` on it has to leave rows alone that are false.

    Example:

    ```mlir
    %some = tile.any %mask : !tile.tile<8x16xi1>
    %own = tile.any %rows warp_uniform : !tile.tile<64x1xi1>
    ```
  }];
  let arguments = (ins TileOf<[I1]>:$input, UnitAttr:$warpUniform);
  let results = (outs I1:$result);
  let assemblyFormat = [{
    $input (`warp_uniform` $warpUniform^)? attr-dict `:` qualified(type($input))
  }];
  let hasVerifier = 1;
}

def Tile_ConvertOp : Tile_Op<"convert", [Pure]> {
  let opDocGroup = NSA_DocGroup<"Computation">;
  let summary = "the same elements in another layout";
  let description = [{
    Between `#tile.mma`, `#tile.shared` and neither of them. There are no
    elements to move in a tile of `#tile.rematerialized`.

    Example:

    ```mlir
    %s = tile.convert %x : !tile.tile<64x32xbf16, #tile.mma<warps = 4>> -> !tile.tile<64x32xbf16, #tile.shared>
    ```
  }];
  let arguments = (ins Tile_AnyTile:$input);
  let results = (outs Tile_AnyTile:$result);
  let assemblyFormat = [{
    $input attr-dict `:` qualified(type($input)) `->`
    qualified(type($result))
  }];
  let hasVerifier = 1;
}

def Tile_TransposeOp : Tile_Op<"transpose", [
    Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let opDocGroup = NSA_DocGroup<"Computation">;
  let summary = "exchange rows and columns";
  let description = [{
    Example:

    ```mlir
    %t = tile.transpose %x : !tile.tile<64x32xf32> -> !tile.tile<32x64xf32>
    ```
  }];
  let arguments = (ins Tile_AnyTile:$input);
  let results = (outs Tile_AnyTile:$result);
  let assemblyFormat = [{
    $input attr-dict `:` qualified(type($input)) `->`
    qualified(type($result))
  }];
  let extraClassDeclaration = [{
    /// The inferred type says nothing of a target's own layouts.
    static bool isCompatibleReturnTypes(::mlir::TypeRange inferred,
                                        ::mlir::TypeRange types);
  }];
  let hasVerifier = 1;
}

def Tile_TopNOp : Tile_Op<"top_n", [
    Pure, AllTypesMatch<["best_values", "top_values"]>,
    AllTypesMatch<["best_indices", "top_indices"]>]> {
  let opDocGroup = NSA_DocGroup<"Computation">;
  let summary = "merge candidates into per-row lists of the largest values";
  let description = [{
    Every row of `best_values` and `best_indices` is a list ordered by value
    descending, then index ascending; an empty slot holds value -1 and index -1.
    Column `c` of `values` is a candidate with index `base + c`. A candidate
    enters if its value exceeds -0.5 and some value of the list, so callers give
    -1 to what is no candidate. Equal values go to the lower index when
    candidates are merged in ascending order.

    Example:

    ```mlir
    %v, %i = tile.top_n %scores, %base, %v0, %i0
        : !tile.tile<16x32xf32>, !tile.tile<16x4xf32>, !tile.tile<16x4xi32>
    ```
  }];
  let arguments = (ins Tile_F32Tile:$values, I32:$base,
                       Tile_F32Tile:$best_values, Tile_I32Tile:$best_indices);
  let results = (outs Tile_F32Tile:$top_values, Tile_I32Tile:$top_indices);
  let assemblyFormat = [{
    $values `,` $base `,` $best_values `,` $best_indices attr-dict
    `:` qualified(type($values)) `,` qualified(type($best_values)) `,`
    qualified(type($best_indices))
  }];
  let hasVerifier = 1;
}

def Tile_SortOp : Tile_Op<"sort", [
    Pure, AllTypesMatch<["input", "result"]>]> {
  let opDocGroup = NSA_DocGroup<"Computation">;
  let summary = "order each row ascending as unsigned numbers";
  let description = [{
    -1 is the largest unsigned number, so it ends up on the right.

    Example:

    ```mlir
    %s = tile.sort %i : !tile.tile<16x4xi32>
    ```
  }];
  let arguments = (ins Tile_I32Tile:$input);
  let results = (outs Tile_I32Tile:$result);
  let assemblyFormat = "$input attr-dict `:` qualified(type($input))";
  let hasVerifier = 1;
}

#endif // NSA_DIALECTS_TILE_TILEOPS_TD
