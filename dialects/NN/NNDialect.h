//===- NNDialect.h - the rest of a decoder ----------------------*- C++ -*-===//

#ifndef NSA_DIALECTS_NN_NNDIALECT_H
#define NSA_DIALECTS_NN_NNDIALECT_H

#include "dialects/NN/NNAttributes.h"
#include "mlir/IR/Dialect.h"

#include "dialects/NN/NNDialect.h.inc"

#endif // NSA_DIALECTS_NN_NNDIALECT_H
