//===- NSADialect.td - Native Sparse Attention dialect ----------*- tablegen -*-===//

#ifndef NSA_DIALECTS_NSA_NSADIALECT_TD
#define NSA_DIALECTS_NSA_NSADIALECT_TD

include "dialects/Interfaces/OpChecks.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def NSA_Dialect : Dialect {
  let name = "nsa";
  let cppNamespace = "::nsa";
  let summary = "Native Sparse Attention at the level of the model graph";
  let description = [{
    The branches of Native Sparse Attention (arXiv 2502.11089, Eqs. 5-12) as
    value-semantics operations on ranked tensors of static shape. They are one
    op, `nsa.attention`, whose visibility attribute says which keys a query
    sees, and its gradient.

    `nsa.compressed_attention`, `nsa.selected_attention`, `nsa.window_attention`
    and their `_backward` are other spellings, with the parameters of the
    visibility as attributes and the type of a function; they are read as
    `nsa.attention`:

    ```mlir
    %o, %lse = nsa.window_attention %q, %k, %v {window = 32 : i64}
        : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
        -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
    ```

    `nsa.select` and the operations of compression are read with the parameters
    of their `by(...)` as attributes, too: `block` and `stride`, and for selection
    `select_block`, `count`, `initial` and `local`. The types of `nsa.select` may
    be that of a function:

    ```mlir
    %i = nsa.select %q, %k, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 3 : i64}
        : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32>
    ```

    Layouts are token-major. `B` is the batch, `S` the sequence length, `Hq` and
    `Hkv` the numbers of query and of key/value heads, `G = Hq / Hkv`, `dk` and
    `dv` the head widths. With compression block `l`, stride `d` and selection
    block `l'`, `Nc = floor((S - l) / d) + 1` if `S >= l`, else 0.

    | value | type |
    |---|---|
    | q | `[B, S, Hq, dk]` |
    | k, v | `[B, S, Hkv, dk]`, `[B, S, Hkv, dv]` |
    | compressed k, v | `[B, Nc, Hkv, dk]`, `[B, Nc, Hkv, dv]` |
    | output | `[B, S, Hq, dv]` |
    | lse | `f32 [B, Hq, S]` |
    | indices | `i32 [B, Hkv, S, n]` |
    | gates | `f32 [B, S, Hq, n]` of `n` branches |

    Scores are computed in fp32 and scaled after the dot product; softmax and its
    statistics are fp32; `lse` is the natural logarithm of the sum of
    exponentials. A row that sees no key has output 0, lse -inf and no gradient.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let extraClassDeclaration = [{
    /// Reads the spellings of `nsa.attention` that name a branch.
    std::optional<ParseOpHook>
    getParseOperationHook(::llvm::StringRef name) const override;
  }];
}

class NSA_Op<string mnemonic, list<Trait> traits = []>
    : Op<NSA_Dialect, mnemonic,
         !listconcat(traits, [NSA_LimitedSizes, NSA_KnownAttributes])>;

def NSA_CompressionMean : I32EnumAttrCase<"Mean", 0, "mean">;
def NSA_CompressionLinear : I32EnumAttrCase<"Linear", 1, "linear">;
def NSA_CompressionMlp : I32EnumAttrCase<"Mlp", 2, "mlp">;

def NSA_CompressionKind : I32EnumAttr<"CompressionKind",
    "how a block of tokens becomes one row",
    [NSA_CompressionMean, NSA_CompressionLinear, NSA_CompressionMlp]> {
  let cppNamespace = "::nsa";
  let genSpecializedAttr = 0;
}

def NSA_CompressionKindAttr
    : EnumAttr<NSA_Dialect, NSA_CompressionKind, "compression">;

#endif // NSA_DIALECTS_NSA_NSADIALECT_TD
