//===- DifferentiableOpInterface.td - adjoints of ops -------*- tablegen -*-===//

#ifndef NSA_INTERFACES_DIFFERENTIABLEOPINTERFACE_TD
#define NSA_INTERFACES_DIFFERENTIABLEOPINTERFACE_TD

include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::nsa";
  let description = [{
    An operation that can emit its own reverse-mode adjoint. The adjoint is
    built in the function of the operation itself, so it may use any operand or
    result of the operation; such a use is what saves a value for backward.
  }];
  let methods = [
    InterfaceMethod<[{
      Appends exactly one gradient for each operand to `operandGrads`. A null
      entry in `resultGrads` or `operandGrads` stands for a gradient that is
      zero. At least one entry of `resultGrads` is not null, and each has the
      type of its result (see `takesWiderGradients`). A gradient has the shape of
      its operand and any floating element type (weights get f32). Fails after it
      has emitted an error.
    }], "::llvm::LogicalResult", "buildBackward",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$resultGrads,
           "::llvm::SmallVectorImpl<::mlir::Value> &":$operandGrads)>,
    InterfaceMethod<[{
      Returns whether gradients flow through the operand. By default they do
      where its element type is floating-point.
    }], "bool", "isDifferentiableOperand", (ins "unsigned":$index),
      /*methodBody=*/"", /*defaultImplementation=*/[{
        return ::llvm::isa<::mlir::FloatType>(
            ::mlir::getElementTypeOrSelf($_op->getOperand(index).getType()));
      }]>,
    InterfaceMethod<[{
      Returns whether `buildBackward` takes gradients in a wider element type
      than that of the results. By default they are rounded to the type of the
      result first.
    }], "bool", "takesWiderGradients", (ins), /*methodBody=*/"",
      /*defaultImplementation=*/[{
        return false;
      }]>
  ];
}

#endif // NSA_INTERFACES_DIFFERENTIABLEOPINTERFACE_TD
