//===- CUDAChip.h - the GPU that code is made for ---------------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CUDA_CUDACHIP_H
#define NSA_LIB_TARGET_CUDA_CUDACHIP_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace nsa {

/// A compute capability and what the compiler has to know about it.
struct CUDAChip {
  /// As ptxas and LLVM call it, "sm_90a".
  llvm::StringLiteral name;
  /// The architecture of its PTX: itself, or the best older one that this
  /// compiler has code for and that all later ones run.
  llvm::StringLiteral architecture;
  /// The lowest version of PTX that has what the kernels use, as a feature of
  /// LLVM's code generator.
  llvm::StringLiteral ptxFeature;
  /// Bytes of shared memory that a block may have.
  uint64_t sharedLimit;
  /// Whether warpgroups can multiply.
  bool wgmma;
};

/// The chips that this compiler has code for.
llvm::ArrayRef<CUDAChip> getCUDAChips();

/// The chip of this name, or null.
const CUDAChip *findCUDAChip(llvm::StringRef name);

} // namespace nsa

#endif // NSA_LIB_TARGET_CUDA_CUDACHIP_H
