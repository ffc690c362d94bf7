//===- NSAVisibility.td - which keys a query sees ---------------*- tablegen -*-===//

#ifndef NSA_DIALECTS_NSA_NSAVISIBILITY_TD
#define NSA_DIALECTS_NSA_NSAVISIBILITY_TD

include "dialects/NSA/NSADialect.td"
include "mlir/IR/AttrTypeBase.td"

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

def NSA_VisibilityAttrInterface : AttrInterface<"VisibilityAttrInterface"> {
  let cppNamespace = "::nsa";
  let description = [{
    Which keys a query of `nsa.attention` sees. Passes, kernels, statistics and
    verifiers know visibilities by this interface only. Queries and keys are counted
    from where their sequence begins, also if several are packed. A `Scalar` is a
    number, or an i32 value of a kernel: one definition serves both. The bounds of
    ranges are monotonic.
  }];
  let methods = [
    InterfaceMethod<"What kernels are named after, e.g. `window`.",
      "::llvm::StringRef", "getKind", (ins), [{}],
      [{ return ConcreteAttr::getMnemonic(); }]>,
    InterfaceMethod<"The parameters in the name of a kernel, e.g. `w32`.",
      "::std::string", "getShapeName">,
    InterfaceMethod<"Whether key `i` is token `i`; else it is a block of tokens.",
      "bool", "attendsToTokens", (ins), [{}], [{ return true; }]>,
    InterfaceMethod<"Tokens from where one key begins to where the next does.",
      "int64_t", "getKeyStride", (ins), [{}], [{ return 1; }]>,
    InterfaceMethod<"The number of keys of a sequence.",
      "int64_t", "getNumKeys", (ins "int64_t":$sequence), [{}],
      [{ return sequence; }]>,
    InterfaceMethod<[{
        Tokens of a block that an index names: a query sees only keys in the
        blocks of its indices. 0 if there are no indices.
      }], "int64_t", "getIndexBlock", (ins), [{}], [{ return 0; }]>,
    InterfaceMethod<"The most indices that a query may have; 0 for no limit.",
      "int64_t", "getMaxIndices", (ins), [{}], [{ return 0; }]>,
    InterfaceMethod<[{
        What hides the same in sequences of this length, without parameters that
        are far longer.
      }], "::nsa::VisibilityAttrInterface", "limitTo",
      (ins "int64_t":$sequence), [{}], [{ return $_attr; }]>,
    InterfaceMethod<[{
        Whether `query` sees `key`; where there are indices, if they name its
        block.
      }], "::nsa::Scalar", "isVisible",
      (ins "::nsa::Scalar":$query, "::nsa::Scalar":$key)>,
    InterfaceMethod<"Keys before it are invisible to `query`.",
      "::nsa::Scalar", "getFirstKey", (ins "::nsa::Scalar":$query)>,
    InterfaceMethod<[{
        Keys from it on are invisible to `query`. May be negative, or beyond the
        last key.
      }], "::nsa::Scalar", "getEndKey", (ins "::nsa::Scalar":$query)>,
    InterfaceMethod<"Queries before it do not see `key`.",
      "::nsa::Scalar", "getFirstQuery", (ins "::nsa::Scalar":$key)>,
    InterfaceMethod<"Queries from it on do not see `key`.",
      "::nsa::Scalar", "getEndQuery",
      (ins "::nsa::Scalar":$key, "::nsa::Scalar":$sequence)>,
    InterfaceMethod<[{
        Whether these two move with `key`, token by token: kernels of packed
        sequences then need not count from where that of the key begins.
      }], "bool", "isShiftInvariant", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<"The most keys that a query of a sequence sees.",
      "int64_t", "getMaxKeys", (ins "int64_t":$sequence)>,
    InterfaceMethod<[{
        The number of visible pairs of a sequence with so many keys, at most
        2^63 - 1. Where each query has `indices` indices, those of queries that
        see every block which they name.
      }], "int64_t", "countPairs",
      (ins "int64_t":$sequence, "int64_t":$keys, "int64_t":$indices)>,
  ];
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

/// A visibility. `methods` are those of the interface with a default that it
/// overrides.
class NSA_VisibilityAttr<string name, string visibility,
                         list<string> methods = []>
    : AttrDef<NSA_Dialect, name,
              [DeclareAttrInterfaceMethods<NSA_VisibilityAttrInterface,
                                           methods>]> {
  let mnemonic = visibility;
}

/// A visibility that is a band: see `nsa::Band`.
class NSA_BandAttr<string name, string visibility, list<string> methods = []>
    : NSA_VisibilityAttr<name, visibility, ["isShiftInvariant"] # methods> {
  let extraClassDeclaration = "::nsa::Band getBand() const;";
  let extraClassDefinition = [{
    bool $cppClass::isShiftInvariant() const { return true; }
    ::nsa::Scalar $cppClass::isVisible(::nsa::Scalar query,
                                       ::nsa::Scalar key) const {
      return getBand().isVisible(query, key);
    }
    ::nsa::Scalar $cppClass::getFirstKey(::nsa::Scalar query) const {
      return getBand().getFirstKey(query);
    }
    ::nsa::Scalar $cppClass::getEndKey(::nsa::Scalar query) const {
      return getBand().getEndKey(query);
    }
    ::nsa::Scalar $cppClass::getFirstQuery(::nsa::Scalar key) const {
      return getBand().getFirstQuery(key);
    }
    ::nsa::Scalar $cppClass::getEndQuery(::nsa::Scalar key,
                                         ::nsa::Scalar sequence) const {
      return getBand().getEndQuery(key, sequence);
    }
  }];
}

def NSA_CompressedAttr : NSA_BandAttr<"Compressed", "compressed", [
    "attendsToTokens", "getKeyStride", "getNumKeys", "limitTo"]> {
  let summary = "compressed blocks that are complete";
  let description = [{
    Key `i` stands for the tokens `i*stride .. i*stride + block - 1`, as a row of
    `nsa.compress` does, and query `t` sees it iff `i*stride + block - 1 <= t`.
    `stride` divides `block`.

    Example: `#nsa.compressed<block = 32, stride = 16>`
  }];
  let parameters = (ins "int64_t":$block, "int64_t":$stride);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NSA_SelectedAttr : NSA_BandAttr<"Selected", "selected", [
    "getIndexBlock", "getMaxIndices"]> {
  let summary = "tokens of selected blocks, up to the query's own";
  let description = [{
    Query `t` sees the keys `{u : floor(u / block) in indices[t], u <= t}` of an
    operand of indices, of which each query has at most `count` (0: any number).
    `initial` and `local` say how many of the first and of the last blocks are
    always among them, as in `nsa.select`.

    Example: `#nsa.selected<block = 64, count = 16, initial = 1, local = 2>`
  }];
  let parameters = (ins "int64_t":$block,
                        DefaultValuedParameter<"int64_t", "0">:$count,
                        DefaultValuedParameter<"int64_t", "1">:$initial,
                        DefaultValuedParameter<"int64_t", "2">:$local);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NSA_WindowAttr : NSA_BandAttr<"Window", "window", ["limitTo"]> {
  let summary = "the last tokens";
  let description = [{
    Query `t` sees the keys `(t - window, t]`: exactly `min(window, t + 1)`, its
    own included.

    Example: `#nsa.window<512>`
  }];
  let parameters = (ins "int64_t":$window);
  let assemblyFormat = "`<` $window `>`";
  let genVerifyDecl = 1;
}

def NSA_CausalAttr : NSA_BandAttr<"Causal", "causal"> {
  let summary = "all tokens up to the query's own";
  let description = [{
    Query `t` sees the keys `[0, t]`.

    Example: `#nsa.causal`
  }];
}

def NSA_StridedAttr : NSA_VisibilityAttr<"Strided", "strided", ["limitTo"]> {
  let summary = "every n-th block of tokens, back from the query's own";
  let description = [{
    Query `t` sees the keys `u <= t` of its own block of `block` tokens and of
    those at a distance of a multiple of `stride` blocks from it.

    Example: `#nsa.strided<block = 64, stride = 8>`
  }];
  let parameters = (ins "int64_t":$block, "int64_t":$stride);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

#endif // NSA_DIALECTS_NSA_NSAVISIBILITY_TD
