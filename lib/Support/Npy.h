//===- Npy.h - NumPy array files --------------------------------*- C++ -*-===//
//
// The .npy format, versions 1.0 to 3.0, for C-ordered little-endian arrays of
// f2, f4, f8, i4, i8 and u2. Anything else is an error: nothing is guessed.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_NPY_H
#define NSA_SUPPORT_NPY_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nsa {

enum class NpyType { F2, F4, F8, I4, I8, U2 };

/// Bytes of one element.
constexpr size_t npyElementBytes(NpyType type) {
  return type == NpyType::F2 || type == NpyType::U2   ? 2
         : type == NpyType::F8 || type == NpyType::I8 ? 8
                                                      : 4;
}

/// "f16", "f32", "f64", "i32", "i64", "u16".
const char *npyTypeName(NpyType type);

/// An array in memory. A shape without dimensions is a scalar.
struct NpyArray {
  NpyType type = NpyType::F4;
  std::vector<uint64_t> shape;
  /// Dense row-major elements. The address suits every element type.
  std::string data;

  uint64_t elements() const { return data.size() / npyElementBytes(type); }
  template <typename T>
  const T *as() const {
    return reinterpret_cast<const T *>(data.data());
  }
};

/// Reads the contents of a file. Safe on any bytes. An element count times
/// size that differs from the bytes present is an error naming both.
Result<NpyArray> parseNpy(std::string_view contents);

/// Reads a file. Errors start with its path.
Result<NpyArray> readNpy(const std::string &path);

/// The contents of a file of version 1.0, header padded to 64 bytes as NumPy
/// does. `data` holds the product of `shape` elements.
std::string formatNpy(NpyType type, const std::vector<uint64_t> &shape,
                      const void *data);

/// Where ids are that belong to an array: FILE.ids.npy for FILE.npy.
std::string idsPathOf(const std::string &path);

/// "2x3x4", or "scalar".
std::string shapeText(const std::vector<uint64_t> &shape);

} // namespace nsa

#endif // NSA_SUPPORT_NPY_H
