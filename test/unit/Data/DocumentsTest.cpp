//===- DocumentsTest.cpp - documents that share a window ------------------===//

#include "test/unit/Data/CountingData.h"

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
    Result<Documents> documents = Documents::open(data.trainDocuments);
    ASSERT_TRUE(documents.ok()) << documents.message();
    Result<TrainSampler> sampler = TrainSampler::create(data, 12, 7);
    ASSERT_TRUE(sampler.ok()) << sampler.message();
    sampler->isolate(*documents);
    std::vector<int32_t> tokens(12), targets(12), starts(12), next(12);
    for (uint64_t i = 0; i < 200; ++i) {
      ASSERT_TRUE(
          sampler->read(i, tokens.data(), targets.data(), starts.data()));
      ASSERT_TRUE(sampler->read(i, tokens.data(), next.data()));
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
  Result<Dataset> data = Dataset::open(add("a", 0, 100, {0, 1, 5, 40, 41, 98}));
  ASSERT_TRUE(data.ok()) << data.message();
  check(*data, {0, 1, 5, 40, 41, 98});
}

TEST_F(DocumentsTest, EndOfText_DocumentsBeginBehindIt) {
  Result<Dataset> data = Dataset::open(add("a", 0, 100, {}, 33));
  ASSERT_TRUE(data.ok()) << data.message();
  check(*data, {0, 34});
}

TEST_F(DocumentsTest, Mixture_EachSourceHasItsOwn) {
  Result<Dataset> data = Dataset::openMixture(
      {add("a", 0, 100, {0, 30, 31}, 33), add("b", 1000, 205, {}, 33)}, {1, 1});
  ASSERT_TRUE(data.ok()) << data.message();
  check(*data, {0, 30, 31, 1000});
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
  ASSERT_FALSE(documents.ok());
  EXPECT_EQ(documents.message(),
            "'" + (dir / "a") +
                "' says neither where documents begin nor which token ends "
                "one, which data.isolate_documents needs");
}

} // namespace
