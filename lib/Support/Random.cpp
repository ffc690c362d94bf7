//===- Random.cpp - cryptographically secure random bytes -----------------===//

#include "lib/Support/Random.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/random.h>

namespace nsa {

Result<std::string> randomBytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    ssize_t got = ::getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return Error{std::string("the system gives no random bytes: ") +
                   std::strerror(errno)};
    done += size_t(got);
  }
  return bytes;
}

Result<std::string> randomHex(size_t count) {
  NSA_ASSIGN_OR_RETURN(std::string bytes, randomBytes(count));
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (char byte : bytes) {
    text += digits[uint8_t(byte) >> 4];
    text += digits[uint8_t(byte) & 15];
  }
  return text;
}

} // namespace nsa
