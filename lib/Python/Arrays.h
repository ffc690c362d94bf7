//===- Arrays.h - NumPy arrays and tensors ----------------------*- C++ -*-===//
//
// Conversion is in two steps, so that elements can be copied without the GIL
// and nothing of Python runs while a program is locked: arrays are checked and
// made with the GIL, elements are copied without it.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_PYTHON_ARRAYS_H
#define NSA_LIB_PYTHON_ARRAYS_H

#include "nsa/Runtime/Runtime.h"

#include <pybind11/numpy.h>

namespace nsa {

/// `value`, or a copy of it, with elements row by row. It must have the
/// tensor's shape and type: f32 takes float32; bf16 takes float32, to be
/// rounded to nearest even, or its bits as uint16; the others take what
/// emptyArray makes. Anything else is an error that names both: no value
/// changes its kind in silence. Needs the GIL.
Result<pybind11::array> arrayFor(const TensorView &tensor,
                                 const pybind11::array &value);

/// A new array for the elements of `tensor`: f32 and bf16 as float32, f16 as
/// float16, i32 and i64 as such, u8 as uint8. Needs the GIL.
pybind11::array emptyArray(const TensorView &tensor);

/// Elements of an array, by address: what is copied without the GIL. The array
/// must outlive it.
struct ArrayElements {
  void *data = nullptr;
  /// Whether they are float32; only bf16 tensors ask.
  bool isFloat = false;

  static ArrayElements of(const pybind11::array &array);
};

/// Copies elements from an array of arrayFor, and to one of emptyArray.
void copyToTensor(ArrayElements from, const TensorView &tensor);
void copyFromTensor(const TensorView &tensor, ArrayElements to);

} // namespace nsa

#endif // NSA_LIB_PYTHON_ARRAYS_H
