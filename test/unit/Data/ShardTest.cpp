//===- ShardTest.cpp - shards, manifests, token streams -------------------===//

#include "runtime/Data/DataFolder.h"
#include "runtime/Data/Pack.h"
#include "runtime/Data/Synth.h"
#include "runtime/Data/Verifier.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <numeric>

using namespace nsa;

namespace {

std::vector<uint16_t> ramp(size_t count) {
  std::vector<uint16_t> tokens(count);
  for (size_t i = 0; i < count; ++i)
    tokens[i] = uint16_t(i % 250);
  return tokens;
}

/// Writes `tokens` to both splits of `dir` with a manifest.
Manifest writeData(const TempDir &dir, const std::vector<uint16_t> &tokens,
                   uint64_t perShard) {
  Manifest manifest;
  manifest.tool = "test";
  manifest.kind = "text";
  manifest.vocabSize = 256;
  manifest.options = {{"a", "b"}};
  manifest.facts = {{"entropy", 1.25}};
  for (auto [name, split] :
       {std::pair<const char *, SplitInfo *>{"train", &manifest.train},
        {"val", &manifest.val}}) {
    SplitWriter writer(dir.str(), name, perShard);
    EXPECT_TRUE(writer.append(tokens.data(), tokens.size()));
    Result<std::vector<ShardInfo>> shards = writer.finish();
    EXPECT_TRUE(shards.ok());
    *split = {tokens.size(), 1, *shards};
  }
  EXPECT_TRUE(manifest.save(dir.str()));
  return manifest;
}

size_t openFiles() {
  return size_t(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST(Manifest, Errors_AreOneLineOfText) {
  TempDir dir;
  dir.write("manifest.json", "{\"tool\": \"a\n\x01");
  Result<Manifest> manifest = Manifest::load(dir.str());
  ASSERT_FALSE(manifest.ok());
  for (char c : manifest.message())
    EXPECT_TRUE(c >= ' ' && c <= '~') << manifest.message();
}

/// A message that quoted such a name was of two lines.
TEST(Manifest, UnprintableShardNames_AreRefused) {
  TempDir dir;
  writeData(dir, ramp(10), 100);
  std::string text = dir.read("manifest.json");
  size_t name = text.find("train_");
  ASSERT_NE(name, std::string::npos);
  dir.write("manifest.json", text.replace(name, 6, "train\\u000a"));
  Result<Manifest> manifest = Manifest::load(dir.str());
  EXPECT_TRUE(failsWith(manifest, "characters that cannot be shown"));
  EXPECT_EQ(manifest.message().find('\n'), std::string::npos);
}

/// Counts are whole numbers: what JSON would convert is refused.
TEST(Manifest, CountsThatAreNone_AreRefused) {
  TempDir dir;
  writeData(dir, ramp(10), 100);
  std::string text = dir.read("manifest.json");
  const std::string good = "\"documents\": 1";
  for (const char *bad :
       {"-1", "1.5", "1e300", "true", "18446744073709551616"}) {
    std::string changed = text;
    changed.replace(changed.find(good), good.size(),
                    std::string("\"documents\": ") + bad);
    dir.write("manifest.json", changed);
    EXPECT_FALSE(Manifest::load(dir.str()).ok()) << bad;
  }
  dir.write("manifest.json", text);
  EXPECT_TRUE(Manifest::load(dir.str()).ok());
}

TEST(Shard, WrittenShard_HasTheLayoutOfLlmC) {
  TempDir dir;
  writeData(dir, ramp(10), 100);
  std::string bytes = dir.read("train_000000.bin");
  ASSERT_EQ(bytes.size(), 1024u + 20u);
  int32_t header[256];
  std::memcpy(header, bytes.data(), sizeof header);
  EXPECT_EQ(header[0], 20240520);
  EXPECT_EQ(header[1], 1);
  EXPECT_EQ(header[2], 10);
  for (int i = 3; i < 256; ++i)
    EXPECT_EQ(header[i], 0);
  EXPECT_EQ(bytes[1024 + 2 * 7], 7);
  EXPECT_EQ(bytes[1024 + 2 * 7 + 1], 0);
}

TEST(Shard, TokensAcrossFiles_ReadBack) {
  TempDir dir;
  std::vector<uint16_t> tokens = ramp(1000);
  Manifest manifest = writeData(dir, tokens, 300);
  ASSERT_EQ(manifest.train.shards.size(), 4u);
  EXPECT_EQ(manifest.train.shards[3].tokens, 100u);
  EXPECT_EQ(manifest.train.shards[3].file, "train_000003.bin");
  EXPECT_TRUE(verifyShards(dir.str(), manifest));

  Result<Dataset> data = Dataset::open(dir.str());
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(data->train.size(), 1000u);
  EXPECT_EQ(data->manifest.fact("entropy"), 1.25);
  EXPECT_EQ(data->manifest.digest(), manifest.digest());
  std::vector<int32_t> out(700);
  for (uint64_t position : {0, 299, 300, 650, 999}) {
    ASSERT_TRUE(data->train.read(position, out.size(), out.data()));
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], tokens[(position + i) % 1000]) << position << " " << i;
  }
}

TEST(Shard, LargeVocabularies_Have32Bits) {
  TempDir dir;
  const std::vector<uint32_t> tokens = {0, 70000, 131071, 5};
  Manifest manifest = writeData(dir, ramp(10), 100);
  SplitWriter writer(dir.str(), "train", 3, TokenWidth::U32);
  ASSERT_TRUE(writer.append(tokens.data(), tokens.size()));
  manifest.vocabSize = 131072;
  manifest.train = {4, 1, *writer.finish()};
  std::string bytes = dir.read("train_000000.bin");
  ASSERT_EQ(bytes.size(), 1024u + 12u);
  int32_t header[3];
  std::memcpy(header, bytes.data(), sizeof header);
  EXPECT_EQ(header[0], 20240801);
  EXPECT_EQ(header[1], 7);
  EXPECT_EQ(header[2], 3);
  ASSERT_TRUE(manifest.save(dir.str()));
  EXPECT_TRUE(verifyShards(dir.str(), manifest));
  Result<Dataset> data = Dataset::open(dir.str());
  ASSERT_TRUE(data.ok()) << data.message();
  std::vector<int32_t> out(4);
  ASSERT_TRUE(data->train.read(0, 4, out.data()));
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), out.begin(), out.end()));

  manifest.vocabSize = 131071;
  EXPECT_TRUE(failsWith(verifyShards(dir.str(), manifest),
                        "token 131071 at position 2 is not below"));
}

TEST(Shard, MixedWidths_AreAnError) {
  TempDir dir;
  Manifest manifest = writeData(dir, ramp(10), 5);
  SplitWriter writer(dir.str(), "wide", 10, TokenWidth::U32);
  const uint32_t token = 7;
  ASSERT_TRUE(writer.append(&token, 1));
  std::vector<ShardInfo> wide = take(writer.finish());
  manifest.train.shards.push_back(wide.front());
  EXPECT_EQ(messageOf(Dataset::open(dir.str(), manifest)),
            "tokens of mixed widths: '" + dir / "train_000000.bin" +
                "' has u16, '" + dir / "wide_000000.bin" + "' u32");
}

TEST(Shard, DamagedFiles_AreErrors) {
  TempDir dir;
  Manifest manifest = writeData(dir, ramp(10), 100);
  std::string good = dir.read("train_000000.bin");
  auto messageFor = [&](const std::string &bytes) {
    dir.write("train_000000.bin", bytes);
    Result<Dataset> data = Dataset::open(dir.str());
    return data.ok() ? std::string() : data.message();
  };
  EXPECT_TRUE(contains(messageFor(""), "0 bytes"));
  EXPECT_TRUE(contains(messageFor(good.substr(0, 1000)), "1000 bytes"));
  EXPECT_TRUE(contains(messageFor(good.substr(0, 1042)),
                       "says 10 tokens, the file holds 18 bytes"));
  EXPECT_TRUE(contains(messageFor(good + "ab"), "22 bytes"));
  std::string bad = good;
  bad[0] ^= 1;
  EXPECT_TRUE(contains(messageFor(bad), "expected 20240520"));
  bad = good;
  bad[4] = 2;
  EXPECT_TRUE(contains(messageFor(bad), "version 2, expected 1"));
  bad = good;
  bad[11] = char(0x80);
  EXPECT_TRUE(contains(messageFor(bad), "truncated or corrupted"));
  std::filesystem::remove(dir / "train_000000.bin");
  EXPECT_FALSE(Dataset::open(dir.str()).ok());

  bad = good;
  bad[1030] ^= 1;
  dir.write("train_000000.bin", bad);
  EXPECT_TRUE(
      failsWith(verifyShards(dir.str(), manifest), "its manifest says"));
}

TEST(Shard, TokensOutsideTheVocabulary_AreErrors) {
  TempDir dir;
  std::vector<uint16_t> tokens = ramp(10);
  tokens[6] = 256;
  writeData(dir, tokens, 100);
  Dataset data = take(Dataset::open(dir.str()));
  int32_t out[10];
  EXPECT_TRUE(data.train.read(0, 6, out));
  EXPECT_TRUE(failsWith(data.train.read(0, 10, out),
                        "token 256 at position 6 is not below the "
                        "vocabulary size 256"));
}

TEST(Manifest, DamagedManifests_AreErrors) {
  TempDir dir;
  std::string good = writeData(dir, ramp(10), 100).print();
  auto loads = [&](const std::string &text) {
    dir.write("manifest.json", text);
    return Manifest::load(dir.str()).ok();
  };
  EXPECT_TRUE(loads(good));
  for (size_t cut = 0; cut + 2 < good.size(); cut += 7)
    EXPECT_FALSE(loads(good.substr(0, cut)));
  auto replaced = [&](const std::string &from, const std::string &to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  EXPECT_FALSE(loads(replaced("\"format\": 2", "\"format\": 5")));
  EXPECT_FALSE(loads(replaced("\"tokens\": 10", "\"tokens\": 11")));
  EXPECT_FALSE(loads(replaced("\"tokens\": 10", "\"tokens\": \"x\"")));
  EXPECT_FALSE(loads(replaced("train_000000.bin", "../000000.bin")));
  EXPECT_FALSE(loads(replaced("\"vocab_size\": 256", "\"vocab_size\": 0")));
  EXPECT_FALSE(Manifest::load(dir / "nothing").ok());
}

// A wrong entropy was once printed as the true one.
TEST(Manifest, AnyValueIsDamaged_ItsOwnHashTells) {
  TempDir dir;
  std::string good = writeData(dir, ramp(10), 100).print();
  auto check = [&](const std::string &from, const std::string &to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    dir.write("manifest.json", text);
    Result<Manifest> manifest = Manifest::load(dir.str());
    return manifest ? manifest->checkOwnHash(dir.str())
                    : Status(manifest.takeError());
  };
  EXPECT_TRUE(check("1.25", "1.25"));
  for (auto [from, to] : {std::pair("1.25", "1.35"),
                          {"text", "tex\\u0074s"},
                          {"\"a\": \"b\"", "\"a\": \"c\""},
                          {"\"end_of_text\": -1", "\"end_of_text\": 1"},
                          {"\"documents\": 1", "\"documents\": 3"}}) {
    EXPECT_TRUE(failsWith(check(from, to),
                          "manifest.json' is damaged: the hash of its "
                          "values is "));
  }
  EXPECT_FALSE(check("\n  \"xxh3\"", "\n  \"xxh4\""));
  EXPECT_FALSE(check("\"format\": 2", "\"format\": 1"));
}

TEST(Manifest, LossUnit_OnlyOfTextInBytes_IsNatsPerByte) {
  Manifest manifest;
  manifest.kind = "text";
  manifest.vocabSize = 256;
  EXPECT_STREQ(manifest.lossUnit(), "nats/byte");
  manifest.vocabSize = 4096;
  EXPECT_STREQ(manifest.lossUnit(), "nats/token");
  manifest.kind = "markov";
  manifest.vocabSize = 256;
  EXPECT_STREQ(manifest.lossUnit(), "nats/token");
}

// 100,000 shards took more than 20 seconds: nlohmann's callback walked over the
// whole list for each of its elements.
TEST(Manifest, ManyShards_TakeLinearTime) {
  TempDir dir;
  Manifest manifest = writeData(dir, ramp(10), 100);
  // Seconds of the processor: others may run beside it.
  auto secondsFor = [&](size_t shards) {
    manifest.train.shards.assign(shards, manifest.train.shards[0]);
    manifest.train.tokens = 10 * shards;
    EXPECT_TRUE(manifest.save(dir.str()));
    std::clock_t begin = std::clock();
    Result<Manifest> loaded = Manifest::load(dir.str());
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_EQ(loaded->train.shards.size(), shards);
    return double(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  double few = std::max(secondsFor(10000), 0.01);
  EXPECT_LT(secondsFor(100000), 30 * few);
}

TEST(TokenStream, ShardShrinks_ReadIsAnError) {
  TempDir dir;
  writeData(dir, ramp(10000), 5000);
  Result<Dataset> data = Dataset::open(dir.str());
  ASSERT_TRUE(data.ok()) << data.message();
  std::filesystem::resize_file(dir / "train_000001.bin", 1024 + 8000);
  std::vector<int32_t> out(2000);
  EXPECT_TRUE(data->train.read(7000, out.size(), out.data()));
  EXPECT_EQ(messageOf(data->train.read(8000, out.size(), out.data())),
            "'" + dir / "train_000001.bin" +
                "' has shrunk: it ends before byte 11024, it had 11024 bytes "
                "when it was opened");
}

TEST(TokenStream, MoreShardsThanStayOpen_AreReadAndNotReplaced) {
  TempDir dir;
  std::vector<uint16_t> tokens = ramp(300 * 7);
  writeData(dir, tokens, 7);
  size_t before = openFiles();
  Result<Dataset> data = Dataset::open(dir.str());
  ASSERT_TRUE(data.ok()) << data.message();
  EXPECT_EQ(openFiles() - before, 512u);
  std::vector<int32_t> out(tokens.size());
  ASSERT_TRUE(data->train.read(0, out.size(), out.data()));
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), out.begin()));
  std::string bytes = dir.read("train_000299.bin");
  std::filesystem::remove(dir / "train_000299.bin");
  dir.write("other", "takes the inode");
  dir.write("train_000299.bin", bytes);
  EXPECT_TRUE(failsWith(data->train.read(299 * 7, 1, out.data()),
                        "has been replaced since it was opened"));
}

// A data set was once removed before another one could be made.
TEST(DataFolder, OldData_StaysUntilTheNewIsComplete) {
  TempDir dir;
  writeData(dir, ramp(10), 5);
  dir.write("notes.txt", "mine");
  dir.write("train_extra.bin", "mine too");
  std::string before = dir.read("manifest.json");
  EXPECT_FALSE(DataFolder::open(dir.str(), false).ok());
  SynthOptions synth;
  synth.output = dir.str();
  synth.overwrite = true;
  synth.tokens = 10;
  synth.valFraction = 0.01;
  EXPECT_FALSE(synthesize(synth).ok()) << "no validation split";
  PackOptions pack;
  pack.paths = {dir / "train_000000.bin"};
  pack.output = dir.str();
  pack.overwrite = true;
  EXPECT_FALSE(packFiles(pack).ok()) << "nothing to pack";
  Manifest old = take(Manifest::load(dir.str()));
  EXPECT_TRUE(verifyShards(dir.str(), old));
  EXPECT_EQ(dir.read("manifest.json"), before);

  synth.tokens = 1000;
  synth.valFraction = 0.1;
  ASSERT_TRUE(synthesize(synth).ok());
  Manifest made = take(Manifest::load(dir.str()));
  EXPECT_TRUE(verifyShards(dir.str(), made));
  EXPECT_EQ(made.kind, "markov");
  EXPECT_FALSE(std::filesystem::exists(dir / "train_000001.bin"));
  EXPECT_FALSE(std::filesystem::exists(dir / ".nsa-data.new"));
  EXPECT_EQ(dir.read("notes.txt"), "mine");
  EXPECT_EQ(dir.read("train_extra.bin"), "mine too");
}

// Killed after the old manifest went and before the new one came, nsa-data left
// a folder without a manifest.
TEST(DataFolder, KilledWhileReplacing_NextCommandFinishesIt) {
  TempDir dir;
  writeData(dir, ramp(20), 5);
  SynthOptions synth;
  synth.output = dir / "new";
  synth.tokens = 1000;
  ASSERT_TRUE(synthesize(synth).ok());
  std::string made = dir.read("new/manifest.json");
  namespace fs = std::filesystem;
  fs::create_directories(dir / ".nsa-data.ready/old");
  for (const auto &entry : fs::directory_iterator(dir / "new"))
    fs::rename(entry.path(),
               dir / ".nsa-data.ready/" + entry.path().filename().string());
  fs::rename(dir / "manifest.json", dir / ".nsa-data.ready/old/manifest.json");
  fs::rename(dir / ".nsa-data.ready/train_000000.bin",
             dir / "train_000000.bin");
  Result<Manifest> found = Manifest::load(dir.str());
  EXPECT_TRUE(failsWith(found, "nsa-data info finishes it"));

  ASSERT_TRUE(succeeds(finishReplacement(dir.str())));
  found = Manifest::load(dir.str());
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_EQ(dir.read("manifest.json"), made);
  EXPECT_TRUE(verifyShards(dir.str(), *found));
  EXPECT_FALSE(fs::exists(dir / "train_000001.bin"));
  EXPECT_FALSE(fs::exists(dir / ".nsa-data.ready"));
}

TEST(DataFolder, FilesOfNoManifest_AreNotReplaced) {
  TempDir dir;
  dir.write("out/val_000000.bin", "mine");
  SynthOptions synth;
  synth.output = dir / "out";
  synth.tokens = 1000;
  EXPECT_FALSE(synthesize(synth).ok());
  synth.overwrite = true;
  Result<Manifest> made = synthesize(synth);
  EXPECT_TRUE(failsWith(made, "val_000000.bin' is in the way"));
  EXPECT_EQ(dir.read("out/val_000000.bin"), "mine");
  EXPECT_FALSE(std::filesystem::exists(dir / "out/train_000000.bin"));
  // A folder that was made for nothing goes again.
  PackOptions pack;
  pack.paths = {dir / "out"};
  pack.output = dir / "new";
  EXPECT_FALSE(packFiles(pack).ok());
  EXPECT_FALSE(std::filesystem::exists(dir / "new"));
}

} // namespace
