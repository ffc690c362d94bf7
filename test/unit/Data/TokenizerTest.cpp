//===- TokenizerTest.cpp - what tokens stand for --------------------------===//

#include "runtime/Data/Tokenizer.h"
#include "lib/Support/Hash.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

using namespace nsa;

namespace {

/// As GPT-2 writes tokens: U+0120 for a space, U+010A for a newline.
const char *byteLevel = R"({"model": {"type": "BPE", "vocab":
  {"a": 0, "b": 1, "\u0120a": 2, "\u010a": 3, "\u00c3\u00a9": 4, "ab": 5,
   "<|endoftext|>": 6}, "merges": []},
  "added_tokens": [{"id": 6, "content": "<|endoftext|>", "special": true},
                   {"id": 8, "content": "<tool>", "special": false}],
  "decoder": {"type": "ByteLevel"}})";

/// As Llama 2 does.
const char *metaspace = R"({"model": {"type": "BPE", "byte_fallback": true,
  "vocab": {"<s>": 0, "\u2581the": 1, "<0x0A>": 2, "x\u2581": 3}},
  "added_tokens": [{"id": 0, "content": "<s>", "special": true}],
  "decoder": {"type": "Sequence", "decoders": [{"type": "Replace"},
    {"type": "ByteFallback"}, {"type": "Fuse"}]}})";

std::string bytes(const Tokenizer &tokenizer, int32_t id) {
  return std::string(tokenizer.bytesOf(id));
}

TEST(Tokenizer, ByteLevel_TokensAreBytes) {
  Tokenizer tokenizer = take(Tokenizer::parse(byteLevel, "t.json"));
  EXPECT_EQ(tokenizer.size(), 9);
  EXPECT_EQ(bytes(tokenizer, 2), " a");
  EXPECT_EQ(bytes(tokenizer, 3), "\n");
  EXPECT_EQ(bytes(tokenizer, 4), "\xC3\xA9");
  EXPECT_EQ(bytes(tokenizer, 6), "") << "special";
  EXPECT_EQ(bytes(tokenizer, 7), "") << "no token";
  EXPECT_EQ(bytes(tokenizer, 8), "<tool>");
  EXPECT_EQ(tokenizer.hash(), hashBytes(byteLevel));
  EXPECT_EQ(tokenizer.endOfText(), 6);
}

TEST(Tokenizer, Metaspace_TokensAreText) {
  Tokenizer tokenizer = take(Tokenizer::parse(metaspace, "t.json"));
  EXPECT_EQ(bytes(tokenizer, 0), "");
  EXPECT_EQ(bytes(tokenizer, 1), " the");
  EXPECT_EQ(bytes(tokenizer, 2), "\n");
  EXPECT_EQ(bytes(tokenizer, 3), "x ");
  EXPECT_EQ(tokenizer.endOfText(), -1);
}

TEST(Tokenizer, Encode_BytesNeedNoLibrary) {
  EXPECT_EQ(take(Tokenizer::ofBytes().encode({"\xFF", ""})),
            (std::vector<std::vector<int32_t>>{{255}, {}}));
  Tokenizer tokenizer = take(Tokenizer::parse(byteLevel, "missing/t.json"));
  EXPECT_TRUE(failsWith(tokenizer.encode({"ab"}),
                        "cannot make tokens of 'missing/t.json': "));
  EXPECT_TRUE(failsWith(tokenizer.encode({"a\xFF"}), "invalid UTF-8 byte"));
}

TEST(Tokenizer, Files_OfEqualIdsAreOneTokenizer) {
  TempDir dir;
  Tokenizer tokenizer = take(Tokenizer::parse(byteLevel, "t.json"));
  auto isSame = [&](const std::string &text) {
    dir.write("t.json", text);
    return tokenizer.hasIdsOf(dir / "t.json", hashBytes(text));
  };
  std::string text = byteLevel;
  EXPECT_TRUE(isSame(text));
  EXPECT_TRUE(isSame(text + "\n"));
  EXPECT_TRUE(isSame(R"({"version": "1.0", )" + text.substr(1)));
  text.replace(text.find("<tool>"), 6, "<loot>");
  EXPECT_FALSE(isSame(text));
  EXPECT_FALSE(isSame("{}"));
  EXPECT_FALSE(tokenizer.hasIdsOf(dir / "t.json", 0)) << "bytes";
}

TEST(Tokenizer, WrongFiles_AreErrors) {
  auto messageFor = [](const std::string &text) {
    Result<Tokenizer> tokenizer = Tokenizer::parse(text, "t.json");
    return tokenizer.ok() ? std::string() : tokenizer.message();
  };
  for (
      const char *text :
      {"", "[]", "{}", R"({"model": {"vocab": 3}})",
       R"({"model": {"vocab": {"a": -1}}, "decoder": {"type": "ByteLevel"}})",
       R"({"model": {"vocab": {"a": 1048576}}, "decoder": {"type": "ByteLevel"}})",
       R"({"model": {"vocab": {}}, "decoder": {"type": "ByteLevel"}})"})
    EXPECT_TRUE(contains(messageFor(text), "'t.json' "));
  EXPECT_TRUE(contains(messageFor(R"({"model": {"vocab": {"##a": 0}},
                           "decoder": {"type": "WordPiece"}})"),
                       "do not say which bytes they stand for"));
}

class TokenizerOfData : public ::testing::Test {
protected:
  /// What comes of data.tokenizer for data of this kind.
  std::string open(const std::string &setting) {
    Dataset data;
    data.directory = dir.str();
    data.manifest = manifest;
    Result<std::optional<Tokenizer>> found = openTokenizer(data, setting);
    if (!found)
      return found.message();
    return *found ? std::to_string((*found)->size()) : "none";
  }

  void setTokenizer(const std::string &text) {
    dir.write("tokenizer.json", text);
    manifest.tokenizer = {"tokenizer.json", hashBytes(text)};
  }

  TempDir dir;
  Manifest manifest;
};

TEST_F(TokenizerOfData, Setting_HasToBeThatOfTheData) {
  dir.write("mine.json", byteLevel);
  dir.write("other.json", metaspace);
  manifest.kind = "text";
  manifest.vocabSize = 256;
  EXPECT_EQ(open("byte"), "256");
  EXPECT_EQ(open("shards"), "256");
  EXPECT_TRUE(
      contains(open(dir / "mine.json"), "are bytes, no tokenizer made them"));
  manifest.kind = "markov";
  EXPECT_EQ(open("byte"), "none");

  manifest.kind = "tokens";
  manifest.vocabSize = 9;
  EXPECT_TRUE(contains(open("byte"), "a tokenizer that it does not name"));
  EXPECT_EQ(open("shards"), "none");
  EXPECT_EQ(open(dir / "mine.json"), "9");
  EXPECT_TRUE(contains(open(dir / "other.json"), "has 4 tokens, the data in"));
  EXPECT_TRUE(contains(open(dir / "nowhere.json"), "data.tokenizer: "));

  setTokenizer(byteLevel);
  EXPECT_TRUE(contains(open("byte"), "set data.tokenizer to shards"));
  EXPECT_EQ(open("shards"), "9");
  EXPECT_EQ(open(dir / "mine.json"), "9");
  std::string message = open(dir / "other.json");
  EXPECT_TRUE(contains(message, toHex(hashBytes(byteLevel))));
  EXPECT_TRUE(contains(message, toHex(hashBytes(metaspace))));
  dir.write("tokenizer.json", metaspace);
  EXPECT_TRUE(contains(open("shards"), "its manifest says"));
}

} // namespace
