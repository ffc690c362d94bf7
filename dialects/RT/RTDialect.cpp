//===- RTDialect.cpp - the host program -----------------------------------===//

#include "dialects/RT/RTDialect.h"
#include "dialects/RT/RTOps.h"
#include "nsa/Artifact/TensorMap.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "dialects/RT/RTDialect.cpp.inc"
#include "dialects/RT/RTEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/RT/RTAttributes.cpp.inc"

using namespace mlir;
using namespace nsa;

void rt::RTDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/RT/RTAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/RT/RTOps.cpp.inc"
      >();
}

static uint64_t getBytes(Type element) {
  return element.getIntOrFloatBitWidth() / 8;
}

LogicalResult
rt::TensorMapAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                          unsigned argument, Type element,
                          DenseI64ArrayAttr extents, DenseI64ArrayAttr strides,
                          DenseI64ArrayAttr box, unsigned swizzle) {
  if (!isa<Float32Type, BFloat16Type, Float16Type>(element) &&
      !element.isSignlessInteger(32))
    return emitError()
           << "elements of a tensor map are f32, bf16, f16 or i32, not "
           << element;
  std::string mistake =
      findTensorMapMistake(extents.asArrayRef(), strides.asArrayRef(),
                           box.asArrayRef(), swizzle, getBytes(element));
  return mistake.empty() ? success() : LogicalResult(emitError() << mistake);
}

uint64_t rt::TensorMapAttr::getSpan() const {
  return tensorMapSpan(getExtents().asArrayRef(), getStrides().asArrayRef(),
                       getBytes(getElement()));
}

//===----------------------------------------------------------------------===//
// Attributes with the prefix of the dialect: there are none
//===----------------------------------------------------------------------===//

LogicalResult
rt::RTDialect::verifyOperationAttribute(Operation *op,
                                        NamedAttribute attribute) {
  return refuseAttribute(op, attribute);
}

LogicalResult
rt::RTDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned,
                                        NamedAttribute attribute) {
  return refuseAttribute(op, attribute);
}

LogicalResult
rt::RTDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned,
                                           NamedAttribute attribute) {
  return refuseAttribute(op, attribute);
}
