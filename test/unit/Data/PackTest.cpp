//===- PackTest.cpp - the bytes of files as token shards ------------------===//

#include "runtime/Data/Pack.h"
#include "lib/Support/Hash.h"
#include "runtime/Data/TokenStream.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <map>
#include <set>

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

class Pack : public ::testing::Test {
protected:
  Pack() {
    options.paths = {dir / "in"};
    options.output = dir / "out";
    options.valFraction = 0.3;
    options.warn = [this](const std::string &message) {
      warned += message + "\n";
    };
  }

  /// Writes 20 documents, of which both splits have some.
  std::multiset<std::string> writeFolder() {
    std::multiset<std::string> written;
    for (int i = 10; i < 30; ++i) {
      std::string text = "document " + std::to_string(i) + "\n";
      dir.write("in/" + std::to_string(i) + ".txt", text);
      written.insert(text);
    }
    return written;
  }

  /// The documents of both splits.
  std::multiset<std::string> packed() {
    Dataset data = take(Dataset::open(options.output));
    std::multiset<std::string> both = documents(data.train);
    both.merge(documents(data.val));
    return both;
  }

  TempDir dir;
  PackOptions options;
  std::string warned;
};

// The validation stream was once the training stream, and documents were cut
// and joined without a separator.
TEST_F(Pack, Documents_SplitByHashWithoutLossOrJoin) {
  std::multiset<std::string> written;
  for (int i = 0; i < 200; ++i) {
    std::string text = "document " + std::to_string(i % 150) + "\n" +
                       std::string(size_t(i % 150) * 7, 'x');
    dir.write("in/" + std::to_string(i) + ".txt", text);
    written.insert(text);
  }
  options.shardTokens = 1000;
  Manifest manifest = take(packFiles(options));
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
  EXPECT_EQ(packed(), written);
}

TEST_F(Pack, PackedTwice_BytesAreTheSame) {
  writeFolder();
  options.output = dir / "a";
  ASSERT_TRUE(packFiles(options).ok());
  options.output = dir / "b";
  ASSERT_TRUE(packFiles(options).ok());
  for (const char *file :
       {"manifest.json", "train_000000.bin", "val_000000.bin"})
    EXPECT_EQ(dir.read(std::string("a/") + file),
              dir.read(std::string("b/") + file));
  EXPECT_FALSE(packFiles(options).ok());
  options.overwrite = true;
  EXPECT_TRUE(packFiles(options).ok());
}

TEST_F(Pack, WhatIsLeftOut_IsCountedAndNamed) {
  std::multiset<std::string> written = writeFolder();
  dir.write("in/b.bin", std::string("nul\0byte", 8));
  dir.write("in/c.txt", "");
  for (const char *hidden : {"in/.cache/b.txt", "in/.f.txt"})
    dir.write(hidden, "no");
  dir.write("in/sub/f.txt", "more\xFF");
  written.insert("more\xFF");
  std::filesystem::create_symlink("10.txt", dir / "in/link.txt");
  options.paths = {dir / "in", dir / "in/10.txt"};
  options.output = dir / "in/out";
  Manifest manifest = take(packFiles(options));
  std::map<std::string, uint64_t> counts(manifest.counts.begin(),
                                         manifest.counts.end());
  EXPECT_EQ(counts["files"], 21u);
  EXPECT_EQ(counts["binary_files_skipped"], 1u);
  EXPECT_EQ(counts["empty_files_skipped"], 1u);
  EXPECT_EQ(counts["hidden_ignored"], 2u);
  EXPECT_EQ(counts["links_ignored"], 1u);
  EXPECT_EQ(warned, "hidden files and folders left out: 2, the first is '" +
                        dir / "in/.cache" +
                        "' (give what to take by its name)\n"
                        "symbolic links not followed: 1, the first is '" +
                        dir / "in/link.txt" + "'\n");
  EXPECT_EQ(packed(), written);
  // Neither is the data set in the folder, nor what is named though hidden.
  options.overwrite = true;
  options.paths.push_back(dir / "in/.cache");
  EXPECT_EQ(take(packFiles(options)).counts.front().second, 22u);
}

TEST_F(Pack, TextInOtherForms_IsRefused) {
  writeFolder();
  const char *lines = "{\"a\": 1}\n{\"a\": 2}\n";
  for (const char *name : {"x.JSONL", "x.ndjson", "x.json", "x.parquet",
                           "x.arrow", "x.zst", "x.txt.gz"}) {
    dir.write(std::string("in/") + name, lines);
    EXPECT_TRUE(failsWith(packFiles(options), std::string(name) +
                                                  "' is no plain text: python "
                                                  "-m nsa.data pack"));
    std::filesystem::remove(dir / ("in/" + std::string(name)));
  }
  for (const char *text : {"{\"a\": 1}\n", "{\n \"a\": 1\n}\n", "[{}\n{}]"}) {
    dir.write("in/x.json", text);
    EXPECT_TRUE(succeeds(packFiles(options)));
    options.overwrite = true;
  }
}

TEST_F(Pack, FileOfManyPieces_GivesTheSameDocuments) {
  std::string text;
  for (int i = 0; text.size() < (3 << 20); ++i)
    text += "line " + std::to_string(int64_t(i) * 7919) + " \xE2\x82\xAC\n";
  for (uint64_t most : {uint64_t(0), uint64_t(300001)}) {
    std::multiset<std::string> expected = writeFolder();
    dir.write("in/long.txt", text);
    options.maxDocumentBytes = most;
    ASSERT_TRUE(succeeds(packFiles(options)));
    options.overwrite = true;
    size_t begin = 0;
    while (most != 0 && text.size() - begin > most) {
      size_t end = text.rfind('\n', begin + most - 1) + 1;
      expected.insert(text.substr(begin, end - begin));
      begin = end;
    }
    expected.insert(text.substr(begin));
    EXPECT_TRUE(packed() == expected) << most;
  }
  // A byte that is no text at its end is seen as well.
  dir.write("in/long.txt", text + '\0');
  ASSERT_TRUE(succeeds(packFiles(options)));
  EXPECT_TRUE(packed() == writeFolder());
}

TEST_F(Pack, LongFiles_AreCutAtNewlines) {
  std::multiset<std::string> expected = writeFolder();
  dir.write("in/a", "aaaaaaaaaaaaaaa\nbb\nccccccccccccccccccccccc\nd");
  expected.insert(
      {"aaaaaaaaaaaaaaa\n", "bb\n", "cccccccccccccccc", "ccccccc\nd"});
  options.maxDocumentBytes = 16;
  ASSERT_TRUE(succeeds(packFiles(options)));
  EXPECT_EQ(packed(), expected);
}

TEST_F(Pack, EmptyResults_AreErrors) {
  dir.write("in/a", std::string("\0", 1));
  EXPECT_TRUE(failsWith(packFiles(options), "1 binary"));
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));

  dir.write("out/other", "stays");
  dir.write("in/b", "one document");
  options.valFraction = 0.001;
  EXPECT_TRUE(failsWith(packFiles(options),
                        "the validation split is empty: 1 documents at "
                        "--val-fraction 0.001 (a larger one, or "
                        "--max-document-bytes, which cuts long files, helps)"));
  EXPECT_FALSE(std::filesystem::exists(dir / "out/train_000000.bin"));
  EXPECT_TRUE(std::filesystem::exists(dir / "out/other"));
  options.valFraction = 0;
  EXPECT_TRUE(failsWith(packFiles(options), "must be in (0, 1), not 0"));
  options.valFraction = 0.5;
  options.paths = {dir / "nothing"};
  EXPECT_TRUE(failsWith(packFiles(options), "no file or folder"));
}

TEST_F(Pack, ByteLimit_EndsThePacking) {
  writeFolder();
  options.maxBytes = 12 * 15 + 11;
  Manifest manifest = take(packFiles(options));
  EXPECT_EQ(manifest.train.tokens + manifest.val.tokens, 15u * 13u);
  EXPECT_EQ(manifest.count("files_over_limit"), 5u);
}

} // namespace
