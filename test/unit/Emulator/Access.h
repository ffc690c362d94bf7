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
  /// The same where an mbarrier may be.
  Place locate(bool shared, uint64_t address, unsigned bytes, uint64_t align,
               bool writes);
  /// Checks what a read finds. What is undefined is noted once, if it
  /// `matters`.
  bool isDefined(const Place &place, unsigned bytes, bool matters,
                 uint32_t &origin);
  /// `content`: what reads find in shared memory from now on.
  void markWritten(const Place &place, unsigned bytes,
                   Finding content = Finding::None);
  void fail(const std::string &what) { block.fail(warp, i, int(lane), what); }

private:
  void write(const Place &place, Users &users, int32_t who);

  Warp &warp;
  Block &block;
  const Instruction &i;
  unsigned lane;
};

/// Fails where the address or something else that must be known is undefined.
bool requireDefined(Warp &warp, const Instruction &i, LaneMask mask,
                    uint32_t reg, const char *what);

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_ACCESS_H
