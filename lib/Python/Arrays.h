//===- Arrays.h - NumPy arrays and tensors ----------------------*- C++ -*-===//

#ifndef NSA_LIB_PYTHON_ARRAYS_H
#define NSA_LIB_PYTHON_ARRAYS_H

#include "nsa/Runtime/Runtime.h"

#include <pybind11/numpy.h>

namespace nsa {

/// A new array with the elements of `tensor`: f32 as float32, bf16 widened to
/// float32, f16 as float16, i32 and i64 as such, u8 as uint8.
pybind11::array toArray(const TensorView &tensor);

/// Copies `value`, which must have the tensor's shape, into `tensor`. f32 takes
/// float32; bf16 takes float32, rounded to nearest even, or its bits as uint16;
/// the others take what toArray returns. Anything else is an error: no value
/// changes its kind in silence.
Status fromArray(const TensorView &tensor, const pybind11::array &value);

} // namespace nsa

#endif // NSA_LIB_PYTHON_ARRAYS_H
