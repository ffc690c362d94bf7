//===- OutlinedKernels.h - kernels on their way to code ---------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_OUTLINEDKERNELS_H
#define NSA_LIB_TARGET_OUTLINEDKERNELS_H

#include "dialects/RT/RTOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace nsa {

struct CUDAChip;

/// `name`, or one like it that nothing else in the module has.
std::string getUnusedSymbol(mlir::ModuleOp module, llvm::StringRef name);

/// Moves the tile kernels of a module to a module of their own, nested at its
/// end, which is returned: for a GPU a `gpu.module` with `chip` as target. In
/// their place stand descriptions without the figures of their code, in the
/// same order. There has to be a kernel.
mlir::Operation *outlineKernels(mlir::ModuleOp module,
                                const CUDAChip *chip = nullptr);

/// The kernels of a module on their way to code: outlined, and their
/// descriptions. The nested module goes with this object.
class OutlinedKernels {
public:
  /// Outlines the kernels.
  explicit OutlinedKernels(mlir::ModuleOp module);
  /// Those that have been outlined for a GPU.
  explicit OutlinedKernels(mlir::gpu::GPUModuleOp sources);
  ~OutlinedKernels() { sources->erase(); }
  OutlinedKernels(const OutlinedKernels &) = delete;
  OutlinedKernels &operator=(const OutlinedKernels &) = delete;

  mlir::Operation *getSources() const { return sources; }
  llvm::ArrayRef<rt::KernelOp> getKernels() const { return kernels; }

  /// The functions that the kernels were lowered to, in the order of
  /// `getKernels`, whose performance lints become those of the descriptions.
  /// Fails at a kernel that has none.
  mlir::FailureOr<llvm::SmallVector<mlir::LLVM::LLVMFuncOp>> getFunctions();

private:
  mlir::Operation *sources;
  llvm::SmallVector<rt::KernelOp> kernels;
};

} // namespace nsa

#endif // NSA_LIB_TARGET_OUTLINEDKERNELS_H
