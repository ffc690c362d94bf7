//===- MixtureTest.cpp - several data sets as one -------------------------===//

#include "lib/Support/Hash.h"
#include "runtime/Data/Verifier.h"
#include "test/unit/Data/CountingData.h"
#include "test/unit/Expect.h"

#include <cmath>
#include <map>

using namespace nsa;

namespace {

class Mixture : public ::testing::Test {
protected:
  /// A data set of the tokens first, first + 1, ...
  std::string add(const std::string &name, uint16_t first, uint16_t count,
                  int64_t endOfText = -1, const std::string &kind = "tokens") {
    std::string folder = dir / name;
    writeCounting(folder, first, count, endOfText, kind);
    return folder;
  }

  std::string messageFor(const std::vector<std::string> &paths,
                         const std::vector<double> &weights) {
    Result<Dataset> data = Dataset::openMixture(paths, weights);
    if (!data)
      return data.message();
    Result<TrainSampler> sampler = TrainSampler::create(*data, 10, 1);
    return sampler ? "" : sampler.message();
  }

  TempDir dir;
};

TEST_F(Mixture, Blocks_HaveTheWeightsAndWindowsStayInTheirSource) {
  std::string a = add("a", 0, 100), b = add("b", 1000, 205);
  Result<Dataset> data = Dataset::openMixture({a, b}, {3, 1});
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->train.size(), 305u);
  EXPECT_TRUE(verifyShards(*data));
  TrainSampler sampler = take(TrainSampler::create(*data, 10, 7));
  for (uint64_t block : {0, 1, 5}) {
    std::map<uint64_t, uint64_t> visits;
    uint64_t ofFirst = 0;
    for (uint64_t i = 0; i < 10000; ++i) {
      std::vector<int32_t> tokens(10), targets(10);
      ASSERT_TRUE(
          sampler.read(block * 10000 + i, tokens.data(), targets.data()));
      bool isFirst = tokens[0] < 1000;
      ofFirst += isFirst;
      ++visits[sampler.position(block * 10000 + i)];
      int32_t begin = isFirst ? 0 : 1000, count = isFirst ? 100 : 205;
      for (int k = 0; k < 10; ++k)
        ASSERT_EQ(targets[k] - begin, (tokens[0] - begin + k + 1) % count);
    }
    EXPECT_EQ(ofFirst, 7500u);
    // 7,500 windows are 750 epochs of the 10 windows of a.
    uint64_t most = 0;
    for (const auto &[position, count] : visits)
      most = std::max(most, count);
    EXPECT_LT(most, 200u);
  }
  EXPECT_DOUBLE_EQ(sampler.epochs(10000, 0), 750);
  EXPECT_DOUBLE_EQ(sampler.epochs(10000, 1), 125);
}

TEST_F(Mixture, Order_IsAFunctionOfSeedAndSample) {
  std::string a = add("a", 0, 100), b = add("b", 1000, 205);
  Dataset data = take(Dataset::openMixture({a, b}, {}));
  Result<TrainSampler> one = TrainSampler::create(data, 10, 7),
                       same = TrainSampler::create(data, 10, 7),
                       other = TrainSampler::create(data, 10, 8);
  size_t different = 0, ofFirst = 0;
  for (uint64_t i = 10000; i-- > 0;) {
    EXPECT_EQ(one->position(i), same->position(i));
    different += one->position(i) != other->position(i);
    ofFirst += one->position(i) < 100;
  }
  EXPECT_GT(different, 9000u);
  // By tokens.
  EXPECT_EQ(ofFirst, 3279u);
  EXPECT_NE(data.digest(), Dataset::openMixture({a, b}, {1, 2})->digest());
  EXPECT_EQ(Dataset::openMixture({a}, {})->digest(),
            Dataset::open(a)->digest());
}

TEST_F(Mixture, Tokenizers_OfEqualIdsAreOne) {
  auto addWith = [&](const std::string &name, const std::string &tokenizer) {
    std::string folder = add(name, 0, 100);
    Manifest manifest = take(Manifest::load(folder));
    dir.write(name + "/tokenizer.json", tokenizer);
    manifest.tokenizer = {"tokenizer.json", hashBytes(tokenizer)};
    EXPECT_TRUE(manifest.save(folder));
    return folder;
  };
  std::string text = R"({"model": {"vocab": {"a": 0, "b": 1}},
                         "decoder": {"type": "ByteLevel"}})";
  std::string a = addWith("a", text), b = addWith("b", text + "\n");
  EXPECT_EQ(messageFor({a, b}, {}), "");
  text.replace(text.find("\"b\""), 3, "\"c\"");
  EXPECT_TRUE(contains(messageFor({a, addWith("c", text)}, {}),
                       "other tokens in one mixture"));
}

TEST_F(Mixture, WrongWeightsAndSources_AreErrors) {
  std::string a = add("a", 0, 100), b = add("b", 1000, 205);
  auto expect = [&](const std::string &found, const std::string &message) {
    EXPECT_TRUE(contains(found, message));
  };
  expect(messageFor({a, b}, {1}), "there are 1 weights for 2 sources");
  expect(messageFor({a}, {1}), "weights have no effect on one source");
  for (double weight : {0.0, -1.0, std::nan(""), HUGE_VAL})
    expect(messageFor({a, b}, {1, weight}), "not a positive number");
  expect(messageFor({a, b}, {1, 1e-9}),
         "gives it less than one of 10000 samples");
  expect(messageFor({a, add("short", 0, 10)}, {}),
         "short' holds 10 training tokens, a window of 10 needs 11");
  expect(messageFor({a, add("text", 0, 100, -1, "text")}, {}),
         "are of kind tokens, those in");
  expect(messageFor({add("c", 0, 100, 3), add("d", 0, 100, 4)}, {}),
         "documents end with token 3 in");
  expect(messageFor({a, dir / "nowhere"}, {}), "no token shards in");
  EXPECT_EQ(messageFor({a, b}, {0.25, 1}), "");
}

} // namespace
