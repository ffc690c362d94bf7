//===- NpyFuzzer.cpp - any bytes as an .npy file --------------------------===//

#include "lib/Support/Npy.h"
#include "test/fuzz/Fuzz.h"

using namespace nsa;
using namespace nsa::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // A copy of the exact size, so that a read past its end is seen.
  std::string contents(reinterpret_cast<const char *>(data), size);
  Result<NpyArray> array = parseNpy(contents);
  if (!array) {
    requireMessage(array.message());
    return 0;
  }
  uint64_t elements = 1;
  for (uint64_t extent : array->shape)
    elements *= extent;
  require(elements == array->elements(), "the elements are the shape's");
  std::string written =
      formatNpy(array->type, array->shape, array->data.data());
  Result<NpyArray> again = parseNpy(written);
  require(again.ok(), "a written array reads");
  require(again->type == array->type && again->shape == array->shape &&
              again->data == array->data,
          "writing keeps the array");
  return 0;
}
