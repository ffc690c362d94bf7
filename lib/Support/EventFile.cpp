//===- EventFile.cpp - TensorBoard's event files --------------------------===//

#include "lib/Support/EventFile.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <unistd.h>

using namespace nsa;

//===----------------------------------------------------------------------===//
// Records
//===----------------------------------------------------------------------===//

static std::array<uint32_t, 256> makeTable() {
  std::array<uint32_t, 256> table;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    table[byte] = crc;
  }
  return table;
}

uint32_t nsa::crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = makeTable();
  uint32_t crc = ~0u;
  for (char c : bytes)
    crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

/// `value` as little-endian bytes.
template <typename T>
static std::string littleEndian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i)
    bytes += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  return bytes;
}

/// The CRC as the format stores it, so that a CRC of a CRC means something.
static std::string maskedCrc(std::string_view bytes) {
  uint32_t crc = crc32c(bytes);
  return littleEndian<uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

std::string nsa::eventRecord(std::string_view event) {
  std::string length = littleEndian<uint64_t>(event.size());
  return length + maskedCrc(length) + std::string(event) + maskedCrc(event);
}

//===----------------------------------------------------------------------===//
// Protocol buffers: only what an event needs
//===----------------------------------------------------------------------===//

static std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7)
    bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

static std::string key(unsigned field, unsigned wireType) {
  return varint(field << 3 | wireType);
}

static std::string integer(unsigned field, int64_t value) {
  return key(field, 0) + varint(static_cast<uint64_t>(value));
}

static std::string number(unsigned field, double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return key(field, 1) + littleEndian(bits);
}

static std::string single(unsigned field, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return key(field, 5) + littleEndian(bits);
}

static std::string nested(unsigned field, const std::string &bytes) {
  return key(field, 2) + varint(bytes.size()) + bytes;
}

/// wall_time = 1, step = 2, and one of file_version = 3, summary = 5,
/// session_log = 7.
static std::string event(double wallTime, int64_t step, unsigned field,
                         const std::string &content) {
  return number(1, wallTime) + integer(2, step) + nested(field, content);
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

Result<EventFile> EventFile::create(const std::string &folder, double wallTime,
                                    int64_t firstStep) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code)
    return Error{"cannot create '" + folder + "': " + code.message()};
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  std::string path = folder + "/events.out.tfevents." +
                     std::to_string(static_cast<int64_t>(wallTime)) + "." +
                     host + "." + std::to_string(::getpid());
  NSA_ASSIGN_OR_RETURN(RecordFile opened, RecordFile::open(path));
  EventFile file(std::move(opened));
  std::string start = eventRecord(event(wallTime, 0, 3, "brain.Event:2"));
  // SessionLog.status = START (1).
  if (firstStep > 1)
    start += eventRecord(event(wallTime, firstStep, 7, integer(1, 1)));
  NSA_RETURN_IF_ERROR(file.file.write(start));
  return file;
}

Status
EventFile::scalars(double wallTime, int64_t step,
                   const std::vector<std::pair<std::string, double>> &values) {
  std::string summary;
  // Summary.value = 1; its tag = 1, simple_value = 2.
  for (const auto &[tag, value] : values)
    summary += nested(1, nested(1, tag) + single(2, static_cast<float>(value)));
  return file.write(eventRecord(event(wallTime, step, 5, summary)));
}
