//===- Safetensors.h - named tensors in a file ------------------*- C++ -*-===//
//
// The safetensors format: u64 length of a JSON header, the header, then the
// tensors' bytes without gaps. A reader accepts exactly what the format allows:
// every offset, size and name is checked before a byte is handed out, whatever
// the file holds.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_SAFETENSORS_H
#define NSA_SUPPORT_SAFETENSORS_H

#include "lib/Support/Files.h"
#include "nsa/Support/Result.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nsa {

/// A dense row-major tensor.
struct SafeTensor {
  std::string name;
  /// F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL.
  std::string dtype;
  std::vector<uint64_t> shape;
  /// Borrowed; null for a tensor of a file that was opened.
  const void *data = nullptr;
  uint64_t bytes = 0;
  /// Where a file that was read has it.
  uint64_t offset = 0;
};

/// Bytes of one element of a dtype, or 0 if it is unknown.
uint64_t safetensorsElementBytes(std::string_view dtype);

/// The first element of a tensor of floats that is no finite number, as
/// "[7] is nan" (nan, inf or -inf; counted in row-major order); empty if there
/// is none, and for integers. `data` may have any alignment.
std::string findNonFinite(const SafeTensor &tensor);

/// Writes `path` and syncs it. `metadata` is kept under `__metadata__`. The
/// tensors' bytes start at a multiple of 64.
Status writeSafetensors(const std::string &path,
                        const std::vector<SafeTensor> &tensors,
                        const std::map<std::string, std::string> &metadata);

/// A file of tensors, of which only the header is in memory.
class SafetensorsFile {
public:
  /// Errors name the file and what is wrong in it. More than 2^18 tensors are
  /// an error.
  static Result<SafetensorsFile> open(const std::string &path);

  /// The same for bytes that outlive the object, into which the tensors point;
  /// `name` stands for the file.
  static Result<SafetensorsFile> parse(const uint8_t *data, size_t size,
                                       const std::string &name);

  /// In the order of their offsets.
  const std::vector<SafeTensor> &tensors() const { return list; }
  const std::map<std::string, std::string> &metadata() const { return extra; }

  /// The tensor of this name, or null.
  const SafeTensor *find(const std::string &name) const;

  /// Copies the bytes of one of `tensors` to `out`, or those from `first` on.
  Status read(const SafeTensor &tensor, void *out) const {
    return read(tensor, 0, tensor.bytes, out);
  }
  Status read(const SafeTensor &tensor, uint64_t first, uint64_t bytes,
              void *out) const;

  /// The first element of a file that was opened that is no finite number, with
  /// its tensor, as "'w'[7] is nan"; empty if there is none. Reads every
  /// tensor.
  Result<std::string> findNonFinite() const;

private:
  Status readHeader(const char *text, uint64_t headerBytes, uint64_t dataBytes);

  /// Of `open`.
  std::optional<InputFile> file;
  std::vector<SafeTensor> list;
  /// Indices in `list` by name.
  std::unordered_map<std::string, size_t> places;
  std::map<std::string, std::string> extra;
};

} // namespace nsa

#endif // NSA_SUPPORT_SAFETENSORS_H
