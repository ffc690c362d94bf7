//===- RTDialect.cpp - the host program -----------------------------------===//

#include "dialects/RT/RTDialect.h"
#include "dialects/NN/NNDialect.h"
#include "dialects/RT/RTOps.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "dialects/RT/RTDialect.cpp.inc"
#include "dialects/RT/RTEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/RT/RTAttributes.cpp.inc"

void nsa::rt::RTDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/RT/RTAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/RT/RTOps.cpp.inc"
      >();
}
