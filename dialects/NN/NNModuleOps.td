//===- NNModuleOps.td - the text of whole models ----------------*- tablegen -*-===//
//
// What a model is written with: parameters with names, layers that repeat,
// functions that are called. The pass nsa-expand-model turns all of it into one
// func.func with the ops of NNOps.td.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNMODULEOPS_TD
#define NSA_DIALECTS_NN_NNMODULEOPS_TD

include "dialects/Interfaces/TensorTypes.td"
include "dialects/NN/NNAttributes.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

//===----------------------------------------------------------------------===//
// Modules, parameters and scopes
//===----------------------------------------------------------------------===//

def NN_ModelOp : NN_Op<"module", [IsolatedFromAbove, SymbolTable, Symbol,
                                  NoTerminator, SingleBlock]> {
  let opDocGroup = NSA_DocGroup<"Modules, parameters and scopes">;
  let summary = "a whole model";
  let description = [{
    Holds parameters, scopes and functions. `precision` is the compute type if
    the compiler is not told another one; `config` is the part of the
    configuration that the model was made from: the artefact carries it.

    Example:

    ```mlir
    nn.module @tiny precision bf16 config {model = {dim = 64}} {
      nn.parameter @embedding.weight : tensor<256x64xf32> = normal 0.02 decay
      nn.scope @layers[0 to 2] {
        nn.parameter @norm.weight : tensor<64xf32> = constant 1.0
      }
      nn.func @layer(%x: tensor<2x32x64xf32>) -> tensor<2x32x64xf32> {
        %h = nn.norm %x, @layers::@norm.weight eps 1.0e-5 : tensor<2x32x64xf32>
        nn.return %h : tensor<2x32x64xf32>
      }
      nn.func train @model(%tokens: tensor<2x32xi32> [batch, seq], %targets: tensor<2x32xi32> [batch, seq])
          -> (loss: tensor<f32>, logits: tensor<2x32x256xf32>) {
        %x = nn.embed %tokens, @embedding.weight : tensor<2x32xi32> -> tensor<2x32x64xf32>
        %y = nn.repeat @layers (%h = %x : tensor<2x32x64xf32>) {
          %z = nn.call @layer(%h) : (tensor<2x32x64xf32>) -> tensor<2x32x64xf32>
          nn.next %z : tensor<2x32x64xf32>
        }
        %logits = nn.linear %y, @embedding.weight : tensor<2x32x64xf32> -> tensor<2x32x256xf32>
        %loss, %lse, %count = nn.cross_entropy %logits, %targets
            : (tensor<2x32x256xf32>, tensor<2x32xi32>) -> (tensor<f32>, tensor<2x32xf32>, tensor<f32>)
        nn.return %loss, %logits : tensor<f32>, tensor<2x32x256xf32>
      }
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$precision,
                       OptionalAttr<DictionaryAttr>:$config);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def NN_ParameterOp : NN_Op<"parameter", [Symbol]> {
  let opDocGroup = NSA_DocGroup<"Modules, parameters and scopes">;
  let summary = "a tensor that is kept from step to step";
  let description = [{
    Its symbol is its name in checkpoints, prefixed by that of the scope if it is
    in one. It starts from a normal distribution of this standard deviation, a
    constant or, if `frozen`, a table of rotary angles of this base, optionally
    `with` a `#nn.rotary` of its scaling. `decay`
    applies weight decay; `frozen` parameters are not trained; `by` names the
    optimizer where it is another than that of the program. The clause in
    brackets says which dimensions follow the batch and the sequence.

    Example:

    ```mlir
    nn.module @m {
      nn.parameter @query.weight : tensor<64x32xf32> = normal 0.02 decay
      nn.parameter @norm.weight : tensor<32xf32> = constant 1.0
      nn.parameter @rotary : tensor<256x8x2xf32> [seq, _, _] = rotary 10000.0 frozen
      nn.parameter @long : tensor<256x8x2xf32> [seq, _, _] = rotary 10000.0
          with #nn.rotary<channels = 8, scaling = linear, factor = 4.0 : f64> frozen
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<NSA_F32Tensor>:$type,
                       OptionalAttr<StrArrayAttr>:$dims, NN_InitAttr:$init,
                       UnitAttr:$decay, UnitAttr:$frozen,
                       OptionalAttr<StrAttr>:$optimizer);
  let assemblyFormat = [{
    $sym_name `:` $type (` ` `[` custom<Dims>($dims)^ `]`)? `=`
      custom<Initializer>($init)
      (`decay` $decay^)? (`frozen` $frozen^)? (`by` $optimizer^)? attr-dict
  }];
  let hasVerifier = 1;
}

def NN_ScopeOp : NN_Op<"scope", [SymbolTable, Symbol, NoTerminator,
                                 SingleBlock]> {
  let opDocGroup = NSA_DocGroup<"Modules, parameters and scopes">;
  let summary = "the parameters of a kind of layer";
  let description = [{
    Each of the indices has a set of these parameters. In checkpoints,
    parameter `@p` of layer `i` is called `NAME.i.p`; `NAME` is the scope's symbol
    if no other is given. Scopes of several kinds of layers share a name.

    Example:

    ```mlir
    nn.module @m {
      nn.scope @dense[0, 11] named "layers" {
        nn.parameter @query.weight : tensor<64x64xf32> = normal 0.02 decay
      }
      nn.scope @sparse[1 to 11] named "layers" {
        nn.parameter @query.weight : tensor<64x64xf32> = normal 0.02 decay
      }
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DenseI64ArrayAttr:$indices,
                       OptionalAttr<StrAttr>:$prefix);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `[` custom<Indices>($indices) `]` (`named` $prefix^)?
      attr-dict-with-keyword $body
  }];
  let extraClassDeclaration = [{
    /// What the names of its parameters begin with.
    ::llvm::StringRef getNamePrefix() { return getPrefix().value_or(getSymName()); }
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

def NN_FunctionOp : NN_Op<"func", [IsolatedFromAbove, Symbol, SingleBlock,
    HasParent<"ModelOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let opDocGroup = NSA_DocGroup<"Functions">;
  let summary = "a part of a model";
  let description = [{
    Arguments keep their names. One function is `train`: its arguments and results
    are inputs and outputs of the program, of these names. A clause in brackets
    says which dimensions follow the batch and the sequence.

    Example:

    ```mlir
    nn.module @m {
      nn.func @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
        %y = nn.add %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
        nn.return %y : tensor<4xf32>
      }
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type,
                       StrArrayAttr:$arg_names, OptionalAttr<ArrayAttr>:$arg_dims,
                       OptionalAttr<StrArrayAttr>:$result_names, UnitAttr:$train);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def NN_ReturnOp : NN_Op<"return", [Pure, Terminator, HasParent<"FunctionOp">]> {
  let opDocGroup = NSA_DocGroup<"Functions">;
  let summary = "the results of a function";
  let description = [{
    Example:

    ```mlir
    nn.module @m {
      nn.func @same(%x: tensor<4xf32>) -> tensor<4xf32> {
        nn.return %x : tensor<4xf32>
      }
    }
    ```
  }];
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let hasVerifier = 1;
}

def NN_CallOp : NN_Op<"call", [
    DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let opDocGroup = NSA_DocGroup<"Functions">;
  let summary = "call of a function";
  let description = [{
    The call is inlined. Recursion is not allowed.

    Example:

    ```mlir
    nn.module @m {
      nn.func @half(%x: tensor<4xf32>) -> tensor<4xf32> {
        nn.return %x : tensor<4xf32>
      }
      nn.func @whole(%x: tensor<4xf32>) -> tensor<4xf32> {
        %y = nn.call @half(%x) : (tensor<4xf32>) -> tensor<4xf32>
        nn.return %y : tensor<4xf32>
      }
    }
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyType>:$operands);
  let results = (outs Variadic<AnyType>:$results);
  let assemblyFormat = [{
    $callee `(` $operands `)` attr-dict `:` functional-type($operands, $results)
  }];
}

def NN_RepeatOp : NN_Op<"repeat", [SingleBlock,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, [
        "getAsmBlockArgumentNames", "getAsmResultNames"]>]> {
  let opDocGroup = NSA_DocGroup<"Functions">;
  let summary = "layers one after the other";
  let description = [{
    The body is computed once for each index, with the parameters that the scopes
    have for it: the values that `nn.next` names are the arguments of the next
    layer, the last ones the results. Without `at`, the indices are those of the
    scopes, which are equal.

    Example:

    ```mlir
    nn.module @m {
      nn.scope @sparse[1 to 11] named "layers" {
        nn.parameter @norm.weight : tensor<64xf32> = constant 1.0
      }
      nn.func @stack(%x: tensor<2x8x64xf32>) -> tensor<2x8x64xf32> {
        %y = nn.repeat @sparse at 1 to 4 (%h = %x : tensor<2x8x64xf32>) {
          %n = nn.norm %h, @sparse::@norm.weight eps 1.0e-5 : tensor<2x8x64xf32>
          nn.next %n : tensor<2x8x64xf32>
        }
        nn.return %y : tensor<2x8x64xf32>
      }
    }
    ```
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$scopes, StrArrayAttr:$arg_names,
                       OptionalAttr<DenseI64ArrayAttr>:$indices,
                       Variadic<AnyType>:$initial);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def NN_NextOp : NN_Op<"next", [Pure, Terminator, HasParent<"RepeatOp">]> {
  let opDocGroup = NSA_DocGroup<"Functions">;
  let summary = "the input of the next layer";
  let description = [{
    See the example of `nn.repeat`.
  }];
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

def NN_LogOp : NN_Op<"log"> {
  let opDocGroup = NSA_DocGroup<"Functions">;
  let summary = "a metric";
  let description = [{
    A result of the program that evaluation computes and training does not. Its
    name is prefixed by that of the layer.

    Example:

    ```mlir
    nn.module @m {
      nn.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
        nn.log "gate.statistics", %x : tensor<4xf32>
        nn.return %x : tensor<4xf32>
      }
    }
    ```
  }];
  let arguments = (ins StrAttr:$name, NSA_F32Tensor:$value);
  let assemblyFormat = "$name `,` $value attr-dict `:` type($value)";
}

//===----------------------------------------------------------------------===//
// Operations with parameters
//===----------------------------------------------------------------------===//

/// A model is written in f32: the compute type is an attribute of the module.
def NN_F32Rows : ConfinedType<NSA_F32Tensor,
    [CPred<"::llvm::cast<::mlir::ShapedType>($_self).getRank() > 0">],
    "statically shaped tensor of 32-bit float values with at least one dimension",
    "::mlir::RankedTensorType">;

def NN_ParameterUserOpInterface : OpInterface<"ParameterUserOpInterface"> {
  let cppNamespace = "::nsa::nn";
  let description = [{
    An op of a model with at most one operand that reads a parameter by its
    symbol and stands for ops that read it as a value.
  }];
  let methods = [
    InterfaceMethod<"The parameter.", "::mlir::SymbolRefAttr",
                    "getParameterRef">,
    InterfaceMethod<"Makes the ops that it stands for and returns the result.",
                    "::mlir::Value", "expand",
                    (ins "::mlir::OpBuilder &":$builder,
                         "::mlir::Location":$loc, "::mlir::Value":$operand,
                         "::mlir::Value":$parameter)>];
}

/// Reads the parameter that the attribute `reference` names.
class NN_ParameterUser<string mnemonic, string reference,
                       list<Trait> traits = []>
    : NN_Op<mnemonic, !listconcat(traits, [Pure,
        DeclareOpInterfaceMethods<SymbolUserOpInterface>,
        DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>,
        NN_ParameterUserOpInterface])> {
  let opDocGroup = NSA_DocGroup<"Layers with their parameters">;
  let extraClassDeclaration = [{
    ::mlir::SymbolRefAttr getParameterRef() { return get}] # reference # [{(); }
    ::mlir::Value expand(::mlir::OpBuilder &builder, ::mlir::Location loc,
                         ::mlir::Value operand, ::mlir::Value parameter);
  }];
  /// After its parameter: %query of @attention.query.weight.
  code resultName = [{getValueName(getParameterRef())}];
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      setName((*this)->getResult(0), }] # resultName # [{);
    }
  }];
}

def NN_GetOp : NN_ParameterUser<"get", "Parameter"> {
  let summary = "a parameter as a value";
  let description = [{
    With it, any operation takes parameters.

    Example:

    ```mlir
    nn.module @m {
      nn.parameter @bias : tensor<4xf32> = constant 0.0
      nn.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
        %b = nn.get @bias : tensor<4xf32>
        %y = nn.add %x, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
        nn.return %y : tensor<4xf32>
      }
    }
    ```
  }];
  let arguments = (ins SymbolRefAttr:$parameter);
  let results = (outs NSA_F32Tensor:$value);
  let assemblyFormat = "$parameter attr-dict `:` type($value)";
}

def NN_LinearOp : NN_ParameterUser<"linear", "Weight"> {
  let summary = "matmul with a weight, optionally split into heads";
  let description = [{
    `y = x . w^T` for a weight `[out, in]`, which is `nn.matmul` with
    `transpose_rhs`. With `heads N`, the columns are split into `N` heads.

    Example:

    ```mlir
    nn.module @m {
      nn.parameter @query.weight : tensor<64x32xf32> = normal 0.02 decay
      nn.func @f(%x: tensor<2x8x32xf32>) -> tensor<2x8x4x16xf32> {
        %q = nn.linear %x, @query.weight heads 4 : tensor<2x8x32xf32> -> tensor<2x8x4x16xf32>
        nn.return %q : tensor<2x8x4x16xf32>
      }
    }
    ```
  }];
  let arguments = (ins NN_F32Rows:$input, SymbolRefAttr:$weight,
                       OptionalAttr<NSA_PositiveI64>:$heads);
  let results = (outs NN_F32Rows:$output);
  let assemblyFormat = [{
    $input `,` $weight (`heads` $heads^)? attr-dict
      `:` type($input) `->` type($output)
  }];
}

def NN_NormOp : NN_ParameterUser<"norm", "Weight", [AllTypesMatch<["input", "output"]>]> {
  let summary = "division by the root of the mean square";
  let description = [{
    `nn.rms_norm`. With `plus_one`, it multiplies by `1 + weight`.

    Example:

    ```mlir
    nn.module @m {
      nn.parameter @norm.weight : tensor<32xf32> = constant 1.0
      nn.func @f(%x: tensor<2x8x32xf32>) -> tensor<2x8x32xf32> {
        %y = nn.norm %x, @norm.weight eps 1.0e-5 : tensor<2x8x32xf32>
        nn.return %y : tensor<2x8x32xf32>
      }
    }
    ```
  }];
  let arguments = (ins NN_F32Rows:$input, SymbolRefAttr:$weight,
                       F64Attr:$eps, UnitAttr:$plus_one);
  let results = (outs NN_F32Rows:$output);
  let assemblyFormat = [{
    $input `,` $weight (`plus_one` $plus_one^)? `eps` custom<Float>($eps)
      attr-dict `:` type($input)
  }];
}

def NN_EmbedOp : NN_ParameterUser<"embed", "Table"> {
  let summary = "rows of a table";
  let description = [{
    `nn.embedding`.

    Example:

    ```mlir
    nn.module @m {
      nn.parameter @embedding.weight : tensor<256x32xf32> = normal 0.02 decay
      nn.func @f(%ids: tensor<2x8xi32>) -> tensor<2x8x32xf32> {
        %x = nn.embed %ids, @embedding.weight : tensor<2x8xi32> -> tensor<2x8x32xf32>
        nn.return %x : tensor<2x8x32xf32>
      }
    }
    ```
  }];
  let arguments = (ins NSA_I32Tensor:$ids, SymbolRefAttr:$table);
  let results = (outs NN_F32Rows:$output);
  let assemblyFormat = [{
    $ids `,` $table attr-dict `:` type($ids) `->` type($output)
  }];
}

def NN_RopeOp : NN_ParameterUser<"rope", "Table", [AllTypesMatch<["input", "output"]>]> {
  let resultName = [{"rotated"}];
  let summary = "rotary embedding";
  let description = [{
    `nn.rotary` with a frozen parameter of the kind `rotary`. Row `t` stands at
    position `t * stride`.

    Example:

    ```mlir
    nn.module @m {
      nn.parameter @rotary : tensor<64x8x2xf32> [seq, _, _] = rotary 10000.0 frozen
      nn.func @f(%x: tensor<1x15x2x16xf32>) -> tensor<1x15x2x16xf32> {
        %y = nn.rope %x, @rotary stride 4 : tensor<1x15x2x16xf32>
        nn.return %y : tensor<1x15x2x16xf32>
      }
    }
    ```
  }];
  let arguments = (ins NSA_F32TensorOfRank<4>:$input, SymbolRefAttr:$table,
                       OptionalAttr<NSA_PositiveI64>:$stride);
  let results = (outs NSA_F32TensorOfRank<4>:$output);
  let assemblyFormat = [{
    $input `,` $table (`stride` $stride^)? attr-dict `:` type($input)
  }];
}

def NN_GatesOp : NN_ParameterUser<"gates", "Bias"> {
  let resultName = [{"gates"}];
  let summary = "gates from logits and a bias";
  let description = [{
    `nn.gate`.

    Example:

    ```mlir
    nn.module @m {
      nn.parameter @gate.bias : tensor<12xf32> = constant -0.7
      nn.func @f(%x: tensor<1x64x12xf32>) -> tensor<1x64x4x3xf32> {
        %g = nn.gates sigmoid %x, @gate.bias : tensor<1x64x12xf32> -> tensor<1x64x4x3xf32>
        nn.return %g : tensor<1x64x4x3xf32>
      }
    }
    ```
  }];
  let arguments = (ins NN_GateActivationAttr:$activation,
                       NSA_F32TensorOfRank<3>:$logits, SymbolRefAttr:$bias);
  let results = (outs NSA_F32TensorOfRank<4>:$gates);
  let assemblyFormat = [{
    $activation $logits `,` $bias attr-dict `:` type($logits) `->` type($gates)
  }];
}

#endif // NSA_DIALECTS_NN_NNMODULEOPS_TD
