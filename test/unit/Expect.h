//===- Expect.h - what a text or an error has to say ------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EXPECT_H
#define NSA_TEST_UNIT_EXPECT_H

#include "nsa/Support/Result.h"

#include <gtest/gtest.h>
#include <stdexcept>
#include <string>

namespace nsa {

inline testing::AssertionResult contains(const std::string &text,
                                         const std::string &part) {
  if (text.find(part) != std::string::npos)
    return testing::AssertionSuccess() << "'" << part << "' is in: " << text;
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

template <typename T>
testing::AssertionResult succeeds(const T &result) {
  return result ? testing::AssertionSuccess()
                : testing::AssertionFailure() << result.message();
}

#ifdef __cpp_exceptions
/// The value of a result; an error ends the test. Not for other threads.
template <typename T>
T take(Result<T> result) {
  if (!result)
    throw std::runtime_error(result.message());
  return std::move(*result);
}
#endif

/// The message of an error; nothing of a success.
template <typename T>
std::string messageOf(const T &result) {
  return result ? "" : result.message();
}

/// A Status or a Result is an error, whose message has this part.
template <typename T>
testing::AssertionResult failsWith(const T &result, const std::string &part) {
  if (result)
    return testing::AssertionFailure() << "no error";
  return contains(result.message(), part);
}

} // namespace nsa

#endif // NSA_TEST_UNIT_EXPECT_H
