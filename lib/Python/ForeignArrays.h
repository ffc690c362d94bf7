//===- ForeignArrays.h - arrays of other libraries --------------*- C++ -*-===//
//
// NumPy arrays, and what has DLPack or the CUDA array interface, as arrays of
// the runtime: no element is copied.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_PYTHON_FOREIGNARRAYS_H
#define NSA_LIB_PYTHON_FOREIGNARRAYS_H

#include "nsa/Runtime/Session.h"

#include <pybind11/pybind11.h>

namespace nsa {

/// An array, and what keeps its memory while it is used.
struct [[gnu::visibility("hidden")]] HeldArray {
  Array array;
  pybind11::object owner;
};

/// How an array is used.
struct ArrayUse {
  /// The names of entry and argument, which outlive it.
  const std::string *entry, *argument;
  /// The type that its tensor has.
  DataType expected = DataType::F32;
  /// Whether it is written.
  bool isWritten = false;
  /// On a GPU, the stream on which it is read or written; 0 is the default one.
  uint64_t stream = 0;
  /// The program's GPU: where an array lies that does not say.
  int gpu = 0;

  /// "entry 'main': argument 'q'", for errors.
  std::string about() const;
};

/// A stream that a producer's array must be waited for, with the array.
using ProducerStream = std::optional<uint64_t>;

/// Views `value`. A tensor of PyTorch is taken as it is: the caller orders the
/// streams, and a tensor that requires a gradient is an error, as it is with
/// DLPack. Types are those of tensors, and uint16 for the bits of bf16,
/// which NumPy has not; ml_dtypes.bfloat16 is bf16 as well. What is no array,
/// or has another type, raises InputError. `producer` gets the stream that the
/// CUDA array interface names. Needs the GIL.
HeldArray viewArray(pybind11::handle value, const ArrayUse &use,
                    ProducerStream &producer);

} // namespace nsa

#endif // NSA_LIB_PYTHON_FOREIGNARRAYS_H
