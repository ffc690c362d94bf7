//===- RTDialect.h - the host program ---------------------------*- C++ -*-===//

#ifndef NSA_DIALECTS_RT_RTDIALECT_H
#define NSA_DIALECTS_RT_RTDIALECT_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"

#include "dialects/RT/RTDialect.h.inc"
#include "dialects/RT/RTEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/RT/RTAttributes.h.inc"

#endif // NSA_DIALECTS_RT_RTDIALECT_H
