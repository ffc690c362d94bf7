//===- NSADialect.cpp - Native Sparse Attention dialect -------------------===//

#include "dialects/NSA/NSADialect.h"
#include "dialects/NSA/NSAOps.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "dialects/NSA/NSADialect.cpp.inc"
#include "dialects/NSA/NSAEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/NSA/NSAAttributes.cpp.inc"

void nsa::NSADialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/NSA/NSAAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/NSA/NSAOps.cpp.inc"
      >();
}
