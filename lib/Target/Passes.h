//===- Passes.h - passes that make machine code -----------------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_PASSES_H
#define NSA_LIB_TARGET_PASSES_H

#include "mlir/Pass/Pass.h"
#include <memory>

namespace nsa {

struct CPUBinary;
struct CUDABinary;

#define GEN_PASS_DECL
#include "lib/Target/Passes.h.inc"

/// The pass with a buffer for the archive of objects, which stays empty for a
/// module without kernels.
std::unique_ptr<mlir::Pass> createBinary(const BinaryOptions &options,
                                         std::shared_ptr<CPUBinary> result);

/// The same for a GPU.
std::unique_ptr<mlir::Pass>
createSerializeKernels(const SerializeKernelsOptions &options,
                       std::shared_ptr<CUDABinary> result);

/// Why this cannot be in CheckPerformanceLintsOptions::allow, or nothing: there
/// have to be the name of a performance lint or "all" and, if it is of one
/// kernel, "@" and the name of that.
std::string checkPerformanceLintName(llvm::StringRef allowed);

#define GEN_PASS_REGISTRATION
#include "lib/Target/Passes.h.inc"

} // namespace nsa

#endif // NSA_LIB_TARGET_PASSES_H
