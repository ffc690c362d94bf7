//===- FusionInterfaces.td - what one kernel may compute ----*- tablegen -*-===//

#ifndef NSA_INTERFACES_FUSIONINTERFACES_TD
#define NSA_INTERFACES_FUSIONINTERFACES_TD

include "mlir/IR/OpBase.td"

def FusibleOpInterface : OpInterface<"FusibleOpInterface"> {
  let cppNamespace = "::nsa";
  let description = [{
    An operation that an `nn.fused` may hold. Its kernel reads each element of
    some operands once and writes each element of some results once, at the
    same index: these are its *elements*. What computes such an operand
    elementwise, and what reads such a result elementwise, may be part of the
    kernel.
  }];
  let methods = [
    InterfaceMethod<[{
      Whether the operand is read as elements.
    }], "bool", "isElementOperand", (ins "unsigned":$index),
      /*methodBody=*/"", /*defaultImplementation=*/"return true;">,
    InterfaceMethod<[{
      Whether the result is written as elements.
    }], "bool", "isElementResult", (ins "unsigned":$index),
      /*methodBody=*/"", /*defaultImplementation=*/"return true;">,
    InterfaceMethod<[{
      Whether one kernel can compute this operation and the other, neither
      elementwise: it iterates over the tensors of both alike.
    }], "bool", "sharesIterationSpace", (ins "::mlir::Operation *":$other),
      /*methodBody=*/"", /*defaultImplementation=*/"return false;">
  ];
}

def ElementwiseOpInterface : OpInterface<"ElementwiseOpInterface",
                                         [FusibleOpInterface]> {
  let cppNamespace = "::nsa";
  let description = [{
    An operation that computes each element of its results from the elements of
    its operands at the same index. All operands and results have one shape.
  }];
  let methods = [
    InterfaceMethod<[{
      Emits the formula on f32 scalars: one value for each result, which is
      rounded to the element type of the result by the caller.
    }], "::llvm::SmallVector<::mlir::Value>", "buildElements",
      (ins "::mlir::ImplicitLocOpBuilder &":$builder,
           "::mlir::ValueRange":$elements)>,
    InterfaceMethod<[{
      Floating-point operations per element, for reports.
    }], "int64_t", "getFlopsPerElement">
  ];
}

def RowSumOpInterface : OpInterface<"RowSumOpInterface"> {
  let cppNamespace = "::nsa";
  let description = [{
    An operation one of whose results is a sum over rows, to which every program
    of its kernel contributes. It can leave the last step to another operation.
  }];
  let methods = [
    InterfaceMethod<[{
      The f32 result that is such a sum, of one dimension; null if there is none
      or if it is partial already.
    }], "::mlir::OpResult", "getRowSum">,
    InterfaceMethod<[{
      Turns that result into partial sums, at most so many: its type gets a first
      dimension, over which they are to be added in ascending order.
    }], "void", "makeRowSumPartial", (ins "int64_t":$most)>
  ];
}

#endif // NSA_INTERFACES_FUSIONINTERFACES_TD
