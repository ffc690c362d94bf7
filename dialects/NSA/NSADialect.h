//===- NSADialect.h - Native Sparse Attention dialect -----------*- C++ -*-===//

#ifndef NSA_DIALECTS_NSA_NSADIALECT_H
#define NSA_DIALECTS_NSA_NSADIALECT_H

#include "dialects/NSA/Visibility.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"

#include "dialects/NSA/NSADialect.h.inc"
#include "dialects/NSA/NSAEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/NSA/NSAAttributes.h.inc"

#endif // NSA_DIALECTS_NSA_NSADIALECT_H
