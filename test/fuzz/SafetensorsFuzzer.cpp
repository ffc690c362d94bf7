//===- SafetensorsFuzzer.cpp - any bytes as a safetensors file ------------===//

#include "lib/Support/Safetensors.h"
#include "test/fuzz/Fuzz.h"

#include <cstring>
#include <memory>

using namespace nsa;
using namespace nsa::fuzz;

static void check(const uint8_t *data, size_t size) {
  Result<SafetensorsFile> file = SafetensorsFile::parse(data, size, "fuzz");
  if (!file)
    return requireMessage(file.message());
  for (const SafeTensor &tensor : file->tensors()) {
    uint64_t bytes = safetensorsElementBytes(tensor.dtype);
    require(bytes > 0, "a dtype is known", tensor.dtype);
    for (uint64_t extent : tensor.shape)
      bytes *= extent;
    require(bytes == tensor.bytes, "the bytes are the shape's", tensor.name);
    touch(tensor.data, tensor.bytes);
    require(file->find(tensor.name) == &tensor, "a name is found", tensor.name);
  }
}

/// The bytes as they are, and once more with the header's length put right: up
/// to the last brace.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::unique_ptr<uint8_t[]> bytes(new uint8_t[size]);
  std::copy(data, data + size, bytes.get());
  check(bytes.get(), size);
  uint64_t length = 0;
  for (size_t i = size; i > sizeof length && length == 0; --i)
    if (data[i - 1] == '}')
      length = i - sizeof length;
  if (length == 0)
    return 0;
  std::memcpy(bytes.get(), &length, sizeof length);
  check(bytes.get(), size);
  return 0;
}
