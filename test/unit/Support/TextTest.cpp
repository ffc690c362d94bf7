//===- TextTest.cpp - small conversions to text ---------------------------===//

#include "lib/Support/Text.h"
#include "test/unit/Expect.h"

#include <gtest/gtest.h>

using namespace nsa;

TEST(Text, OneLine_ShowsWhatATerminalCan) {
  EXPECT_EQ(oneLine("plain text"), "plain text");
  EXPECT_EQ(oneLine("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
  EXPECT_EQ(oneLine("a\nb\tc\x1B[1md\x7F"), "a?b?c?[1md?");
  EXPECT_EQ(oneLine(std::string("a\0b", 3)), "a?b");
  EXPECT_EQ(oneLine("\xFF\xC3"), "??");
}

TEST(Text, Printable_KeepsLines) {
  EXPECT_EQ(printable("a\n\tb\r"), "a\n\tb?");
}

TEST(Text, Quote_LongText_KeepsBothEnds) {
  EXPECT_EQ(quote("short"), "'short'");
  EXPECT_EQ(quote("a\n\x1B[1m"), "'a??[1m'");
  std::string exact(kMostQuoted, 'a');
  EXPECT_EQ(quote(exact), "'" + exact + "'");
  std::string text = quote("begin" + std::string(100000, 'x') + "end");
  EXPECT_LE(text.size(), kMostQuoted + 2);
  EXPECT_EQ(text.substr(0, 6), "'begin");
  EXPECT_EQ(text.substr(text.size() - 4), "end'");
  EXPECT_TRUE(contains(text, "xx...xx"));
}

TEST(Text, Shortened_UTF8Sequences_StayWhole) {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += "\xE2\x82\xAC";
  for (size_t most = 3; most < 20; ++most) {
    std::string cut = shortened(text, most);
    EXPECT_LE(cut.size(), most);
    EXPECT_EQ(oneLine(cut), cut) << most;
  }
}
