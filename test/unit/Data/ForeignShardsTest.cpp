//===- ForeignShardsTest.cpp - token files of other projects --------------===//

#include "runtime/Data/ForeignShards.h"
#include "runtime/Data/Verifier.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <cstring>
#include <numeric>

using namespace nsa;

namespace {

template <typename T>
std::string raw(const std::vector<T> &values) {
  return std::string(reinterpret_cast<const char *>(values.data()),
                     values.size() * sizeof(T));
}

/// A .bin as llm.c writes it.
template <typename T>
std::string llmc(int32_t magic, int32_t version, const std::vector<T> &tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = int32_t(tokens.size());
  return raw(header) + raw(tokens);
}

template <typename T>
std::vector<T> ramp(T count) {
  std::vector<T> tokens(count);
  std::iota(tokens.begin(), tokens.end(), T(0));
  return tokens;
}

/// An .idx as Megatron writes it, of documents of one sequence each.
std::string megatron(uint8_t type, size_t width,
                     const std::vector<int32_t> &lengths) {
  std::vector<int64_t> places, documents = {0};
  int64_t at = 0;
  for (int32_t length : lengths) {
    places.push_back(at);
    at += int64_t(length) * int64_t(width);
    documents.push_back(int64_t(places.size()));
  }
  std::vector<uint64_t> counts = {lengths.size(), documents.size()};
  return std::string("MMIDIDX\0\0", 9) + raw<uint64_t>({1}) +
         std::string(1, char(type)) + raw(counts) + raw(lengths) + raw(places) +
         raw(documents);
}

std::string messageFor(const std::string &path, int64_t vocabSize = 0) {
  Result<Dataset> data = Dataset::open(path, vocabSize);
  if (!data)
    return data.message();
  Status status = verifyShards(*data);
  return status ? "" : status.message();
}

std::vector<int32_t> readAll(const TokenStream &stream) {
  std::vector<int32_t> out(stream.size());
  EXPECT_TRUE(stream.read(0, out.size(), out.data()));
  return out;
}

TEST(ForeignShards, LlmC_ValInTheNameIsTheValidationSplit) {
  TempDir dir;
  dir.write("fineweb_train_000002.bin",
            llmc(20240520, 1, std::vector<uint16_t>{7, 8}));
  dir.write("fineweb_train_000001.bin",
            llmc(20240520, 1, std::vector<uint16_t>{50256, 5, 6}));
  dir.write("fineweb_val_000000.bin",
            llmc(20240520, 1, std::vector<uint16_t>{9}));
  Dataset data = take(Dataset::open(dir.str(), 50304));
  EXPECT_EQ(readAll(data.train), (std::vector<int32_t>{50256, 5, 6, 7, 8}));
  EXPECT_EQ(readAll(data.val), std::vector<int32_t>{9});
  EXPECT_EQ(data.manifest.kind, "llm.c");
  EXPECT_EQ(data.manifest.vocabSize, 50304);
  EXPECT_STREQ(data.manifest.lossUnit(), "nats/token");
  EXPECT_EQ(messageFor(dir.str()), "");
  uint64_t digest = data.manifest.digest();
  dir.write("fineweb_val_000000.bin",
            llmc(20240520, 1, std::vector<uint16_t>{10}));
  EXPECT_NE(Dataset::open(dir.str())->manifest.digest(), digest);
}

TEST(ForeignShards, OneFile_ItsEndIsHeldOut) {
  TempDir dir;
  dir.write("a.bin", llmc(20240801, 7, ramp<uint32_t>(100000)));
  Dataset data = take(Dataset::open(dir / "a.bin", 128256));
  EXPECT_EQ(data.train.size(), 90000u);
  ASSERT_EQ(data.val.size(), 10000u);
  std::vector<int32_t> held = readAll(data.val);
  EXPECT_EQ(held.front(), 90000);
  EXPECT_EQ(held.back(), 99999);
  EXPECT_EQ(messageFor(dir / "a.bin"), "");
  EXPECT_TRUE(contains(messageFor(dir / "a.bin", 95000),
                       "token 95000 at position 5000 is not below the "
                       "vocabulary size 95000"));
}

TEST(ForeignShards, Megatron_HeldOutDocumentsStayWhole) {
  for (bool has32Bits : {false, true}) {
    TempDir dir;
    dir.write("my_text_document.bin",
              has32Bits ? raw(ramp<uint32_t>(100)) : raw(ramp<uint16_t>(100)));
    dir.write("my_text_document.idx", has32Bits
                                          ? megatron(4, 4, {50, 35, 0, 15})
                                          : megatron(8, 2, {50, 35, 0, 15}));
    for (const char *name : {"", "my_text_document", "my_text_document.bin",
                             "my_text_document.idx"}) {
      Dataset data = take(Dataset::open(dir / name));
      EXPECT_EQ(data.manifest.kind, "megatron");
      EXPECT_EQ(data.train.size(), 85u) << "a tenth begins at 90";
      EXPECT_EQ(data.manifest.train.documents, 2u);
      EXPECT_EQ(data.manifest.val.documents, 1u);
      EXPECT_EQ(readAll(data.val).front(), 85);
      EXPECT_EQ(readAll(data.train).back(), 84);
      EXPECT_EQ(messageFor(dir / name), "");
    }
  }
}

TEST(ForeignShards, MegatronIndexChanges_IsNoticedByItsHash) {
  TempDir dir;
  dir.write("a.bin", raw(ramp<uint16_t>(100)));
  std::vector<DataFile> known;
  for (std::vector<int32_t> lengths :
       {std::vector<int32_t>{50, 35, 15}, {40, 45, 15}}) {
    dir.write("a.idx", megatron(8, 2, lengths));
    Dataset data = take(Dataset::open(dir.str()));
    DataVerifier verifier(data);
    verifier.start(1);
    ASSERT_TRUE(verifier.wait());
    if (known.empty())
      known = verifier.files();
    ASSERT_EQ(known.size(), 3u) << "both splits and the index";
    verifier.expect(known, "step 4");
    Status status = verifier.status();
    EXPECT_EQ(bool(status), lengths[0] == 50);
    if (!status)
      EXPECT_EQ(status.message().rfind("'a.idx' has changed: its hash is ", 0),
                0u)
          << status.message();
  }
}

TEST(ForeignShards, WrongFiles_AreErrorsThatNameThem) {
  TempDir dir;
  std::vector<uint16_t> tokens = ramp<uint16_t>(100);
  auto expect = [&](const std::string &contents, const std::string &message) {
    dir.write("x/a.bin", contents);
    std::string found = messageFor(dir / "x");
    EXPECT_TRUE(contains(found, "x/a.bin"));
    EXPECT_TRUE(contains(found, message));
  };
  std::string good = llmc(20240520, 1, tokens);
  expect(llmc(20240521, 1, tokens),
         "magic 20240521, expected 20240520 (u16) or 20240801 (u32)");
  expect(llmc(20240801, 1, tokens), "version 1, expected 7");
  expect(good.substr(0, good.size() - 2),
         "its header says 100 tokens, the file holds 198 bytes");
  expect(good.substr(0, 100), "the header alone has 1024");
  expect(llmc(20240520, 1, std::vector<uint16_t>{}), "holds no tokens");
  dir.write("x/b.bin", llmc(20240801, 7, std::vector<uint32_t>{1}));
  expect(good, "tokens of mixed widths");

  auto expectIndex = [&](const std::string &index, const std::string &message) {
    dir.write("m/a.bin", raw(tokens));
    dir.write("m/a.idx", index);
    std::string found = messageFor(dir / "m/a");
    EXPECT_TRUE(contains(found, "m/a."));
    EXPECT_TRUE(contains(found, message));
  };
  std::string index = megatron(8, 2, {60, 40});
  auto changed = [&](size_t at, char value) {
    std::string bytes = index;
    bytes[at] = value;
    return bytes;
  };
  expectIndex(changed(0, 'X'), "it begins with 'XMIDIDX', expected 'MMIDIDX'");
  expectIndex(changed(9, 2), "version 2 of Megatron's index, expected 1");
  expectIndex(changed(17, 7),
              "tokens of type float32, expected uint16 or int32");
  expectIndex(changed(17, 99), "tokens of type 99");
  expectIndex(changed(18, 3), "it says 3 sequences and 3 entries");
  expectIndex(changed(25, char(0xFF)), "is truncated or corrupted");
  expectIndex(index.substr(0, 20), "20 bytes, the header alone has 34");
  expectIndex(changed(34, 61), "has sequence 1 of 40 tokens at byte 120, "
                               "expected it after the one before, at byte 122");
  expectIndex(changed(58, 9), "a document at sequence 9 of 2");
  expectIndex(megatron(8, 2, {60, 41}),
              "its index says 101 tokens of u16, the file holds 200 bytes");
  dir.write("x/a.idx", index);
  dir.write("x/a.bin", raw(tokens));
  EXPECT_TRUE(contains(messageFor(dir / "x"), "files of two projects"));
}

} // namespace
