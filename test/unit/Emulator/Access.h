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
      : warp(warp), block(warp.block), i(i), lane(lane),
        reader(makeStamp(block.clocks.now(warp.number), warp.number, lane)) {}

  Place find(bool shared, uint64_t address, unsigned bytes, uint64_t align,
             bool writes);
  /// The same where an mbarrier may be.
  Place locate(bool shared, uint64_t address, unsigned bytes, uint64_t align,
               bool writes);
  /// Reads are those of `stamp`, which is no thread.
  void readFor(Stamp stamp) { reader = stamp; }
  /// Checks what a read finds. What is undefined is noted once.
  bool isDefined(const Place &place, unsigned bytes, bool records,
                 uint32_t &origin);
  /// Whether products may read shared memory: the thread that wrote it fenced
  /// that and was at a barrier since. `own`: of this thread, the fence is
  /// enough.
  bool isFenced(const Place &place, unsigned bytes, bool own = false) const;
  void markWritten(const Place &place, unsigned bytes, Stamp flags);
  /// A write to shared memory that this thread issues and `stamp` makes.
  void markShared(const Place &place, unsigned bytes, Stamp stamp);
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
  Stamp reader;
};

/// Fails where the address or something else that must be known is undefined.
bool requireDefined(Warp &warp, const Instruction &i, LaneMask mask,
                    uint32_t reg, const char *what);

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_ACCESS_H
