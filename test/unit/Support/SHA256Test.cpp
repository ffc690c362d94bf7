//===- SHA256Test.cpp - SHA-256 and HMAC against published values ---------===//

#include "lib/Support/SHA256.h"

#include <cstdint>
#include <gtest/gtest.h>

using namespace nsa;

static std::string hex(const std::string &bytes) {
  std::string text;
  for (char byte : bytes) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", unsigned(uint8_t(byte)));
    text += pair;
  }
  return text;
}

// FIPS 180-4's examples, and lengths around the end of a block.
TEST(SHA256, PublishedTexts_HaveTheirDigests) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb924"
                             "27ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223"
                                "b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(
      hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex(sha256(std::string(64, 'a'))),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

// RFC 4231, cases 1, 2 and 6: a short key, one of letters, one of more than a
// block.
TEST(SHA256, PublishedKeys_HaveTheirHMAC) {
  EXPECT_EQ(hex(hmacSHA256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmacSHA256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hex(hmacSHA256(std::string(131, '\xaa'),
                     "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}
