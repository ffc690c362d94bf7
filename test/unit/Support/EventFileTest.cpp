//===- EventFileTest.cpp - TensorBoard's event files ----------------------===//

#include "lib/Support/EventFile.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <cstring>
#include <gtest/gtest.h>

using namespace nsa;

namespace {

uint64_t readInt(const std::string &bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i)
    value |= uint64_t(static_cast<unsigned char>(bytes.at(at + i))) << (8 * i);
  return value;
}

uint32_t unmask(uint32_t masked) {
  uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

/// The events of a file; every length and checksum must be right.
std::vector<std::string> readEvents(const std::string &bytes) {
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = readInt(bytes, at, 8);
    EXPECT_EQ(unmask(uint32_t(readInt(bytes, at + 8, 4))),
              crc32c(bytes.substr(at, 8)));
    events.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(unmask(uint32_t(readInt(bytes, at + 12 + length, 4))),
              crc32c(events.back()));
    at += 16 + length;
  }
  return events;
}

/// The only file of a folder.
std::string onlyFile(TempDir &dir, const std::string &folder) {
  std::string name;
  for (const auto &entry : std::filesystem::directory_iterator(dir / folder)) {
    EXPECT_TRUE(name.empty());
    name = entry.path().filename();
  }
  EXPECT_EQ(name.rfind("events.out.tfevents.1700000000.", 0), 0u) << name;
  return dir.read(folder + "/" + name);
}

TEST(EventFile, Checksums_AreCastagnoli) {
  // RFC 3720, B.4, and the usual check value.
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventFile, Scalars_AreOnDiskAtOnce) {
  TempDir dir;
  EventFile file = take(EventFile::create(dir / "tb", 1700000000.5, 1));
  std::vector<std::string> events = readEvents(onlyFile(dir, "tb"));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(contains(events[0], "brain.Event:2"));

  ASSERT_TRUE(file.scalars(1700000001.0, 300, {{"a/b", 0.5}, {"c", -2.0}}));
  events = readEvents(onlyFile(dir, "tb"));
  ASSERT_EQ(events.size(), 2u);
  // wall_time, step 300, then two values of a summary.
  std::string expected = "\x09";
  double wallTime = 1700000001.0;
  expected.append(reinterpret_cast<const char *>(&wallTime), 8);
  expected += std::string("\x10\xac\x02\x2a\x16", 5);
  expected += std::string("\x0a\x0a\x0a\x03"
                          "a/b"
                          "\x15\x00\x00\x00\x3f",
                          12);
  expected += std::string("\x0a\x08\x0a\x01"
                          "c"
                          "\x15\x00\x00\x00\xc0",
                          10);
  EXPECT_EQ(events[1], expected);
}

TEST(EventFile, ResumedRun_ReplacesLaterSteps) {
  TempDir dir;
  ASSERT_TRUE(EventFile::create(dir / "tb", 1700000000.0, 11).ok());
  std::vector<std::string> events = readEvents(onlyFile(dir, "tb"));
  ASSERT_EQ(events.size(), 2u);
  // step 11, session_log {status: START}.
  EXPECT_EQ(events[1].substr(9), std::string("\x10\x0b\x3a\x02\x08\x01", 6));
}

TEST(EventFile, ImpossibleFolder_IsAnError) {
  TempDir dir;
  dir.write("tb", "a file");
  EXPECT_TRUE(failsWith(EventFile::create(dir / "tb", 0.0, 1), dir / "tb"));
}

} // namespace
