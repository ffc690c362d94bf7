//===- DetachKernels.h - kernels on their way to code -----------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_DETACHKERNELS_H
#define NSA_LIB_TARGET_DETACHKERNELS_H

#include "dialects/RT/RTOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace nsa {

/// A name for the code of all kernels that nothing else in the module has.
std::string getBinaryName(mlir::ModuleOp module);

/// The tile kernels of a module in a module of their own, nested at its end,
/// and what stands in their place: descriptions without the figures of their
/// code, in the same order. The nested module goes with this object.
class DetachedKernels {
public:
  explicit DetachedKernels(mlir::ModuleOp module);
  ~DetachedKernels() { sources.erase(); }
  DetachedKernels(const DetachedKernels &) = delete;
  DetachedKernels &operator=(const DetachedKernels &) = delete;

  mlir::ModuleOp getSources() const { return sources; }
  llvm::ArrayRef<rt::KernelOp> getKernels() const { return kernels; }

  /// The functions that the kernels were lowered to, in the order of
  /// `getKernels`, whose slow paths become those of the descriptions. Fails at
  /// a kernel that has none.
  mlir::FailureOr<llvm::SmallVector<mlir::LLVM::LLVMFuncOp>> getFunctions();

private:
  mlir::ModuleOp sources;
  llvm::SmallVector<rt::KernelOp> kernels;
};

} // namespace nsa

#endif // NSA_LIB_TARGET_DETACHKERNELS_H
