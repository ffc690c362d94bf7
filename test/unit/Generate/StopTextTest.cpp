//===- StopTextTest.cpp - where a generated text ends ---------------------===//

#include "nsa/Runtime/StopText.h"

#include <gtest/gtest.h>

using namespace nsa;

namespace {

TEST(StopText, NoStops_PassesEverythingOn) {
  StopText stop({});
  EXPECT_EQ(stop.push("abc"), "abc");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopText, StopInPieces_EndsBeforeIt) {
  StopText stop({"END"});
  EXPECT_EQ(stop.push("xE"), "x");
  EXPECT_EQ(stop.push("N"), "");
  EXPECT_EQ(stop.push("Dy"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopText, BeginningOfAStop_IsPassedOnWhenItIsNone) {
  StopText stop({"END"});
  EXPECT_EQ(stop.push("EN"), "");
  EXPECT_EQ(stop.push("EN"), "EN");
  EXPECT_EQ(stop.push("x"), "ENx");
  EXPECT_EQ(stop.push("E"), "");
  EXPECT_FALSE(stop.stopped());
  EXPECT_EQ(stop.finish(), "E");
}

TEST(StopText, SeveralStops_TheFirstOneCounts) {
  StopText stop({"cd", "b"});
  EXPECT_EQ(stop.push("abcd"), "a");
  EXPECT_TRUE(stop.stopped());
}

} // namespace
