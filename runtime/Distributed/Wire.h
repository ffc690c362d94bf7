//===- Wire.h - messages between a store and its clients --------*- C++ -*-===//
//
// A message is six integers (u64, little-endian: that of its kind, its three
// numbers, the lengths of its two texts) and the texts.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DISTRIBUTED_WIRE_H
#define NSA_RUNTIME_DISTRIBUTED_WIRE_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace nsa::wire {

/// What the integer of every kind begins with. It changes with the messages.
constexpr uint64_t protocol = 0x4e53415354523600; // "NSASTR6"

/// The longest text that is accepted, and the longest before registration.
constexpr uint64_t maxBytes = 64u << 20, maxHelloBytes = 4096;

enum class Kind : uint8_t {
  // Before a rank is registered.
  Challenge, ///< of the store; number: 1 if there is a token; text: its nonce
  Hello,     ///< rank, number: how many there are; name: the run; text: the
             ///< rank's nonce and its proof
  Welcome,   ///< of the store; text: its proof. What all are told follows
  Refused,   ///< of the store; name: why; text: its proof. A rank that does
             ///< not know the token gets neither. As what all are told: a
             ///< connection was refused; number: 1 if no run can follow
  // What one rank says to all: the store passes it on with its rank.
  Set,      ///< name: a key; text: its value
  Exchange, ///< name, text; number: 1 if it may follow a stop
  Leave,    ///< text: why; empty at the end. Its connection's end is no loss
  Stop,     ///< text: why the rank ends the run, as planned; it stays
  // What the store says of ranks, and how it knows.
  Joined,   ///< rank
  Lost,     ///< rank
  Progress, ///< rank; number, bytes of the reduction that it has begun
  Silent,   ///< rank; number: milliseconds since it was heard, 0 if it was now
  Alive,    ///< the sender lives: of ranks to the store and back
};

struct Message {
  Kind kind = Kind::Alive;
  uint64_t rank = 0, number = 0, bytes = 0;
  std::string name = {}, text = {};
};

inline std::string encode(const Message &message) {
  const uint64_t head[] = {protocol | uint64_t(message.kind),
                           message.rank,
                           message.number,
                           message.bytes,
                           message.name.size(),
                           message.text.size()};
  return std::string(reinterpret_cast<const char *>(head), sizeof head) +
         message.name + message.text;
}

/// Takes the first message off `bytes`; nothing if it is not complete.
/// `isForeign` says that it is none, or that a text is longer than `most`.
inline std::optional<Message> decode(std::string_view &bytes, uint64_t most,
                                     bool &isForeign) {
  uint64_t head[6] = {protocol};
  std::memcpy(head, bytes.data(), std::min(bytes.size(), sizeof head));
  isForeign = (bytes.size() >= sizeof head[0] &&
               (head[0] ^ protocol) > uint64_t(Kind::Alive)) ||
              head[4] > most || head[5] > most;
  if (isForeign || bytes.size() < sizeof head + head[4] + head[5])
    return std::nullopt;
  Message message{Kind(head[0] ^ protocol), head[1], head[2], head[3], "", ""};
  message.name = bytes.substr(sizeof head, head[4]);
  message.text = bytes.substr(sizeof head + head[4], head[5]);
  bytes.remove_prefix(sizeof head + head[4] + head[5]);
  return message;
}

} // namespace nsa::wire

#endif // NSA_RUNTIME_DISTRIBUTED_WIRE_H
