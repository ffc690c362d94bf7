//===- Expect.h - what a text or an error has to say ------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EXPECT_H
#define NSA_TEST_UNIT_EXPECT_H

#include <gtest/gtest.h>
#include <string>

namespace nsa {

inline testing::AssertionResult contains(const std::string &text,
                                         const std::string &part) {
  if (text.find(part) != std::string::npos)
    return testing::AssertionSuccess() << "'" << part << "' is in: " << text;
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
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
