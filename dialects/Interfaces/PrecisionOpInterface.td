//===- PrecisionOpInterface.td - element types of operands --*- tablegen -*-===//

#ifndef NSA_INTERFACES_PRECISIONOPINTERFACE_TD
#define NSA_INTERFACES_PRECISIONOPINTERFACE_TD

include "mlir/IR/OpBase.td"

def PrecisionOpInterface : OpInterface<"PrecisionOpInterface"> {
  let cppNamespace = "::nsa";
  let description = [{
    An operation that says in which precision it takes each operand when a
    model is compiled for a compute type narrower than f32. The types of its
    results follow by `InferTypeOpInterface`.
  }];
  let methods = [
    InterfaceMethod<[{
      Returns the precision of the operand. Only floating-point operands are
      asked for.
    }], "::nsa::OperandPrecision", "getOperandPrecision",
      (ins "unsigned":$index), /*methodBody=*/"",
      /*defaultImplementation=*/[{
        return ::nsa::OperandPrecision::Any;
      }]>
  ];
}

#endif // NSA_INTERFACES_PRECISIONOPINTERFACE_TD
