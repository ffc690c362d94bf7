//===- DocumentsTest.cpp - documents that share a window ------------------===//

#include "test/unit/Data/CountingData.h"
#include "test/unit/Expect.h"

#include <set>

using namespace nsa;

namespace {

class DocumentsTest : public ::testing::Test {
protected:
  /// A data set of the tokens first, first + 1, ..., whose documents begin at
  /// `starts`, by an index, or end with token `endOfText`.
  std::string add(const std::string &name, uint16_t first, uint16_t count,
                  const std::vector<uint64_t> &starts, int64_t endOfText = -1) {
    std::string folder = dir / name;
    writeCounting(folder, first, count, endOfText, "tokens", starts);
    return folder;
  }

  /// Checks every window of an epoch against tokens that begin a document.
  void check(const Dataset &data, const std::set<int32_t> &begins) {
    Documents documents = take(Documents::open(data.trainDocuments));
    TrainSampler sampler = take(TrainSampler::create(data, 12, 7));
    sampler.isolate(documents);
    std::vector<int32_t> tokens(12), targets(12), starts(12), next(12);
    for (uint64_t i = 0; i < 200; ++i) {
      ASSERT_TRUE(
          sampler.read(i, tokens.data(), targets.data(), starts.data()));
      ASSERT_TRUE(sampler.read(i, tokens.data(), next.data()));
      int32_t start = 0;
      for (int32_t t = 0; t < 12; ++t) {
        if (begins.count(tokens[size_t(t)]))
          start = t;
        EXPECT_EQ(starts[size_t(t)], start) << i << " " << t;
        EXPECT_EQ(targets[size_t(t)],
                  begins.count(next[size_t(t)]) ? -1 : next[size_t(t)]);
      }
    }
  }

  TempDir dir;
};

TEST_F(DocumentsTest, Index_SaysWhereDocumentsBegin) {
  Dataset data = take(Dataset::open(add("a", 0, 100, {0, 1, 5, 40, 41, 98})));
  check(data, {0, 1, 5, 40, 41, 98});
}

TEST_F(DocumentsTest, EndOfText_DocumentsBeginAfterIt) {
  Dataset data = take(Dataset::open(add("a", 0, 100, {}, 33)));
  check(data, {0, 34});
}

TEST_F(DocumentsTest, Mixture_EachSourceHasItsOwn) {
  Dataset data = take(Dataset::openMixture(
      {add("a", 0, 100, {0, 30, 31}, 33), add("b", 1000, 205, {}, 33)},
      {1, 1}));
  check(data, {0, 30, 31, 1000});
}

TEST_F(DocumentsTest, Windows_BeginAtDocumentsThatTheOneBeforeCutsOff) {
  const std::vector<uint64_t> expected = {0, 5, 17, 29, 41, 53, 65, 77, 89};
  // By an index, and by the token before the second one.
  for (const std::string &folder :
       {add("a", 0, 100, {0, 1, 5, 40, 41, 98}), add("b", 0, 100, {}, 4)}) {
    Dataset data = take(Dataset::open(folder));
    Documents documents = take(Documents::open(data.trainDocuments));
    std::vector<uint64_t> found =
        take(documents.findWindows(data.train, 0, 100, 12));
    EXPECT_EQ(found, expected);
  }
}

TEST_F(DocumentsTest, Mixture_EpochsVisitEveryWindowOfASource) {
  Dataset data = take(Dataset::openMixture(
      {add("a", 0, 100, {0, 30, 31}), add("b", 1000, 205, {0, 7})}, {1, 1}));
  Result<Documents> documents = Documents::open(data.trainDocuments);
  Result<TrainSampler> sampler = TrainSampler::create(data, 12, 7);
  ASSERT_TRUE(documents.ok() && sampler.ok());
  ASSERT_TRUE(sampler->beginAt(*documents));
  std::multiset<uint64_t> seen;
  for (uint64_t i = 0; i < 10000; ++i)
    seen.insert(sampler->position(i));
  // 5,000 samples of each.
  for (auto [begin, end] :
       {std::pair<uint64_t, uint64_t>(0, 100), {100, 305}}) {
    std::vector<uint64_t> windows =
        take(documents->findWindows(data.train, begin, end, 12));
    for (uint64_t at : windows)
      EXPECT_NEAR(double(seen.count(at)), 5000.0 / double(windows.size()), 1)
          << at;
    EXPECT_EQ(std::distance(seen.lower_bound(begin), seen.lower_bound(end)),
              5000);
  }
}

TEST_F(DocumentsTest, Validation_WindowsAreIsolatedToo) {
  Result<Dataset> data = Dataset::open(add("a", 0, 100, {0, 9, 14}));
  ASSERT_TRUE(data.ok());
  Result<Documents> documents = Documents::open(data->valDocuments);
  Result<ValidationWindows> windows = ValidationWindows::create(data->val, 10);
  ASSERT_TRUE(documents.ok() && windows.ok());
  windows->isolate(*documents);
  std::vector<int32_t> tokens(10), targets(10), starts(10);
  ASSERT_TRUE(windows->read(0, tokens.data(), targets.data(), starts.data()));
  EXPECT_EQ(starts, (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 9}));
  EXPECT_EQ(targets, (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, -1, 10}));
  ASSERT_TRUE(windows->read(1, tokens.data(), targets.data(), starts.data()));
  EXPECT_EQ(starts, (std::vector<int32_t>{0, 0, 0, 0, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(targets[3], -1);
}

TEST_F(DocumentsTest, NeitherIndexNorToken_IsAnErrorThatNamesTheSource) {
  Result<Dataset> data = Dataset::open(add("a", 0, 100, {}));
  ASSERT_TRUE(data.ok());
  Result<Documents> documents = Documents::open(data->trainDocuments);
  EXPECT_EQ(messageOf(documents),
            "'" + (dir / "a") +
                "' says neither where documents begin nor which token ends "
                "one, which data.isolate_documents and data.window: "
                "document need");
}

} // namespace
