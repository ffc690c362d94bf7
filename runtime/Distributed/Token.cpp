//===- Token.cpp - the secret of the ranks of a run -----------------------===//

#include "runtime/Distributed/Token.h"
#include "lib/Support/SHA256.h"

namespace nsa {

static constexpr size_t leastBytes = 16;

Status checkToken(std::string_view token) {
  if (token.size() >= leastBytes)
    return {};
  return Error{std::string(tokenVariable) + " has " +
               std::to_string(token.size()) +
               " characters, expected at least " + std::to_string(leastBytes) +
               " that nobody can guess"};
}

std::string proveToken(std::string_view token, Prover prover,
                       std::string_view storeNonce,
                       std::string_view rankNonce) {
  std::string text = prover == Prover::Rank ? "nsa rank: " : "nsa store: ";
  return hmacSHA256(token, text.append(storeNonce).append(rankNonce));
}

bool equalInConstantTime(std::string_view a, std::string_view b) {
  if (a.size() != b.size())
    return false;
  // Volatile, so that no compiler ends the loop at the first difference.
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

} // namespace nsa
