//===- SHA256.h - SHA-256 and HMAC ------------------------------*- C++ -*-===//
//
// FIPS 180-4 and RFC 2104. For proofs that a peer knows a secret; contents are
// named by the faster XXH3 of Hash.h.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_SHA256_H
#define NSA_SUPPORT_SHA256_H

#include <string>
#include <string_view>

namespace nsa {

/// The 32 bytes of a SHA-256 digest.
std::string sha256(std::string_view text);

/// The 32 bytes of HMAC-SHA-256 of `text` under a key of any length.
std::string hmacSHA256(std::string_view key, std::string_view text);

} // namespace nsa

#endif // NSA_SUPPORT_SHA256_H
