//===- NNDialect.td - the rest of a decoder ---------------------*- tablegen -*-===//

#ifndef NSA_DIALECTS_NN_NNDIALECT_TD
#define NSA_DIALECTS_NN_NNDIALECT_TD

include "dialects/Interfaces/OpChecks.td"
include "mlir/IR/OpBase.td"

def NN_Dialect : Dialect {
  let name = "nn";
  let cppNamespace = "::nsa::nn";
  let summary = "Decoder layers other than attention, and the training step";
  let description = [{
    Value-semantics operations on ranked tensors of static shape: embedding,
    matmul, normalisation, rotary embedding, gates, activations, loss,
    gradient norm and optimizers, each differentiable op with its backward op.
    Statistics and accumulation are fp32 in every op.

    The dialect also owns the attributes that give the tensors of a program
    their names and roles:

    | attribute | on | meaning |
    |---|---|---|
    | `nn.name` | argument, result | unique name of the tensor |
    | `nn.role` | argument | `input`, `parameter`, `constant`, `gradient`, `state` |
    | `nn.state` | argument | the optimizer's name of a state that it keeps for a parameter |
    | `nn.init` | argument | initial value, a `#nn.init` |
    | `nn.decay` | argument | the parameter takes part in weight decay |
    | `nn.dims` | argument | which dimensions follow `batch` and `seq` |
    | `nn.differentiate` | argument | the objective is differentiated with respect to it |
    | `nn.seed` | argument | the gradient of the objective, a `tensor<f32>`; 1 without it |
    | `nn.alias` | result | the result replaces the argument of this name |
    | `nn.objective` | result | the value to differentiate, in training the loss |
    | `nn.kept` | result | of a backward function: an argument, which the forward pass has kept |
    | `nn.statistic` | result | a metric: evaluation computes it, training does not |
    | `nn.train` | function | the model to train |
    | `nn.config` | module | sections `model` and `nsa` of the configuration the model was made from, as JSON |

    For example:

    ```mlir
    func.func @model(
        %tokens: tensor<2x64xi32> {nn.name = "tokens", nn.role = "input", nn.dims = ["batch", "seq"]},
        %table: tensor<256x32xf32> {nn.name = "embed.weight", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>})
        -> (tensor<2x64x32xf32> {nn.name = "hidden"})
    ```
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  // Each where its operations are defined: all in one file compile for 17 s.
  let extraClassDeclaration = [{
    void registerActivations();
    void registerModuleOps();
    void registerOptimizers();
    void registerSampling();
  }];
}

class NN_Op<string mnemonic, list<Trait> traits = []>
    : Op<NN_Dialect, mnemonic,
         !listconcat(traits, [NSA_LimitedSizes, NSA_KnownAttributes])>;

#endif // NSA_DIALECTS_NN_NNDIALECT_TD
