//===- SafetensorsTest.cpp - named tensors in a file ----------------------===//

#include "lib/Support/Safetensors.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <chrono>
#include <cstring>

using namespace nsa;

namespace {

/// A file with the given header and data.
std::string image(const std::string &header, const std::string &data = "") {
  uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char *>(&length), 8);
  return bytes + header + data;
}

Result<SafetensorsFile> parse(const std::string &bytes) {
  return SafetensorsFile::parse(reinterpret_cast<const uint8_t *>(bytes.data()),
                                bytes.size(), "x");
}

TEST(Safetensors, Written_ReadsBack) {
  TempDir dir;
  uint32_t a[6] = {1, 2, 3, 4, 5, 0x80000000u};
  uint16_t b[3] = {7, 8, 9};
  std::string path = dir / "t.safetensors";
  ASSERT_TRUE(writeSafetensors(path,
                               {{"a.weight", "F32", {2, 3}, a, sizeof a},
                                {"empty", "F32", {0, 4}, nullptr, 0},
                                {"b", "BF16", {3}, b, sizeof b},
                                {"scalar", "F32", {}, a, 4}},
                               {{"format", "pt"}}));
  SafetensorsFile file = take(SafetensorsFile::open(path));
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const SafeTensor *tensor = file.find("a.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, "F32");
  EXPECT_EQ(tensor->shape, (std::vector<uint64_t>{2, 3}));
  uint32_t read[6] = {};
  ASSERT_TRUE(file.read(*tensor, read));
  EXPECT_EQ(std::memcmp(read, a, sizeof a), 0);
  EXPECT_EQ(file.find("empty")->bytes, 0u);
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  EXPECT_EQ(file.find("missing"), nullptr);
}

TEST(Safetensors, WhatTheFormatAllows_IsRead) {
  EXPECT_TRUE(parse(image("{}")).ok());
  EXPECT_TRUE(parse(image("{}   ")).ok());
  EXPECT_TRUE(parse(image(R"({"__metadata__":{"k":"v"},)"
                          R"("a":{"dtype":"U8","shape":[2],)"
                          R"("data_offsets":[0,2]}})",
                          "ab"))
                  .ok());
}

TEST(Safetensors, NestingOfAnyDepth_IsRefused) {
  EXPECT_TRUE(failsWith(parse(image(R"({"a":{"dtype":"F32","shape":[[4]],)"
                                    R"("data_offsets":[0,4]}})",
                                    "1234")),
                        "array is not an unsigned integer"));
  std::string deep(200000, '[');
  std::string header = R"({"a":{"dtype":"F32","shape":[)" + deep + "1" +
                       std::string(deep.size(), ']') +
                       R"(],"data_offsets":[0,4]}})";
  Result<SafetensorsFile> file = parse(image(header, "1234"));
  EXPECT_TRUE(failsWith(file, "nested more than 16 deep"))
      << file.message().substr(0, 200);
}

TEST(Safetensors, Errors_AreOneLineOfText) {
  for (const char *header : {R"({"a\nb":{"dtype":"F32\r"}})", "{\n\x01",
                             R"({"a":{"dtype":"F\u001b32"}})"}) {
    Result<SafetensorsFile> file = parse(image(header));
    ASSERT_FALSE(file.ok());
    for (char c : file.message())
      EXPECT_TRUE(c >= ' ' && c <= '~') << file.message();
  }
}

TEST(Safetensors, WhatTheFormatForbids_IsRefused) {
  auto tensor = [](const std::string &dtype, const std::string &shape,
                   const std::string &offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape +
           R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_TRUE(parse(image(tensor("I32", "[1]", "[0,4]"), "abcd")).ok());
  const std::string bad[] = {
      "",
      "1234567",
      image("[]"),
      image("{"),
      image("{} x"),
      image("null"),
      image("{}", "x"),
      image(tensor("I99", "[1]", "[0,4]"), "abcd"),
      image(tensor("I32", "[1]", "[0,8]"), "abcd"),
      image(tensor("I32", "[2]", "[0,4]"), "abcd"),
      image(tensor("I32", "[1]", "[4,0]"), "abcd"),
      image(tensor("I32", "[1]", "[0]"), "abcd"),
      image(tensor("I32", "[-1]", "[0,4]"), "abcd"),
      image(tensor("I32", "[1.5]", "[0,4]"), "abcd"),
      image(tensor("I32", "4", "[0,4]"), "abcd"),
      image(tensor("I32", "[1]", "[1,5]"), "abcde"),
      image(tensor("I32", "[4294967296,4294967296,4294967296]", "[0,0]")),
      image(R"({"a":5})"),
      image(R"({"a":{"dtype":"U8"}})"),
      image(R"({"__metadata__":{"k":1}})"),
      image(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
            R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
            "x"),
      image(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
            R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            "xyz"),
      std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10),
      image("{}").substr(0, 9)};
  for (const std::string &bytes : bad)
    EXPECT_FALSE(parse(bytes).ok()) << bytes;
}

TEST(Safetensors, FileShrinks_ReadIsAnError) {
  TempDir dir;
  std::vector<float> values(100000, 1.0f);
  std::string path = dir / "t.safetensors";
  ASSERT_TRUE(writeSafetensors(
      path, {{"a", "F32", {100000}, values.data(), 400000}}, {}));
  SafetensorsFile file = take(SafetensorsFile::open(path));
  ASSERT_TRUE(file.read(*file.find("a"), values.data()));
  std::filesystem::resize_file(path, 1000);
  EXPECT_TRUE(failsWith(file.read(*file.find("a"), values.data()),
                        path + "' has shrunk"));
}

// 200,000 took more than 20 seconds: every name was compared with all before.
TEST(Safetensors, ManyEmptyTensors_TakeLinearTime) {
  auto header = [](int count) {
    std::string text = "{";
    for (int i = 0; i < count; ++i)
      text += (i ? ",\"t" : "\"t") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
    return image(text + "}");
  };
  auto begin = std::chrono::steady_clock::now();
  SafetensorsFile file = take(parse(header(100000)));
  EXPECT_EQ(file.tensors().size(), 100000u);
  EXPECT_NE(file.find("t99999"), nullptr);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_TRUE(failsWith(parse(header((1 << 18) + 1)),
                        "an object of more than 262144 names"));
}

} // namespace
