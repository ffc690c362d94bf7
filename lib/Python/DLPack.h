//===- DLPack.h - the ABI of DLPack ------------------------------*- C++
//-*-===//
//
// What a capsule of the Python method __dlpack__ holds, by DLPack 1.0: the
// structure called "dltensor" and the one with a version, "dltensor_versioned".
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_PYTHON_DLPACK_H
#define NSA_LIB_PYTHON_DLPACK_H

#include <cstdint>

namespace nsa::dlpack {

inline constexpr int32_t kCPU = 1, kCUDA = 2, kCUDAHost = 3, kCUDAManaged = 13;
inline constexpr uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4,
                         kComplex = 5, kBool = 6;
inline constexpr uint64_t kReadOnly = 1;

struct DataTypeCode {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void *data;
  int32_t deviceType, deviceNumber;
  int32_t rank;
  DataTypeCode type;
  int64_t *shape;
  /// In elements; null for dense row-major memory.
  int64_t *strides;
  uint64_t byteOffset;
};

struct Managed {
  Tensor tensor;
  void *context;
  void (*deleter)(Managed *);
};

struct ManagedVersioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(ManagedVersioned *);
  uint64_t flags;
  Tensor tensor;
};

} // namespace nsa::dlpack

#endif // NSA_LIB_PYTHON_DLPACK_H
