//===- NSADecodeOps.td - one token at a time, with caches -------*- tablegen -*-===//
//
// Built by `nsa-derive-decode` from the operations of a model. A cache is a
// persistent tensor `[B, R, Hkv, D]`: row `i` of a sequence is kept in row
// `i mod R`. Rows are tokens, or compressed blocks.
//
// A cache with `pages`, `[B, N]`, is a pool `[P, K, Hkv, D]` of pages of K rows:
// row `i` of sequence `b`, of at most `N * K`, is row `i mod K` of the page with
// the number `pages[b, i / K]`, from 1. Page 0 is none: it reads as zeros, and what
// is written to it is dropped.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NSA_NSADECODEOPS_TD
#define NSA_DIALECTS_NSA_NSADECODEOPS_TD

include "dialects/NSA/NSAFusedOps.td"

/// One number for each sequence of the batch: a position, the number of a row,
/// or -1 for none.
def NSA_RowNumbers : NSA_I32TensorOfRank<1>;
/// The pages of a pool that hold the rows of each sequence.
def NSA_Pages : NSA_I32TensorOfRank<2>;

class NSA_DecodeOp<string mnemonic, list<Trait> traits = []>
    : NSA_GraphOp<mnemonic, traits> {
  let opDocGroup = NSA_DocGroup<"Decoding">;
}

//===----------------------------------------------------------------------===//
// Rows and caches
//===----------------------------------------------------------------------===//

def NSA_LastBlockOp : NSA_DecodeOp<"last_block"> {
  let summary = "the last complete compressed block at a position";
  let description = [{
    With `t = positions[b]` and the block and stride of `#nsa.compressed`:

    ```
    last[b]      = floor((t - (block - 1)) / stride)     if t >= block - 1, else -1
    completed[b] = last[b]     if token t is the last one of that block, else -1
    ```

    Example:

    ```mlir
    %last, %completed = nsa.last_block %positions by(#nsa.compressed<block = 8, stride = 4>) : tensor<2xi32>
    ```
  }];
  let arguments = (ins NSA_RowNumbers:$positions,
                       NSA_CompressedAttr:$compressed);
  let results = (outs NSA_RowNumbers:$last, NSA_RowNumbers:$completed);
  let resultTypes = [{
    adaptor.getPositions().getType(),
    adaptor.getPositions().getType()
  }];
  let resultNames = [{"last", "completed"}];
  let declarations = NSA_BlockMethods<>.declarations;
  let assemblyFormat = [{
    $positions custom<Blocks>($compressed, attr-dict) `:` type($positions)
  }];
}

def NSA_FirstBlockOp : NSA_DecodeOp<"first_block"> {
  let summary = "the first compressed block that a part of a sequence may complete";
  let description = [{
    With `at[b] = (s, p)` and the block and stride of `#nsa.compressed`:

    ```
    first[b] = (s, floor(max(p - (block - stride), 0) / stride))
    ```

    Example:

    ```mlir
    %first = nsa.first_block %at by(#nsa.compressed<block = 8, stride = 4>) : tensor<1x2xi32>
    ```
  }];
  let arguments = (ins NSA_At:$at, NSA_CompressedAttr:$compressed);
  let results = (outs NSA_At:$first);
  let resultTypes = [{adaptor.getAt().getType()}];
  let resultNames = [{"first"}];
  let declarations = NSA_BlockMethods<>.declarations;
  let assemblyFormat = [{
    $at custom<Blocks>($compressed, attr-dict) `:` type($at)
  }];
}

def NSA_CacheAppendOp : NSA_DecodeOp<"cache_append", [
    AllElementTypesMatch<["cache", "row"]>]> {
  let summary = "a cache with one more row of each sequence";
  let description = [{
    Row `index[b] mod R` of the cache of sequence `b` becomes `row[b, 0]`; where
    `index[b]` is negative, nothing changes. Happens in the memory of the cache,
    of which it is the only reader.

    Example:

    ```mlir
    %kept = nsa.cache_append %cache, %row, %index
        : (tensor<2x64x2x16xf32>, tensor<2x1x2x16xf32>, tensor<2xi32>) -> tensor<2x64x2x16xf32>
    %pool = nsa.cache_append %free, %row, %index, %pages
        : (tensor<6x16x2x16xf32>, tensor<2x1x2x16xf32>, tensor<2xi32>, tensor<2x4xi32>) -> tensor<6x16x2x16xf32>
    ```
  }];
  let arguments = (ins NSA_Activation:$cache, NSA_Activation:$row,
                       NSA_RowNumbers:$index, Optional<NSA_Pages>:$pages);
  let results = (outs NSA_Activation:$updated);
  let resultTypes = [{adaptor.getCache().getType()}];
  let resultNames = [{"kept"}];
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
}

def NSA_CacheFillOp : NSA_DecodeOp<"cache_fill", [
    AllElementTypesMatch<["cache", "rows"]>, AttrSizedOperandSegments]> {
  let summary = "a cache of the rows of whole sequences";
  let description = [{
    Row `i mod R` of the cache of sequence `b` becomes `rows[b, i]` for the `R` last
    rows `i` up to `last[b]`; other rows stay. Happens in the memory of the cache,
    of which it is the only reader.

    With `at`, `rows[b, i]` is row `at[b, 1] + i` of the sequence `at[b, 0]`, in which `last`
    counts; it is none past those of `rows`, nor past the cache.

    Example:

    ```mlir
    %kept = nsa.cache_fill %cache, %rows, %last
        : (tensor<2x64x2x16xf32>, tensor<2x128x2x16xf32>, tensor<2xi32>) -> tensor<2x64x2x16xf32>
    %other = nsa.cache_fill %cache, %part, %end, %at
        : (tensor<2x64x2x16xf32>, tensor<1x16x2x16xf32>, tensor<1xi32>, tensor<1x2xi32>) -> tensor<2x64x2x16xf32>
    %pool = nsa.cache_fill %free, %part, %end, %at pages %pages
        : (tensor<6x16x2x16xf32>, tensor<1x16x2x16xf32>, tensor<1xi32>, tensor<1x2xi32>, tensor<2x4xi32>) -> tensor<6x16x2x16xf32>
    ```
  }];
  let arguments = (ins NSA_Activation:$cache, NSA_Activation:$rows,
                       NSA_RowNumbers:$last, Optional<NSA_At>:$at,
                       Optional<NSA_Pages>:$pages);
  let results = (outs NSA_Activation:$updated);
  let resultTypes = [{adaptor.getCache().getType()}];
  let resultNames = [{"kept"}];
  let assemblyFormat = [{
    $cache `,` $rows `,` $last (`,` $at^)? (`pages` $pages^)? attr-dict
    `:` functional-type(operands, results)
  }];
}

def NSA_CacheReadOp : NSA_DecodeOp<"cache_read"> {
  let summary = "the last rows of a cache, in order";
  let description = [{
    `y[b, i]` is row `last[b] - count + 1 + i`, zeros where that is negative. `count`
    is at most the rows of the cache.

    Example:

    ```mlir
    %y = nsa.cache_read %cache, %last {count = 8 : i64}
        : (tensor<2x64x2x16xf32>, tensor<2xi32>) -> tensor<2x8x2x16xf32>
    ```
  }];
  let arguments = (ins NSA_Activation:$cache, NSA_RowNumbers:$last,
                       Optional<NSA_Pages>:$pages, NSA_PositiveI64:$count);
  let results = (outs NSA_Activation:$rows);
  let resultTypes = [{
    getRowsType(adaptor.getCache(), adaptor.getLast(), adaptor.getCount())
  }];
  let resultNames = [{"rows"}];
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
}

def NSA_CacheSliceOp : NSA_DecodeOp<"cache_slice"> {
  let summary = "rows of sequences from a place on";
  let description = [{
    `y[b, i]` is row `at[b, 1] * stride + i` of the sequence `at[b, 0]`, zeros where the
    cache has no such row; with stride 0 those of its beginning.

    Example:

    ```mlir
    %y = nsa.cache_slice %cache, %at {count = 20 : i64, stride = 4 : i64}
        : (tensor<2x64x2x16xf32>, tensor<1x2xi32>) -> tensor<1x20x2x16xf32>
    ```
  }];
  let arguments = (ins NSA_Activation:$cache, NSA_At:$at,
                       Optional<NSA_Pages>:$pages, NSA_PositiveI64:$count,
                       DefaultValuedAttr<NSA_NonNegativeI64, "1">:$stride);
  let results = (outs NSA_Activation:$rows);
  let resultTypes = [{
    getRowsType(adaptor.getCache(), adaptor.getAt(), adaptor.getCount())
  }];
  let resultNames = [{"rows"}];
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
}

def NSA_TakeRowOp : NSA_DecodeOp<"take_row"> {
  let summary = "one row of each sequence";
  let description = [{
    `y[b, 0, :] = x[b, index[b], :]`, zeros where there is no such row. With `at`, row `i`
    of `x[b]` is row `at[b, 1] + i` of its sequence, which `index` counts in.

    Example:

    ```mlir
    %y = nsa.take_row %x, %index : (tensor<2x64x32xf32>, tensor<2xi32>) -> tensor<2x1x32xf32>
    ```
  }];
  let arguments = (ins NSA_FloatTensorOfRank<3>:$input, NSA_RowNumbers:$index,
                       Optional<NSA_At>:$at);
  let results = (outs NSA_FloatTensorOfRank<3>:$output);
  let resultTypes = [{withRows(adaptor.getInput(), 1)}];
  let resultNames = [{"row"}];
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
}

def NSA_RotaryAtOp : NSA_DecodeOp<"rotary_at"> {
  let summary = "`nn.rotary` of one row of each sequence";
  let description = [{
    Row `x[b, 0]` is rotated as row `index[b]` by `nn.rotary` with this table and
    stride: by the angles of position `index[b] * stride`. A position outside of
    the table has the cosine and sine 0.

    Example:

    ```mlir
    %y = nsa.rotary_at %x, %table, %index {stride = 4 : i64}
        : (tensor<2x1x2x16xf32>, tensor<64x8x2xf32>, tensor<2xi32>) -> tensor<2x1x2x16xf32>
    ```
  }];
  let arguments = (ins NSA_Activation:$input, NSA_F32TensorOfRank<3>:$table,
                       NSA_RowNumbers:$index,
                       DefaultValuedAttr<NSA_PositiveI64, "1">:$stride);
  let results = (outs NSA_Activation:$output);
  let resultTypes = [{adaptor.getInput().getType()}];
  let resultNames = [{"rotated"}];
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
}

def NSA_AdvanceOp : NSA_DecodeOp<"advance"> {
  let summary = "the positions of chosen tokens";
  let description = [{
    `token[b, 0]` follows position `positions[b]` of sequence `b`: with `p = positions[b] + 1`,

    ```
    ids[b, p mod R] = token[b, 0]     if positions[b] >= 0; others stay
    next[b]         = p               if positions[b] >= 0, token[b, 0] >= 0, token[b, 0] != end[0]
                                      and p < context, else -1
    ```

    So a sequence that ended is left alone from then on, and `ids` has its last `R` tokens.
    Happens in the memory of `ids`, of which it is the only reader.

    Example:

    ```mlir
    %next, %kept = nsa.advance %token, %positions, %ids, %end {context = 256 : i64}
        : (tensor<2x1xi32>, tensor<2xi32>, tensor<2x32xi32>, tensor<1xi32>) -> (tensor<2xi32>, tensor<2x32xi32>)
    ```
  }];
  let arguments = (ins NSA_I32TensorOfRank<2>:$token,
                       NSA_RowNumbers:$positions, NSA_I32TensorOfRank<2>:$ids,
                       NSA_RowNumbers:$end, NSA_PositiveI64:$context);
  let results = (outs NSA_RowNumbers:$next, NSA_I32TensorOfRank<2>:$updated);
  let resultTypes = [{
    adaptor.getPositions().getType(), adaptor.getIds().getType()
  }];
  let resultNames = [{"next", "kept"}];
  let assemblyFormat = [{
    operands attr-dict `:` functional-type(operands, results)
  }];
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

def NSA_DecodeAttentionOp : NSA_DecodeOp<"decode_attention", [
    AllElementTypesMatch<["query", "key", "value"]>,
    AttrSizedOperandSegments]> {
  let summary = "`nsa.attention` of one query of each sequence to cached keys";
  let description = [{
    What `nsa.attention` of this visibility gives to the query of position
    `positions[b]`, with keys and values from caches: key `i` is in row `i mod R`.
    A query of position -1 sees nothing. The caches have all keys that their
    query sees; those of a window are at least as long, and, if they are shorter
    than the sequence, a multiple of 64.

    Example:

    ```mlir
    %o, %lse = nsa.decode_attention %q, %k, %v at %positions visible(#nsa.window<32>)
        : (tensor<2x1x4x16xf32>, tensor<2x64x2x16xf32>, tensor<2x64x2x16xf32>, tensor<2xi32>)
        -> (tensor<2x1x4x16xf32>, tensor<2x4x1xf32>)
    %o2, %lse2 = nsa.decode_attention %q, %keys, %keys at %positions pages %pages visible(#nsa.causal)
        : (tensor<2x1x4x16xf32>, tensor<6x16x2x16xf32>, tensor<6x16x2x16xf32>, tensor<2xi32>, tensor<2x4xi32>)
        -> (tensor<2x1x4x16xf32>, tensor<2x4x1xf32>)
    ```
  }];
  let arguments = (ins NSA_Activation:$query, NSA_Activation:$key,
                       NSA_Activation:$value, NSA_RowNumbers:$positions,
                       Optional<NSA_Indices>:$indices,
                       Optional<NSA_Pages>:$pages,
                       NSA_VisibilityAttrInterface:$visibility,
                       OptionalAttr<NSA_ScaleAttr>:$scale,
                       OptionalAttr<NSA_PositiveF64>:$softcap);
  let results = (outs NSA_Activation:$output, NSA_Lse:$lse);
  let resultTypes = [{
    getOutputType(adaptor.getQuery(), adaptor.getValue()), getLseType(adaptor.getQuery())
  }];
  let resultNames = [{"o", "lse"}];
  let declarations = NSA_ScaleMethod<>.declarations;
  let assemblyFormat = [{
    $query `,` $key `,` $value `at` $positions (`pages` $pages^)?
    `visible` `(` $visibility (`,` $indices^)? `)` attr-dict
    `:` functional-type(operands, results)
  }];
}

def NSA_DecodeSelectOp : NSA_DecodeOp<"decode_select", [
    AllElementTypesMatch<["query", "key"]>]> {
  let summary = "`nsa.select` for one query of each sequence";
  let description = [{
    What `nsa.select` gives to the query of position `positions[b]`, with
    compressed keys from a cache that has as many rows as a sequence of
    `context` tokens has blocks.

    Example:

    ```mlir
    %indices = nsa.decode_select %q, %k, %lse at %positions {
          compressed = #nsa.compressed<block = 8, stride = 4>, selected = #nsa.selected<block = 16, count = 3>, context = 64 : i64}
        : (tensor<2x1x4x16xf32>, tensor<2x15x2x16xf32>, tensor<2x4x1xf32>, tensor<2xi32>) -> tensor<2x2x1x3xi32>
    ```
  }];
  let arguments = (ins NSA_Activation:$query, NSA_Activation:$key, NSA_Lse:$lse,
                       NSA_RowNumbers:$positions,
                       NSA_CompressedAttr:$compressed,
                       NSA_SelectedAttr:$selected, NSA_PositiveI64:$context,
                       OptionalAttr<NSA_ScaleAttr>:$scale,
                       OptionalAttr<NSA_PositiveF64>:$softcap);
  let results = (outs NSA_Indices:$indices);
  let resultTypes = [{getIndicesType(adaptor, /*queries=*/1)}];
  let resultNames = [{"indices"}];
  let declarations = NSA_ScaleMethod<>.declarations #
                     NSA_BlockMethods<>.declarations;
  let assemblyFormat = [{
    $query `,` $key `,` $lse `at` $positions attr-dict
    `:` functional-type(operands, results)
  }];
}

#endif // NSA_DIALECTS_NSA_NSADECODEOPS_TD
