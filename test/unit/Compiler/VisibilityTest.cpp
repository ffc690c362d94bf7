//===- VisibilityTest.cpp - closed forms of visibilities ------------------===//
//
// What a visibility says in closed form against a look at every pair, and that
// against the formulas of arXiv 2502.11089, written here once more.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSAOps.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

#include <limits>

using namespace mlir;
using namespace nsa;

namespace {

struct VisibilityTest : testing::Test {
  VisibilityTest() { context.loadDialect<NSADialect>(); }

  VisibilityAttrInterface parse(llvm::StringRef text) {
    return cast<VisibilityAttrInterface>(parseAttribute(text, &context));
  }

  MLIRContext context;
};

constexpr llvm::StringLiteral kVisibilities[] = {
    "#nsa.compressed<block = 8, stride = 4>",
    "#nsa.compressed<block = 5, stride = 1>",
    "#nsa.compressed<block = 3, stride = 3>",
    "#nsa.compressed<block = 40, stride = 8>",
    "#nsa.selected<block = 4>",
    "#nsa.window<1>",
    "#nsa.window<7>",
    "#nsa.window<100>",
    "#nsa.causal",
    "#nsa.strided<block = 4, stride = 3>",
    "#nsa.strided<block = 1, stride = 2>",
    "#nsa.strided<block = 100, stride = 2>"};

bool isVisible(VisibilityAttrInterface visibility, int64_t t, int64_t i) {
  return visibility.isVisible(t, i).getNumber() != 0;
}

} // namespace

TEST_F(VisibilityTest, Ranges_EveryPair_HoldAllThatIsVisible) {
  for (llvm::StringRef text : kVisibilities)
    for (int64_t sequence : {1, 2, 7, 8, 9, 33}) {
      SCOPED_TRACE(text.str() + " of " + std::to_string(sequence));
      VisibilityAttrInterface visibility = parse(text);
      int64_t keys = visibility.getNumKeys(sequence), most = 0;
      for (int64_t t = 0; t < sequence; ++t) {
        int64_t first = visibility.getFirstKey(t).getNumber(), seen = 0;
        int64_t end = std::min(visibility.getEndKey(t).getNumber(), keys);
        for (int64_t i = 0; i < keys; ++i) {
          int64_t begin = visibility.getFirstQuery(i).getNumber();
          int64_t limit = visibility.getEndQuery(i, sequence).getNumber();
          // Bands have no holes.
          bool sees = isVisible(visibility, t, i);
          bool isBand = !text.starts_with("#nsa.strided");
          EXPECT_TRUE(!sees || (i >= first && i < end)) << t << " " << i;
          EXPECT_TRUE(!sees || (t >= begin && t < limit)) << t << " " << i;
          EXPECT_TRUE(sees || !isBand || i < first || i >= end);
          EXPECT_TRUE(sees || !isBand || t < begin || t >= limit);
          seen += sees;
        }
        most = std::max(most, seen);
      }
      EXPECT_EQ(visibility.getMaxKeys(sequence), most);
    }
}

TEST_F(VisibilityTest, IsShiftInvariant_LaterKeys_RangesMoveAsTheirTokens) {
  for (llvm::StringRef text : kVisibilities) {
    VisibilityAttrInterface visibility = parse(text);
    if (!visibility.isShiftInvariant())
      continue;
    auto firstQuery = [&](int64_t key) {
      return visibility.getFirstQuery(key).getNumber();
    };
    auto endQuery = [&](int64_t key) {
      return visibility.getEndQuery(key, /*sequence=*/10000).getNumber();
    };
    for (int64_t i = 1; i < 100; ++i) {
      int64_t tokens = i * visibility.getKeyStride(), end = endQuery(0);
      EXPECT_EQ(firstQuery(i), firstQuery(0) + tokens) << text.str();
      EXPECT_EQ(endQuery(i), end == 10000 ? end : end + tokens) << text.str();
    }
  }
}

TEST_F(VisibilityTest, CountPairs_EverySequence_IsTheNumberOfPairs) {
  for (llvm::StringRef text : kVisibilities)
    for (int64_t sequence = 1; sequence < 50; ++sequence) {
      VisibilityAttrInterface visibility = parse(text);
      int64_t keys = visibility.getNumKeys(sequence), pairs = 0;
      // Enough indices to name every block.
      for (int64_t t = 0; t < sequence; ++t)
        for (int64_t i = 0; i < keys; ++i)
          pairs += isVisible(visibility, t, i);
      EXPECT_EQ(visibility.countPairs(sequence, keys, /*indices=*/50), pairs)
          << text.str() << " of " << sequence;
    }
}

TEST_F(VisibilityTest, CountPairs_FewIndices_IsLimitedByTheirBlocks) {
  auto selected = parse("#nsa.selected<block = 4, count = 2>");
  // 1 2 3 4 5 6 7 8, then 8 each.
  EXPECT_EQ(selected.countPairs(20, 20, /*indices=*/2), 36 + 12 * 8);
  EXPECT_EQ(selected.getMaxKeys(20), 8);
}

TEST_F(VisibilityTest, LimitTo_ShortSequence_HidesTheSame) {
  for (llvm::StringRef text : kVisibilities) {
    constexpr int64_t sequence = 20;
    VisibilityAttrInterface visibility = parse(text);
    VisibilityAttrInterface limited = visibility.limitTo(sequence);
    for (int64_t t = 0; t < sequence; ++t)
      for (int64_t i = 0; i < sequence; ++i)
        EXPECT_EQ(isVisible(visibility, t, i), isVisible(limited, t, i))
            << text.str() << " " << t << " " << i;
  }
}

//===----------------------------------------------------------------------===//
// Bands
//===----------------------------------------------------------------------===//

namespace {

/// What the definition of Band says, pair by pair.
int64_t countOneByOne(const Band &band, int64_t sequence, int64_t keys) {
  int64_t pairs = 0;
  for (int64_t t = 0; t < sequence; ++t)
    for (int64_t i = 0; i < keys; ++i) {
      int64_t start = i * band.stride;
      bool isComplete = start + band.block - 1 <= t;
      bool isInside = !band.window || start > t - *band.window;
      pairs += isComplete && isInside;
    }
  return pairs;
}

void expectSame(const Band &band, int64_t sequence, int64_t keys) {
  EXPECT_EQ(band.countPairs(sequence, keys),
            countOneByOne(band, sequence, keys))
      << "sequence " << sequence << ", keys " << keys << ", stride "
      << band.stride << ", block " << band.block << ", window "
      << band.window.value_or(-1);
}

} // namespace

TEST(Band, CountPairs_Windows_EqualsBruteForce) {
  for (int64_t sequence : {1, 2, 7, 16, 33})
    for (int64_t window : {1, 2, 6, 7, 8, 32, 40})
      for (int64_t keys : {int64_t(0), sequence / 2, sequence, sequence + 3})
        expectSame({1, 1, window}, sequence, keys);
}

TEST(Band, CountPairs_CompressedBlocks_EqualsBruteForce) {
  for (int64_t sequence : {1, 3, 8, 15, 16, 17, 33})
    for (int64_t stride : {1, 2, 4})
      for (int64_t block : {stride, 2 * stride, 4 * stride, 64 * stride})
        for (int64_t keys : {int64_t(0), int64_t(2), sequence / stride})
          expectSame({stride, block, std::nullopt}, sequence, keys);
}

TEST(Band, CountPairs_CausalAndWindowedBlocks_EqualsBruteForce) {
  for (int64_t sequence : {1, 5, 16, 31})
    for (int64_t stride : {1, 3, 4})
      for (int64_t block : {1, 4, 8}) {
        expectSame({stride, block, std::nullopt}, sequence, sequence);
        for (int64_t window : {1, 3, 4, 9, 50})
          expectSame({stride, block, window}, sequence, sequence);
      }
}

TEST(Band, CountPairs_BillionsOfTokens_IsExactOrTheLargestNumber) {
  constexpr int64_t sequence = 2000000000;
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ((Band{1, 1, std::nullopt}).countPairs(sequence, sequence),
            sequence * (sequence + 1) / 2);
  EXPECT_EQ((Band{1, 1, 512}).countPairs(sequence, sequence),
            512 * (512 + 1) / 2 + (sequence - 512) * 512);
  EXPECT_EQ((Band{1, 1, std::nullopt}).countPairs(most, most), most);
  EXPECT_EQ((Band{16, 32, std::nullopt}).countPairs(most, most / 16), most);
}
