//===- Wire.h - messages between a store and its clients --------*- C++ -*-===//
//
// A message is its length (u32), a kind (u8) and fields; integers are u64,
// little-endian, text is such a length and its bytes.
//
// The store begins with Challenge. A rank answers with Proof, whose length is
// fixed, the store with its own proof (Done); then the rank registers (Hello).
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DISTRIBUTED_WIRE_H
#define NSA_RUNTIME_DISTRIBUTED_WIRE_H

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace nsa::wire {

/// The first field of Challenge. It changes with the messages.
constexpr uint64_t protocol = 0x4e53415354523035; // "NSASTR05"

/// The longest message that is accepted, and the longest before registration.
constexpr uint32_t maxBytes = 64u << 20, maxHelloBytes = 4096;

enum class Kind : uint8_t {
  Challenge, ///< protocol, 1 if there is a token, the store's nonce
  Proof,     ///< the rank's nonce, its proof; answered with the store's proof
  Hello,     ///< rank, size, run; answered
  Set,       ///< key, value
  Get,       ///< key, milliseconds; answered with the value once there is one
  Exchange,  ///< name, milliseconds, most of them, 1 if it may follow a stop,
             ///< payload; answered with all payloads
  Progress,  ///< number, bytes of the reduction that begins
  Where,     ///< answered with a text
  Loss,      ///< answered with a text and a StoreFailure
  Leave,     ///< why; empty at the end. The end of the connection is no loss
  Stop,      ///< why: the sender ends the run, as planned, and stays
  Heartbeat, ///< the sender lives; not answered
  Wait,      ///< an answer will follow, within the time of the question
  Done,      ///< an answer: fields as asked for
  Failed,    ///< an answer: a message and a StoreFailure
};

/// A message that is being written.
class Writer {
public:
  explicit Writer(Kind kind) : bytes(4, '\0') { bytes += char(kind); }

  Writer &number(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8)
      bytes += char(value >> shift & 0xff);
    return *this;
  }
  Writer &text(std::string_view value) {
    number(value.size());
    bytes += value;
    return *this;
  }
  /// The whole message.
  std::string finish() {
    uint32_t length = uint32_t(bytes.size() - 4);
    for (int i = 0; i < 4; ++i)
      bytes[size_t(i)] = char(length >> (8 * i) & 0xff);
    return std::move(bytes);
  }

private:
  std::string bytes;
};

/// A message that is being read. What is not there reads as 0 or "" and makes
/// it bad.
class Reader {
public:
  /// `body` is the message without its length.
  explicit Reader(std::string_view body) : rest(body) {
    isGood = !rest.empty();
    if (isGood) {
      first = Kind(rest[0]);
      rest.remove_prefix(1);
    }
  }

  Kind kind() const { return first; }
  bool good() const { return isGood; }

  uint64_t number() {
    if (rest.size() < 8) {
      isGood = false;
      return 0;
    }
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i)
      value |= uint64_t(uint8_t(rest[size_t(i)])) << (8 * i);
    rest.remove_prefix(8);
    return value;
  }
  std::string text() {
    uint64_t length = number();
    if (rest.size() < length) {
      isGood = false;
      return "";
    }
    std::string value(rest.substr(0, length));
    rest.remove_prefix(length);
    return value;
  }

private:
  std::string_view rest;
  Kind first = Kind::Failed;
  bool isGood;
};

/// Bytes that are appended at the end and taken off the front, in a time that
/// is linear in their number however small the pieces are.
class ByteQueue {
public:
  void append(std::string_view more) { bytes += more; }
  std::string_view view() const {
    return std::string_view(bytes).substr(begin);
  }
  size_t size() const { return bytes.size() - begin; }
  bool empty() const { return size() == 0; }

  /// Takes `count` bytes off the front.
  void pop(size_t count) {
    begin += count;
    // What is moved was preceded by at least as much that is gone.
    if (begin < bytes.size() - begin)
      return;
    bytes.erase(0, begin);
    begin = 0;
  }

private:
  std::string bytes;
  size_t begin = 0;
};

/// Takes the body of the first message off `queue`; nothing if it is not
/// complete. `tooLong` says that its length is beyond `most`.
inline std::optional<std::string> takeMessage(ByteQueue &queue, uint32_t most,
                                              bool &tooLong) {
  std::string_view bytes = queue.view();
  if (bytes.size() < 4)
    return std::nullopt;
  uint32_t length = 0;
  for (int i = 0; i < 4; ++i)
    length |= uint32_t(uint8_t(bytes[size_t(i)])) << (8 * i);
  tooLong = length > most;
  if (tooLong || bytes.size() < 4 + size_t(length))
    return std::nullopt;
  std::string body(bytes.substr(4, length));
  queue.pop(4 + size_t(length));
  return body;
}

} // namespace nsa::wire

#endif // NSA_RUNTIME_DISTRIBUTED_WIRE_H
