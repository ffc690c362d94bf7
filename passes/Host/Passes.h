//===- Passes.h - from tensors to a planned host program --------*- C++ -*-===//

#ifndef NSA_PASSES_HOST_PASSES_H
#define NSA_PASSES_HOST_PASSES_H

#include "mlir/Pass/Pass.h"

namespace nsa {

#define GEN_PASS_DECL
#include "passes/Host/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/Host/Passes.h.inc"
} // namespace nsa

#endif // NSA_PASSES_HOST_PASSES_H
