//===- Access.h - one lane's access to memory -------------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EMULATOR_ACCESS_H
#define NSA_TEST_UNIT_EMULATOR_ACCESS_H

#include "test/unit/Emulator/Machine.h"

namespace nsa::emulator {

/// An address that an access has been checked for.
struct Place {
  /// Null after a failure.
  char *data = nullptr;
  int argument = -1;
  uint64_t offset = 0;
};

/// One lane's access to memory.
class Access {
public:
  Access(Warp &warp, const Instruction &i, unsigned lane)
      : warp(warp), block(warp.block), i(i), lane(lane) {}

  Place find(bool shared, uint64_t address, unsigned bytes, uint64_t align,
             bool writes);
  /// Checks what a read finds. What is undefined is noted once.
  bool isDefined(const Place &place, unsigned bytes, bool records,
                 uint32_t &origin);
  /// Whether products may read shared memory: whoever wrote it fenced that and
  /// was at a barrier since.
  bool isFenced(const Place &place, unsigned bytes) const;
  void markWritten(const Place &place, unsigned bytes, Stamp flags);
  void fail(const std::string &what) { block.fail(warp, i, int(lane), what); }

private:
  /// The reader that no barrier orders.
  Stamp readerOf(const Cell &cell) const;
  void failRace(const Place &place, Finding found, Stamp other,
                int32_t otherBlock);

  Warp &warp;
  Block &block;
  const Instruction &i;
  unsigned lane;
};

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_ACCESS_H
