//===- Attributes.h - what passes say of CUDA kernels -----------*- C++ -*-===//
//
// Names of attributes that go from and to the lowering. Apart from its passes,
// so that who only writes one needs none of their declarations.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_ATTRIBUTES_H
#define NSA_PASSES_CONVERSION_TILETONVVM_ATTRIBUTES_H

#include "llvm/ADT/StringRef.h"

namespace nsa {

/// Attribute of a function made from a kernel, an i64: bytes of dynamic shared
/// memory that a launch gives it.
inline constexpr llvm::StringLiteral kSharedBytesAttr = "nsa.shared_bytes";

/// Attribute of a function made from a kernel, an i64: registers that each
/// thread has to have at launch, because some hand theirs over to others.
inline constexpr llvm::StringLiteral kLaunchRegistersAttr =
    "nsa.launch_registers";

/// Attribute of a function made from a kernel, an array of #rt.tensor_map: what
/// the parameters behind the pointers describe.
inline constexpr llvm::StringLiteral kTensorMapsAttr = "nsa.tensor_maps";

/// Attribute of an argument of a kernel, an i64: bytes of which its address is
/// a multiple in every launch. Without it, that of a tensor of its own is one
/// of `kTensorAlignment`, that of columns of a matrix one of an element.
inline constexpr llvm::StringLiteral kAlignmentAttr = "nsa.alignment";
inline constexpr int64_t kTensorAlignment = 16;

/// Attribute of a kernel, an i64: blocks that a multiprocessor is to run at
/// once, as far as registers go. Without it, as many as fit.
inline constexpr llvm::StringLiteral kResidentsAttr = "nsa.residents";

} // namespace nsa

#endif // NSA_PASSES_CONVERSION_TILETONVVM_ATTRIBUTES_H
