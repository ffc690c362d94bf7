//===- RandomNumbers.cpp - arc4random for a static LLVM -------------------===//
//
// Debian's LLVM calls arc4random, which is in the C library from 2.36 on: a
// wheel that imports it is for no older system. What is linked with this has
// one of its own.
//
//===----------------------------------------------------------------------===//

#include <cstdint>
#include <sys/random.h>

/// Declared as <stdlib.h> of the newer C library does.
extern "C" [[gnu::visibility("hidden")]] uint32_t arc4random() noexcept {
  uint32_t number = 0;
  // So few bytes come whole or, without a kernel that has them, not at all.
  (void)!getrandom(&number, sizeof(number), 0);
  return number;
}
