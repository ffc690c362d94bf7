//===- TextTest.cpp - small conversions to text ---------------------------===//

#include "lib/Support/Text.h"

#include <gtest/gtest.h>

using namespace nsa;

TEST(Text, OneLineShowsWhatATerminalCan) {
  EXPECT_EQ(oneLine("plain text"), "plain text");
  EXPECT_EQ(oneLine("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
  EXPECT_EQ(oneLine("a\nb\tc\x1B[1md\x7F"), "a?b?c?[1md?");
  EXPECT_EQ(oneLine(std::string("a\0b", 3)), "a?b");
  EXPECT_EQ(oneLine("\xFF\xC3"), "??");
}

TEST(Text, PrintableKeepsLines) { EXPECT_EQ(printable("a\n\tb\r"), "a\n\tb?"); }
