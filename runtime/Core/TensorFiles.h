//===- TensorFiles.h - tensors from and to .npy arrays ----------*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_TENSORFILES_H
#define NSA_RUNTIME_CORE_TENSORFILES_H

#include "lib/Support/Npy.h"
#include "nsa/Runtime/Runtime.h"

namespace nsa {

/// Copies an array into a tensor of the same shape. f32 rounds to bf16 and f16;
/// every other conversion (f64 to f32, among the integers) must be exact, or
/// the error names the first element that is not. A float never becomes an
/// integer. The error names the tensor with both shapes and types.
Status loadTensor(const NpyArray &array, const TensorView &tensor);

/// The contents of an .npy file with the tensor's values: f32, i32 and i64 as
/// they are, bf16 and f16 as f32, u8 as i32.
std::string formatTensor(const TensorView &tensor);

} // namespace nsa

#endif // NSA_RUNTIME_CORE_TENSORFILES_H
