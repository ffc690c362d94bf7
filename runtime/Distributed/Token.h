//===- Token.h - the secret of the ranks of a run ---------------*- C++ -*-===//
//
// A process that knows the token of a run may join it. The token never crosses
// the network: each side sends a nonce, and proves by an HMAC of both nonces
// that it knows the token, which prevents replay and impersonation of rank 0.
// What follows on the connection is neither encrypted nor signed.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DISTRIBUTED_TOKEN_H
#define NSA_RUNTIME_DISTRIBUTED_TOKEN_H

#include "nsa/Support/Result.h"

#include <string>
#include <string_view>

namespace nsa {

/// The variable of the environment that holds the token.
constexpr const char *tokenVariable = "NSA_RENDEZVOUS_TOKEN";

/// Bytes of a nonce, and of a proof.
constexpr size_t nonceBytes = 32, proofBytes = 32;

/// Whether a token that a user chose is long enough. An error shows none of it.
Status checkToken(std::string_view token);

/// Which side proves something: a proof of one side is none of the other.
enum class Prover { Rank, Store };

/// The proof of `prover` that it knows the token, which may be empty.
std::string proveToken(std::string_view token, Prover prover,
                       std::string_view storeNonce, std::string_view rankNonce);

/// Compares in a time that depends on the sizes only.
bool equalInConstantTime(std::string_view a, std::string_view b);

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_TOKEN_H
