//===- Passes.h - conversions between dialects ------------------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_PASSES_H
#define NSA_PASSES_CONVERSION_PASSES_H

#include "mlir/Pass/Pass.h"
#include "passes/Conversion/KernelSchedule.h"

namespace nsa {
#define GEN_PASS_DECL
#include "passes/Conversion/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/Conversion/Passes.h.inc"
} // namespace nsa

#endif // NSA_PASSES_CONVERSION_PASSES_H
