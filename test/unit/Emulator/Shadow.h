//===- Shadow.h - who accessed which memory ---------------------*- C++ -*-===//
//
// Finds reads of memory that is unwritten, or that a copy has still to
// write, blocks that share memory, and threads that do without a barrier
// between. When copies and wgmmas may use memory is what
// tile-gpu-verify-synchronization proves.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_EMULATOR_SHADOW_H
#define NSA_TEST_UNIT_EMULATOR_SHADOW_H

#include <cstdint>

namespace nsa::emulator {

/// What an access found.
enum class Finding : uint8_t {
  None,
  /// Unwritten.
  Unwritten,
  /// An undefined value was stored here.
  Poison,
  /// A copy to here has not been waited for.
  InFlight,
  /// A thread of another block wrote or read this, or another thread since the
  /// last barrier.
  OtherWrote,
  OtherRead,
};

/// Who may use a granule at once: blocks of a launch, or threads of a block
/// from one barrier to the next.
struct Users {
  static constexpr int32_t nobody = -1;
  int32_t writer = nobody, reader = nobody;
  bool manyReaders = false;

  Finding read(int32_t who) {
    if (reader != who) {
      manyReaders |= reader != nobody;
      reader = who;
    }
    return writer == nobody || writer == who ? Finding::None
                                             : Finding::OtherWrote;
  }

  Finding write(int32_t who) {
    Finding finding = Finding::None;
    if (writer != nobody && writer != who)
      finding = Finding::OtherWrote;
    else if (reader != nobody && (reader != who || manyReaders))
      finding = Finding::OtherRead;
    writer = who;
    return finding;
  }
};

/// One granule of shared memory: what a read finds, and who has written it.
struct Cell {
  Finding content = Finding::Unwritten;
  uint32_t thread = 0;
  /// The barriers before the users.
  uint32_t barriers = 0;
  Users users;

  Users &usersBehind(uint32_t number) {
    if (barriers != number)
      users = {};
    barriers = number;
    return users;
  }
};

/// A granule of global memory.
struct GlobalCell {
  Users users;
  bool defined = false;
};

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_SHADOW_H
