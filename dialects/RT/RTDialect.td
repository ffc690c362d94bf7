//===- RTDialect.td - the host program --------------------------*- tablegen -*-===//

#ifndef NSA_DIALECTS_RT_RTDIALECT_TD
#define NSA_DIALECTS_RT_RTDIALECT_TD

include "dialects/Interfaces/OpChecks.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def RT_Dialect : Dialect {
  let name = "rt";
  let cppNamespace = "::nsa::rt";
  let summary = "The host program: entries that are flat lists of commands";
  let description = [{
    A program is a module of named tensors (`rt.tensor`), kernels and entries
    (`rt.entry`). An entry runs its commands in order: kernel launches,
    matmuls, fills, copies. There is no control flow and no allocation.

    Inside an entry, `rt.get` names the memory of a tensor, `rt.buffer` a piece
    of the arena that lives while the entry runs, and `rt.view` another shape or
    some columns of either; commands take these as operands. Memory is row-major,
    and dense but for columns.

    Before planning, buffers and tensors have no address. `nsa-plan` adds the
    segments (`rt.segment`) and gives every tensor and buffer its slice:

    | segment | holds |
    |---|---|
    | `persistent` | parameters, states of the optimizer, gradients, constants, other state |
    | `io` | inputs and outputs of entries |
    | `arena` | buffers; one arena for all entries |
    | `workspace` | scratch memory of matmuls |

    For example:

    ```mlir
    rt.tensor input @tokens : memref<1x64xi32>
    rt.tensor parameter @table : memref<256x32xf32> init #nn.init<normal, 0.02>
    rt.tensor output @hidden : memref<1x64x32xf32>
    rt.entry @forward inputs [@tokens] outputs [@hidden] {
      %tokens = rt.get @tokens : memref<1x64xi32>
      %table = rt.get @table : memref<256x32xf32>
      %hidden = rt.get @hidden : memref<1x64x32xf32>
      rt.launch @embedding ins(%table, %tokens : memref<256x32xf32>, memref<1x64xi32>)
                           outs(%hidden : memref<1x64x32xf32>)
    }
    ```
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

class RT_Op<string mnemonic, list<Trait> traits = []>
    : Op<RT_Dialect, mnemonic,
         !listconcat(traits, [NSA_LimitedSizes, NSA_KnownAttributes])>;

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

class RT_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::nsa::rt";
  let genSpecializedAttr = 0;
}

def RT_SegmentKind : RT_Enum<"SegmentKind", "kind of memory segment", [
  I32EnumAttrCase<"Persistent", 0, "persistent">,
  I32EnumAttrCase<"IO", 1, "io">,
  I32EnumAttrCase<"Arena", 2, "arena">,
  I32EnumAttrCase<"Workspace", 3, "workspace">,
  I32EnumAttrCase<"Host", 4, "host">
]>;
def RT_SegmentKindAttr : EnumAttr<RT_Dialect, RT_SegmentKind, "segment_kind">;

def RT_TensorRole : RT_Enum<"TensorRole", "what a named tensor is for", [
  I32EnumAttrCase<"Input", 0, "input">,
  I32EnumAttrCase<"Output", 1, "output">,
  I32EnumAttrCase<"Parameter", 2, "parameter">,
  I32EnumAttrCase<"Constant", 3, "constant">,
  I32EnumAttrCase<"Gradient", 4, "gradient">,
  I32EnumAttrCase<"State", 5, "state">
]>;
def RT_TensorRoleAttr : EnumAttr<RT_Dialect, RT_TensorRole, "role">;

def RT_Collective : RT_Enum<"Collective", "what ranks do together", [
  I32EnumAttrCase<"AllReduce", 0, "all_reduce">,
  I32EnumAttrCase<"ReduceScatter", 1, "reduce_scatter">,
  I32EnumAttrCase<"AllGather", 2, "all_gather">,
  I32EnumAttrCase<"GatherSequence", 3, "gather_sequence">,
  I32EnumAttrCase<"ReduceScatterSequence", 4, "reduce_scatter_sequence">
]>;
def RT_CollectiveAttr : EnumAttr<RT_Dialect, RT_Collective, "collective">;

def RT_ChunkPattern : RT_Enum<"ChunkPattern", "what of chunks is copied", [
  I32EnumAttrCase<"Own", 0, "own">,
  I32EnumAttrCase<"Halo", 1, "halo">
]>;
def RT_ChunkPatternAttr : EnumAttr<RT_Dialect, RT_ChunkPattern, "pattern">;

def RT_SliceAttr : AttrDef<RT_Dialect, "Slice"> {
  let mnemonic = "slice";
  let summary = "a range of bytes of a segment";
  let description = [{
    `<@arena, offset = 128, size = 64>` is the bytes 128 to 191 of `@arena`.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$segment,
                        "uint64_t":$offset, "uint64_t":$size);
  let assemblyFormat = [{
    `<` $segment `,` `offset` `=` $offset `,` `size` `=` $size `>`
  }];
  let extraClassDeclaration = [{
    uint64_t getEnd() const { return getOffset() + getSize(); }
  }];
}

def RT_LiveRangeAttr : AttrDef<RT_Dialect, "LiveRange"> {
  let mnemonic = "live";
  let summary = "the first and the last command that touch a buffer";
  let description = "Commands are numbered from 0 in the order of the entry.";
  let parameters = (ins "uint32_t":$first, "uint32_t":$last);
  let assemblyFormat = "`<` $first `to` $last `>`";
}

/// An array that is written with its type, as operations write it.
def RT_I64Array : AttrParameter<"::mlir::DenseI64ArrayAttr", ""> {
  let parser = [{[&]() -> ::mlir::FailureOr<::mlir::DenseI64ArrayAttr> {
    ::mlir::DenseI64ArrayAttr array;
    if (failed($_parser.parseAttribute(array)))
      return ::mlir::failure();
    return array;
  }()}];
  let printer = "$_printer.printAttribute($_self)";
}

def RT_TensorMapAttr : AttrDef<RT_Dialect, "TensorMap"> {
  let mnemonic = "tensor_map";
  let summary = "TMA descriptor of the memory of an argument";
  let description = [{
    The memory of argument number `argument` of a kernel as a tensor of `element`
    with these `extents`, innermost first. `strides` are the bytes from one
    element to the next along each dimension but the innermost, where elements
    are neighbours. A copy moves a `box` of so many elements along each
    dimension; those outside of the tensor read as zero and are not written. In
    shared memory, chunks of 16 bytes are permuted within `swizzle` bytes as the
    hardware has it, or do not where it is 0.

    Example:
    `#rt.tensor_map<argument = 1, element = bf16, extents = array<i64: 128, 4, 512>,
    strides = array<i64: 256, 1024>, box = array<i64: 64, 1, 64>, swizzle = 128>`
  }];
  let parameters = (ins "unsigned":$argument, "::mlir::Type":$element,
                        RT_I64Array:$extents, RT_I64Array:$strides,
                        RT_I64Array:$box, "unsigned":$swizzle);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Bytes from the first element to the last, both included.
    uint64_t getSpan() const;
  }];
}

def RT_TensorMapArrayAttr
    : TypedArrayAttrBase<RT_TensorMapAttr, "array of tensor maps">;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// Memory that the runtime can address: dense, row-major, below 2^48 bytes.
def RT_Memory : ConfinedType<
    StaticShapeMemRefOf<[F32, BF16, F16, I32, I64, UI<8>]>,
    [CPred<"::llvm::cast<::mlir::MemRefType>($_self).getLayout().isIdentity()">,
     CPred<"!::llvm::cast<::mlir::MemRefType>($_self).getMemorySpace()">,
     CPred<"::nsa::rt::isAddressable(::llvm::cast<::mlir::MemRefType>($_self))">],
    "statically shaped, dense memref of f32, bf16, f16, i32, i64 or ui8",
    "::mlir::MemRefType">;

/// What kernels are launched on: dense, or columns of dense memory.
def RT_RowMemory : ConfinedType<
    StaticShapeMemRefOf<[F32, BF16, F16, I32, I64, UI<8>]>,
    [CPred<"::nsa::getRowLayout(::llvm::cast<::mlir::MemRefType>($_self))">,
     CPred<"!::llvm::cast<::mlir::MemRefType>($_self).getMemorySpace()">,
     CPred<"::nsa::rt::isAddressable(::llvm::cast<::mlir::MemRefType>($_self))">],
    "statically shaped memref of f32, bf16, f16, i32, i64 or ui8, dense or in "
    "rows", "::mlir::MemRefType">;

def RT_FloatMemory : ConfinedType<RT_Memory,
    [CPred<"::llvm::isa<::mlir::FloatType>("
           "::llvm::cast<::mlir::MemRefType>($_self).getElementType())">],
    "statically shaped, dense memref of f32, bf16 or f16",
    "::mlir::MemRefType">;

def RT_F32Memory : ConfinedType<RT_Memory,
    [CPred<"::llvm::cast<::mlir::MemRefType>($_self).getElementType()"
           ".isF32()">],
    "statically shaped, dense memref of f32", "::mlir::MemRefType">;

def RT_ReducedMemory : ConfinedType<RT_Memory,
    [CPred<"::llvm::isa<::mlir::Float32Type, ::mlir::BFloat16Type, ::mlir::Float16Type>("
           "::llvm::cast<::mlir::MemRefType>($_self).getElementType())">],
    "statically shaped, dense memref of f32, bf16 or f16", "::mlir::MemRefType">;

#endif // NSA_DIALECTS_RT_RTDIALECT_TD
