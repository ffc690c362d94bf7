//===- Hash.cpp - XXH3 of bytes and files ---------------------------------===//

#include "lib/Support/Hash.h"
#include "lib/Support/Files.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <vector>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace nsa {

/// The size of one read fits a cache of the processor.
static constexpr uint64_t hashChunkBytes = 1 << 20;

uint64_t hashBytes(const void *data, size_t size) {
  return XXH3_64bits(data, size);
}

struct StreamHash::State {
  XXH3_state_t xxh;
};

StreamHash::StreamHash() : state(new State) {
  XXH3_INITSTATE(&state->xxh);
  XXH3_64bits_reset(&state->xxh);
}

StreamHash::~StreamHash() = default;
StreamHash::StreamHash(StreamHash &&) noexcept = default;
StreamHash &StreamHash::operator=(StreamHash &&) noexcept = default;

void StreamHash::update(const void *data, size_t size) {
  XXH3_64bits_update(&state->xxh, data, size);
}

uint64_t StreamHash::digest() const { return XXH3_64bits_digest(&state->xxh); }

Result<uint64_t> hashFile(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  std::vector<char> buffer(
      size_t(std::min<uint64_t>(file.size(), hashChunkBytes)));
  StreamHash hash;
  for (uint64_t at = 0; at < file.size(); at += buffer.size()) {
    size_t size = size_t(std::min<uint64_t>(buffer.size(), file.size() - at));
    NSA_RETURN_IF_ERROR(file.readAt(at, buffer.data(), size));
    hash.update(buffer.data(), size);
  }
  return hash.digest();
}

std::string toHex(uint64_t value) {
  static const char digits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4)
    text[i] = digits[value & 15];
  return text;
}

Result<uint64_t> fromHex(std::string_view text) {
  uint64_t value = 0;
  bool valid = text.size() == 16;
  for (char c : text) {
    if (c >= '0' && c <= '9')
      value = value << 4 | uint64_t(c - '0');
    else if (c >= 'a' && c <= 'f')
      value = value << 4 | uint64_t(c - 'a' + 10);
    else
      valid = false;
  }
  if (!valid)
    return Error{quote(std::string(text)) +
                 " is not a hash of 16 hexadecimal digits"};
  return value;
}

} // namespace nsa
