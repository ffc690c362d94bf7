//===- Hash.h - XXH3 of bytes and files -------------------------*- C++ -*-===//
//
// The 64-bit XXH3 hash (seed 0) that names contents everywhere: shards,
// documents, configurations, artefacts.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_HASH_H
#define NSA_SUPPORT_HASH_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace nsa {

/// XXH3-64 of `size` bytes at `data`.
uint64_t hashBytes(const void *data, size_t size);

inline uint64_t hashBytes(std::string_view text) {
  return hashBytes(text.data(), text.size());
}

/// XXH3-64 of a file's contents, or an error naming the file.
Result<uint64_t> hashFile(const std::string &path);

/// XXH3-64 of bytes that arrive in pieces.
class StreamHash {
public:
  StreamHash();
  ~StreamHash();
  StreamHash(StreamHash &&) noexcept;
  StreamHash &operator=(StreamHash &&) noexcept;

  void update(const void *data, size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }

  /// The hash of everything so far; more may follow.
  uint64_t digest() const;

private:
  struct State;
  std::unique_ptr<State> state;
};

/// 16 lower-case hexadecimal digits.
std::string toHex(uint64_t value);

/// The inverse of toHex; an error unless `text` is exactly 16 digits.
Result<uint64_t> fromHex(std::string_view text);

} // namespace nsa

#endif // NSA_SUPPORT_HASH_H
