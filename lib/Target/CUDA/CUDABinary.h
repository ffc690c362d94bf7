//===- CUDABinary.h - kernels to code for a GPU -----------------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CUDA_CUDABINARY_H
#define NSA_LIB_TARGET_CUDA_CUDABINARY_H

#include "lib/Target/CUDA/Assembler.h"
#include "lib/Target/OutlinedKernels.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace nsa {

/// The code of a module's kernels. `cubin` is empty where there was no ptxas:
/// then the driver of the machine that runs it compiles the PTX.
struct CUDABinary {
  std::string chip;
  std::string ptx;
  llvm::SmallVector<char, 0> cubin;

  /// One form of the code, as an artefact holds it.
  struct Image {
    llvm::StringRef format;
    llvm::ArrayRef<char> bytes;
  };

  /// What goes to the artefact: the cubin, and the PTX where that is all there
  /// is or where later GPUs than the cubin's run it.
  llvm::SmallVector<Image, 2> getImages() const;
};

/// Lets `registry` translate what CUDA kernels are made of to LLVM IR.
void registerCUDATranslations(mlir::DialectRegistry &registry);

/// Translates `module`, in the LLVM and NVVM dialects, and compiles it.
/// `ptxas` is the path of that program, or empty to leave PTX. What ptxas says
/// about the kernels goes to `resources`. With a folder `saveTo`, writes each
/// kernel there as NAME.llvm.mlir, NAME.ll, NAME.ptx and, if there is a
/// cuobjdump beside ptxas, NAME.sass. Fails with a diagnostic.
mlir::FailureOr<CUDABinary>
compileForCUDA(mlir::gpu::GPUModuleOp module, const CUDAChip &chip,
               llvm::StringRef ptxas, unsigned threads,
               llvm::StringMap<KernelResources> &resources,
               llvm::StringRef saveTo = "");

/// Notes on the kernels of `outlined`, lowered to the LLVM and NVVM dialects,
/// what a launch has to know: threads, bytes of shared memory and tensor maps.
/// Fails with a diagnostic.
mlir::LogicalResult describeLaunches(OutlinedKernels &outlined);

} // namespace nsa

#endif // NSA_LIB_TARGET_CUDA_CUDABINARY_H
