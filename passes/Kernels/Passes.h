//===- Passes.h - conversions between dialects ------------------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_PASSES_H
#define NSA_PASSES_KERNELS_PASSES_H

#include "mlir/Pass/Pass.h"

namespace nsa {
#define GEN_PASS_DECL
#include "passes/Kernels/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/Kernels/Passes.h.inc"
} // namespace nsa

#endif // NSA_PASSES_KERNELS_PASSES_H
