//===- LineBreaksTest.cpp - IR that fits a page ---------------------------===//

#include "lib/Support/LineBreaks.h"

#include <gtest/gtest.h>

using namespace nsa;

TEST(LineBreaks, ShortLines_StayAsTheyAre) {
  std::string text = "module {\n  %0 = nn.silu %x : tensor<4xf32>\n}\n";
  EXPECT_EQ(breakLines(text, 40), text);
}

TEST(LineBreaks, LongOperandList_BreaksBetweenOperands) {
  EXPECT_EQ(breakLines("  rt.launch @kernel(%aaaa, %bbbb, %cccc) : f32\n", 34),
            "  rt.launch @kernel(%aaaa, %bbbb,\n"
            "      %cccc) : f32\n");
}

TEST(LineBreaks, ShallowBlank_IsPreferredToDeeperOne) {
  EXPECT_EQ(breakLines("  x %a {k = 1, l = 2} : (a, b) -> (c, d)\n", 32),
            "  x %a {k = 1, l = 2} : (a, b)\n"
            "      -> (c, d)\n");
}

TEST(LineBreaks, LongNameWithArguments_BreaksAfterTheParenthesis) {
  EXPECT_EQ(breakLines("  f @a_long_name(%a: i32) {\n", 20),
            "  f @a_long_name(\n"
            "      %a: i32) {\n");
}

TEST(LineBreaks, StringAndComment_AreNotBroken) {
  std::string text = "  a \"one, two, three, four, five\"\n"
                     "  b // one, two, three, four, five\n";
  EXPECT_EQ(breakLines(text, 16), "  a\n      \"one, two, three, four, five\"\n"
                                  "  b // one, two, three, four, five\n");
}

TEST(LineBreaks, OpeningBraceAtTheEnd_StaysOnItsLine) {
  EXPECT_EQ(breakLines("  f(%aaaaaaaa, %bbbbbbbb) {\n", 20),
            "  f(%aaaaaaaa,\n"
            "      %bbbbbbbb) {\n");
}
