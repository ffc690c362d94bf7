//===- VerifierTest.cpp - shards against their manifest -------------------===//

#include "runtime/Data/Verifier.h"
#include "lib/Support/Hash.h"
#include "runtime/Data/Synth.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

using namespace nsa;

namespace {

class Verifier : public ::testing::Test {
protected:
  void SetUp() override {
    SynthOptions options;
    options.output = dir.str();
    options.vocab = 16;
    options.tokens = 4000;
    options.shardTokens = 500;
    options.overwrite = true;
    Manifest made = take(synthesize(options));
    manifest = made;
  }

  std::string verify(int threads = 3) {
    Result<Dataset> data = Dataset::open(dir.str(), manifest);
    if (!data)
      return data.message();
    DataVerifier verifier(*data);
    EXPECT_FALSE(verifier.isFinished());
    verifier.start(threads);
    Status status = verifier.wait();
    EXPECT_TRUE(verifier.isFinished());
    if (status)
      EXPECT_EQ(verifier.bytesDone(), verifier.bytes());
    return status ? "" : status.message();
  }

  /// Sets a token of a shard, and returns the new hash of the file.
  uint64_t setToken(const std::string &file, size_t at, uint16_t token) {
    std::string bytes = dir.read(file);
    bytes[1024 + 2 * at] = char(token & 255);
    bytes[1024 + 2 * at + 1] = char(token >> 8);
    dir.write(file, bytes);
    return hashBytes(bytes);
  }

  TempDir dir;
  Manifest manifest;
};

TEST_F(Verifier, GoodShards_AreVerified) { EXPECT_EQ(verify(), ""); }

TEST_F(Verifier, SeveralShardsDiffer_TheFirstIsNamedWithBothHashes) {
  setToken("train_000005.bin", 3, 99);
  setToken("val_000000.bin", 3, 99);
  uint64_t hash = setToken("train_000002.bin", 499, 15);
  if (hash == manifest.train.shards[2].hash)
    hash = setToken("train_000002.bin", 499, 14);
  for (int threads : {1, 2, 8})
    EXPECT_EQ(verify(threads), "'" + dir / "train_000002.bin" + "' has hash " +
                                   toHex(hash) + ", its manifest says " +
                                   toHex(manifest.train.shards[2].hash));
}

// The manifest of another tool may promise a vocabulary that its shards do not
// keep to.
TEST_F(Verifier, TokenOutsideTheVocabulary_IsNamedWithItsPosition) {
  manifest.val.shards[0].hash = setToken("val_000000.bin", 123, 16);
  EXPECT_EQ(verify(), "'" + dir / "val_000000.bin" +
                          "' is corrupted: token 16 at position 123 is not "
                          "below the vocabulary size 16");
}

TEST_F(Verifier, ShardShrinks_IsAnError) {
  Dataset data = take(Dataset::open(dir.str(), manifest));
  std::filesystem::resize_file(dir / "train_000001.bin", 1500);
  DataVerifier verifier(data);
  verifier.start(2);
  EXPECT_TRUE(failsWith(verifier.wait(), "train_000001.bin' has shrunk"));
}

} // namespace
