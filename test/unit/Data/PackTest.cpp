//===- PackTest.cpp - text files to token shards --------------------------===//

#include "runtime/Data/Pack.h"
#include "lib/Support/Hash.h"
#include "runtime/Data/TokenStream.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <map>
#include <numeric>
#include <zlib.h>

using namespace nsa;

namespace {

/// The documents of a split, cut at end-of-text.
std::multiset<std::string> documents(const TokenStream &stream) {
  std::vector<int32_t> tokens(stream.size());
  std::multiset<std::string> found;
  if (tokens.empty())
    return found;
  EXPECT_TRUE(stream.read(0, stream.size(), tokens.data()));
  EXPECT_EQ(tokens.back(), 0);
  std::string document;
  for (int32_t token : tokens) {
    if (token == 0) {
      found.insert(document);
      document.clear();
    } else {
      document += char(token);
    }
  }
  return found;
}

// The validation stream was once the training stream, and documents were cut
// and joined without a separator.
TEST(Pack, Documents_SplitByHashWithoutLossOrJoin) {
  TempDir dir;
  std::multiset<std::string> written;
  for (int i = 0; i < 200; ++i) {
    std::string text = "document " + std::to_string(i % 150) + "\n" +
                       std::string(size_t(i % 150) * 7, 'x');
    dir.write("in/" + std::to_string(i) + ".txt", text);
    written.insert(text);
  }
  PackOptions options;
  options.paths = {dir / "in"};
  options.output = dir / "out";
  options.valFraction = 0.3;
  options.shardTokens = 1000;
  Manifest manifest = take(packText(options));
  Dataset data = take(Dataset::open(dir / "out"));
  std::multiset<std::string> train = documents(data.train);
  std::multiset<std::string> val = documents(data.val);
  EXPECT_GT(val.size(), 30u);
  EXPECT_LT(val.size(), 90u);
  EXPECT_EQ(manifest.val.documents, val.size());
  EXPECT_EQ(manifest.train.documents, train.size());
  for (const std::string &text : val) {
    EXPECT_EQ(train.count(text), 0u) << text;
    EXPECT_LT(double(hashBytes(text)) * 0x1p-64, 0.3);
  }
  std::multiset<std::string> both = train;
  both.insert(val.begin(), val.end());
  EXPECT_EQ(both, written);
}

TEST(Pack, PackedTwice_BytesAreTheSame) {
  TempDir dir;
  for (int i = 0; i < 30; ++i)
    dir.write("in/" + std::to_string(i), "text " + std::to_string(i));
  PackOptions options;
  options.paths = {dir / "in"};
  options.valFraction = 0.3;
  options.output = dir / "a";
  ASSERT_TRUE(packText(options).ok());
  options.output = dir / "b";
  ASSERT_TRUE(packText(options).ok());
  for (const char *file :
       {"manifest.json", "train_000000.bin", "val_000000.bin"})
    EXPECT_EQ(dir.read(std::string("a/") + file),
              dir.read(std::string("b/") + file));
  EXPECT_FALSE(packText(options).ok());
  options.overwrite = true;
  EXPECT_TRUE(packText(options).ok());
}

TEST(Pack, BinaryFiles_AreSkippedAndCounted) {
  TempDir dir;
  dir.write("in/a.txt", "plain\n");
  dir.write("in/b.bin", std::string("nul\0byte", 8));
  dir.write("in/c.txt", "");
  dir.write("in/d.txt", std::string(100, char(0xFF)));
  dir.write("in/.hidden", "no");
  dir.write("in/e.log", "filtered");
  dir.write("in/sub/f.txt", "more");
  std::filesystem::create_symlink("a.txt", dir / "in/link.txt");
  std::string gzip = dir / "in/g.txt.gz";
  gzFile file = gzopen(gzip.c_str(), "wb");
  gzputs(file, "compressed");
  gzclose(file);
  PackOptions options;
  options.paths = {dir / "in", dir / "in/a.txt"};
  options.output = dir / "in/out";
  options.filter.exclude = {"*.log"};
  options.valFraction = 0;
  Manifest manifest = take(packText(options));
  std::map<std::string, uint64_t> counts(manifest.counts.begin(),
                                         manifest.counts.end());
  EXPECT_EQ(counts["files"], 3u);
  EXPECT_EQ(counts["binary_files_skipped"], 2u);
  EXPECT_EQ(counts["empty_files_skipped"], 1u);
  EXPECT_EQ(counts["files_filtered_out"], 1u);
  EXPECT_EQ(counts["hidden_files_ignored"], 1u);
  EXPECT_EQ(counts["links_ignored"], 1u);
  Dataset data = take(Dataset::open(dir / "in/out"));
  EXPECT_EQ(documents(data.train),
            (std::multiset<std::string>{"plain\n", "more", "compressed"}));
}

TEST(Pack, DamagedGzip_IsReportedAndSkipped) {
  TempDir dir;
  std::string gzip = dir / "g.gz";
  gzFile file = gzopen(gzip.c_str(), "wb");
  for (int i = 0; i < 1000; ++i)
    gzputs(file, std::to_string(i * 7919).c_str());
  gzclose(file);
  dir.write("in/g.gz", dir.read("g.gz").substr(0, 500));
  dir.write("in/a", "text");
  PackOptions options;
  options.paths = {dir / "in"};
  options.output = dir / "out";
  options.valFraction = 0;
  std::string warned;
  options.warn = [&](const std::string &message) { warned += message; };
  ASSERT_TRUE(packText(options).ok());
  EXPECT_TRUE(contains(warned, "cannot decompress"));
}

TEST(Pack, HiddenFolder_ItsFilesAreCountedAndNamed) {
  TempDir dir;
  for (const char *name : {"a.txt", ".cache/b.txt", ".cache/deep/c.txt",
                           ".cache/deep/d.bin", "sub/.e.txt", ".f.txt"})
    dir.write(std::string("in/") + name, std::string("text of ") + name);
  PackOptions options;
  options.paths = {dir / "in"};
  options.output = dir / "out";
  options.filter.include = {"*.txt"};
  options.valFraction = 0;
  std::string warned;
  options.warn = [&](const std::string &message) { warned += message; };
  Result<Manifest> manifest = packText(options);
  ASSERT_TRUE(manifest.ok()) << manifest.message();
  auto count = [&](const std::string &name) {
    for (const auto &[key, value] : manifest->counts)
      if (key == name)
        return value;
    return UINT64_MAX;
  };
  EXPECT_EQ(count("files"), 1u);
  EXPECT_EQ(count("hidden_files_ignored"), 4u);
  EXPECT_EQ(warned, "hidden files left out: 4, the first in '" +
                        dir / "in/.cache" + "' (--hidden takes them)");
  options.filter.hidden = true;
  options.overwrite = true;
  manifest = packText(options);
  ASSERT_TRUE(manifest.ok()) << manifest.message();
  EXPECT_EQ(count("files"), 5u);
  EXPECT_EQ(count("hidden_files_ignored"), 0u);
  EXPECT_EQ(count("files_filtered_out"), 1u);
}

TEST(Pack, FormatsOfOtherReaders_AreRefusedByNameAndContents) {
  TempDir dir;
  dir.write("in/b.JSONL", "{\"text\": \"one\"}\n");
  PackOptions options;
  options.paths = {dir / "in"};
  options.output = dir / "out";
  EXPECT_TRUE(failsWith(packText(options), "b.JSONL' holds JSON lines"));
  const char *lines = "{\"a\": 1}\n{\"a\": 2}\n", *one = "{\"a\": 1}\n";
  for (const char *name :
       {"x.jsonl.gz", "x.ndjson", "a/b.jsonl", "x.json", "x.parquet", "x.zst"})
    EXPECT_TRUE(findFormat(name, lines)) << name;
  for (const char *name : {"x.json", "jsonl", "x.txt.gz", ".jsonl"})
    EXPECT_FALSE(findFormat(name, one)) << name;
}

// A file of 5 MiB once took 2 GiB of memory, and could have taken any.
TEST(Pack, GzipInflatesBeyondTheLimit_IsSkippedAndNamed) {
  TempDir dir;
  dir.write("in/a.txt", "text");
  std::string gzip = dir / "in/bomb.gz";
  gzFile file = gzopen(gzip.c_str(), "wb");
  std::string line(100000, 'a');
  for (int i = 0; i < 30; ++i)
    gzwrite(file, line.data(), unsigned(line.size()));
  gzclose(file);
  PackOptions options;
  options.paths = {dir / "in"};
  options.output = dir / "out";
  options.valFraction = 0;
  options.maxInflatedBytes = 2999999;
  std::string warned;
  options.warn = [&](const std::string &message) { warned += message; };
  Result<Manifest> manifest = packText(options);
  ASSERT_TRUE(manifest.ok()) << manifest.message();
  EXPECT_EQ(manifest->train.tokens, 5u);
  EXPECT_EQ(warned, "'" + gzip +
                        "' inflates to more than 2999999 bytes "
                        "(--max-inflated-bytes), skipped");
  options.maxInflatedBytes = 3000000;
  options.overwrite = true;
  manifest = packText(options);
  ASSERT_TRUE(manifest.ok()) << manifest.message();
  EXPECT_EQ(manifest->train.tokens, 5u + 3000001u);
}

// What is larger than the buffer is read twice, and packed to the same bytes.
TEST(Pack, FileLargerThanTheBuffer_GivesTheSameDocuments) {
  TempDir dir;
  std::string text;
  for (int i = 0; text.size() < (17 << 20); ++i)
    text += "line " + std::to_string(int64_t(i) * 7919) + " \xE2\x82\xAC\n";
  dir.write("in/long.txt", text);
  PackOptions options;
  options.paths = {dir / "in"};
  options.output = dir / "out";
  options.valFraction = 0;
  for (uint64_t most : {uint64_t(0), uint64_t(3000001)}) {
    options.maxDocumentBytes = most;
    options.overwrite = true;
    ASSERT_TRUE(succeeds(packText(options)));
    std::multiset<std::string> expected;
    const char *next = text.data();
    for (size_t length : cutDocuments(next, text.size(), most)) {
      expected.emplace(next, length);
      next += length;
    }
    Dataset data = take(Dataset::open(dir / "out"));
    EXPECT_TRUE(documents(data.train) == expected) << most;
  }
  // A byte that is no text at its end is seen as well.
  dir.write("in/long.txt", text + '\0');
  EXPECT_FALSE(packText(options).ok());
}

TEST(Pack, EmptyResults_AreErrors) {
  TempDir dir;
  dir.write("in/a", std::string("\0", 1));
  PackOptions options;
  options.paths = {dir / "in"};
  options.output = dir / "out";
  Result<Manifest> manifest = packText(options);
  EXPECT_TRUE(failsWith(manifest, "1 binary"));
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));

  dir.write("out/other", "stays");
  dir.write("in/b", "one document");
  manifest = packText(options);
  EXPECT_TRUE(failsWith(manifest, "split is empty: 1 documents"));
  EXPECT_FALSE(std::filesystem::exists(dir / "out/train_000000.bin"));
  EXPECT_TRUE(std::filesystem::exists(dir / "out/other"));

  options.paths = {dir / "nothing"};
  EXPECT_FALSE(packText(options).ok());
}

TEST(Pack, ByteLimit_EndsThePacking) {
  TempDir dir;
  for (int i = 10; i < 20; ++i)
    dir.write("in/" + std::to_string(i), std::string(100, 'a'));
  PackOptions options;
  options.paths = {dir / "in"};
  options.output = dir / "out";
  options.valFraction = 0;
  options.maxBytes = 350;
  Manifest manifest = take(packText(options));
  EXPECT_EQ(manifest.train.tokens, 303u);
  for (const auto &[key, value] : manifest.counts)
    if (key == "files_over_limit")
      EXPECT_EQ(value, 7u);
}

TEST(Pack, LongFiles_AreCutAtNewlines) {
  std::string text = "aaaa\nbb\ncccccccccc\nd";
  std::vector<size_t> lengths = cutDocuments(text.data(), text.size(), 8);
  EXPECT_EQ(lengths, (std::vector<size_t>{8, 8, 4}));
  EXPECT_EQ(cutDocuments(text.data(), text.size(), 0),
            (std::vector<size_t>{text.size()}));
  EXPECT_EQ(cutDocuments(text.data(), text.size(), 100),
            (std::vector<size_t>{text.size()}));
}

TEST(Pack, Text_IsMostlyValidUtf8WithoutNul) {
  auto check = [](const std::string &text) {
    return isText(reinterpret_cast<const uint8_t *>(text.data()), text.size());
  };
  EXPECT_TRUE(check("plain\ttext\r\n"));
  EXPECT_TRUE(check("na\xC3\xAFve caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  EXPECT_TRUE(check("Latin-1 text with one r\xE9sum\xE9 in thirty letters"));
  EXPECT_FALSE(check(std::string("a\0b", 3)));
  EXPECT_FALSE(check("\x01\x02\x03\x04 text"));
  EXPECT_FALSE(check("\xFF\xFE\xFD\xFC\xFB"));
  EXPECT_TRUE(check("truncated at the end of a long enough text \xE2\x82"));
}

TEST(Pack, TextInPieces_IsJudgedAsAWhole) {
  std::string text;
  for (int i = 0; i < 30; ++i)
    text += "\xE2\x82\xAC\xF0\x9F\x98\x80";
  for (size_t piece = 1; piece < 9; ++piece) {
    TextScan scan;
    for (size_t at = 0; at < text.size(); at += piece)
      scan.add(text.data() + at, std::min(piece, text.size() - at));
    EXPECT_TRUE(scan.finish()) << piece;
  }
}

} // namespace
