//===- Fuzz.h - what the fuzz targets share ---------------------*- C++ -*-===//
//
// A fuzz target is the function LLVMFuzzerTestOneInput of libFuzzer. It hands
// any bytes to a reader and checks what must hold whatever they are; a
// violation ends the process, as a memory error does under the sanitizers.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_FUZZ_FUZZ_H
#define NSA_TEST_FUZZ_FUZZ_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace nsa::fuzz {

/// Ends the process with a message unless `condition` holds.
inline void require(bool condition, const char *what,
                    std::string_view detail = {}) {
  if (condition)
    return;
  std::fprintf(stderr, "violated: %s\n%.*s\n", what,
               static_cast<int>(detail.size()), detail.data());
  std::abort();
}

/// An error is text that a terminal can show.
inline void requireMessage(const std::string &message) {
  require(!message.empty(), "an error has a message");
  for (unsigned char c : message)
    require(c >= ' ' && c != 0x7F, "an error's message is one line of text",
            message);
}

/// Reads every byte, so that the sanitizer sees those that are not there.
inline void touch(const void *data, size_t size) {
  const auto *bytes = static_cast<const volatile uint8_t *>(data);
  for (size_t i = 0; i < size; ++i)
    (void)bytes[i];
}

} // namespace nsa::fuzz

#endif // NSA_TEST_FUZZ_FUZZ_H
