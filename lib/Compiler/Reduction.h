//===- Reduction.h - passes that make failing files small -------*- C++ -*-===//

#ifndef NSA_LIB_COMPILER_REDUCTION_H
#define NSA_LIB_COMPILER_REDUCTION_H

#include "mlir/Pass/Pass.h"

namespace nsa {

#define GEN_PASS_DECL
#include "lib/Compiler/Reduction.h.inc"

#define GEN_PASS_REGISTRATION
#include "lib/Compiler/Reduction.h.inc"

} // namespace nsa

#endif // NSA_LIB_COMPILER_REDUCTION_H
