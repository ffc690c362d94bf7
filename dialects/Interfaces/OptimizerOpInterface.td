//===- OptimizerOpInterface.td - steps of optimizers --------*- tablegen -*-===//

#ifndef NSA_INTERFACES_OPTIMIZEROPINTERFACE_TD
#define NSA_INTERFACES_OPTIMIZEROPINTERFACE_TD

include "mlir/IR/OpBase.td"

def ElementwiseUpdateOpInterface : OpInterface<"ElementwiseUpdateOpInterface"> {
  let cppNamespace = "::nsa";
  let description = [{
    An operation that one kernel computes on flat tensors: each element of its
    results follows from the elements of the first operands at the same index,
    and from scalars that each program makes of the other operands. All those
    elements are f32, and the results may take the memory of the operands.
  }];
  let methods = [
    InterfaceMethod<[{
      How many of the operands are read element by element: the first ones.
    }], "unsigned", "getNumElementOperands">,
    InterfaceMethod<[{
      Emits what each program reads once. `operands` is the memory of the other
      operands, which `load` reads; the result is passed on to `buildElements`.
    }], "::llvm::SmallVector<::mlir::Value>", "buildScalars",
      (ins "::mlir::ImplicitLocOpBuilder &":$builder,
           "::mlir::ValueRange":$operands, "::nsa::ScalarLoader":$load)>,
    InterfaceMethod<[{
      Emits the formula on f32 scalars: one value for each result.
    }], "::llvm::SmallVector<::mlir::Value>", "buildElements",
      (ins "::mlir::ImplicitLocOpBuilder &":$builder,
           "::mlir::ValueRange":$elements, "::mlir::ValueRange":$scalars)>,
    InterfaceMethod<[{
      Floating-point operations per element, for reports.
    }], "int64_t", "getFlopsPerElement">
  ];
}

def OptimizerOpInterface : OpInterface<"OptimizerOpInterface"> {
  let cppNamespace = "::nsa";
  let description = [{
    One step of an optimizer on one weight. All optimizers have the operands

    ```
    weight, states..., gradient, norm, loss, hyper
    ```

    and the results `new weight, new states...`, of the types of the operands.
    `norm` is the L2 norm of all gradients, `loss` the sum of losses; if one of
    them is not finite, weight and states stay as they are. `hyper` has the
    numbers of the step (see `nn.adamw`). The unit attribute `decay` says that
    weight decay applies.

    An optimizer that implements `ElementwiseUpdateOpInterface` too is one
    kernel: `nsa-fuse` puts updates of many weights together, and
    `nsa-shard-optimizer` gives each rank a part of them. Any other implements
    `buildUpdate`.
  }];
  let methods = [
    StaticInterfaceMethod<[{
      What the optimizer keeps for a weight of this type from step to step, in
      the order of the operands.
    }], "::llvm::SmallVector<::nsa::OptimizerState>", "getStateSpecs",
      (ins "::mlir::RankedTensorType":$weight)>,
    StaticInterfaceMethod<[{
      Whether it can update a weight of this type.
    }], "bool", "canUpdate", (ins "::mlir::RankedTensorType":$weight),
      /*methodBody=*/"", /*defaultImplementation=*/"return true;">,
    StaticInterfaceMethod<[{
      The optimizer of the parameters that this one is not for, which is for
      matrices between hidden states alone; empty if it is for all.
    }], "::llvm::StringRef", "getCompanion", (ins),
      /*methodBody=*/"", /*defaultImplementation=*/"return {};">,
    InterfaceMethod<"Whether weight decay applies.", "bool", "getDecay">,
    InterfaceMethod<[{
      Builds the steps of a group of operations of this kind, this one among
      them, of nn operations: matmuls, elementwise operations. The
      operations have weights of one type, the same attributes, norm, loss and
      hyper. Returns the new weight and the new states of each, one after the
      other; nothing if there is no such update. Not asked of elementwise
      optimizers.
    }], "::llvm::SmallVector<::mlir::Value>", "buildUpdate",
      (ins "::mlir::OpBuilder &":$builder,
           "::llvm::ArrayRef<::nsa::OptimizerOpInterface>":$group),
      /*methodBody=*/"", /*defaultImplementation=*/[{
        return {};
      }]>
  ];
  let extraClassDeclaration = [{
    bool isElementwise() {
      return ::llvm::isa<::nsa::ElementwiseUpdateOpInterface>(getOperation());
    }
    unsigned getNumStates() { return getOperation()->getNumResults() - 1; }
    ::mlir::Value getWeight() { return getOperation()->getOperand(0); }
    ::mlir::OperandRange getStates() {
      return getOperation()->getOperands().slice(1, getNumStates());
    }
    ::mlir::Value getGradient() {
      return getOperation()->getOperand(1 + getNumStates());
    }
    ::mlir::Value getNorm() {
      return getOperation()->getOperand(2 + getNumStates());
    }
    ::mlir::Value getLoss() {
      return getOperation()->getOperand(3 + getNumStates());
    }
    ::mlir::Value getHyper() {
      return getOperation()->getOperand(4 + getNumStates());
    }
    /// Weight, states and gradient.
    ::mlir::OperandRange getTensors() {
      return getOperation()->getOperands().take_front(2 + getNumStates());
    }
    ::mlir::OpResult getNewWeight() { return getOperation()->getResult(0); }
    ::mlir::ResultRange getNewStates() {
      return getOperation()->getResults().drop_front();
    }
    /// The same step of another weight: `tensors` in place of those of
    /// `getTensors`, the same attributes and scalars.
    ::nsa::OptimizerOpInterface createFor(::mlir::OpBuilder &builder,
                                          ::mlir::Location loc,
                                          ::mlir::ValueRange tensors);
  }];
  let verify = [{ return ::nsa::verifyOptimizerOp($_op); }];
}

#endif // NSA_INTERFACES_OPTIMIZEROPINTERFACE_TD
