//===- Mbarriers.h - barriers in shared memory ------------------*- C++ -*-===//
//
// An mbarrier is passed phase by phase: a phase is over when as many threads
// have arrived as it was made for and all bytes that they expect have been
// copied. Copies of a phase end as late as they may: when no warp can go on
// without them.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_EMULATOR_MBARRIERS_H
#define NSA_TEST_UNIT_EMULATOR_MBARRIERS_H

#include "test/unit/Emulator/Code.h"

#include <map>
#include <utility>
#include <vector>

namespace nsa::emulator {

class Block;

struct Mbarrier {
  uint64_t offset = 0;
  /// Threads of each phase, and those that the current one waits for.
  uint32_t count = 0, pending = 0;
  /// Bytes of the current phase.
  uint64_t expected = 0, issued = 0;
  /// How many phases are over.
  uint32_t phase = 0;
  /// What the copies of the current phase write when it ends.
  struct Chunk {
    uint64_t offset;
    char data[16];
    unsigned bytes = sizeof data;
  };
  std::vector<Chunk> chunks;

  /// Whether the phase before the current one has this parity.
  bool hasPassed(uint32_t parity) const { return (phase & 1) != parity; }
};

class Mbarriers {
public:
  void reset();

  /// Whether some of these bytes of shared memory belong to an mbarrier.
  bool overlap(uint64_t offset, uint64_t bytes) const {
    return offset < end && offset + bytes > begin && search(offset, bytes);
  }

  void make(Warp &warp, const Instruction &i, unsigned lane, uint64_t address,
            uint32_t count);
  /// Each lane of `mask` arrives at the mbarrier of register `a`, and before
  /// that expects the bytes of register `b` if `count` is 1. If `immediate` is
  /// 1, its cp.async end with the phase.
  void arrive(Warp &warp, const Instruction &i, LaneMask mask);
  /// The lanes of `mask` that may go on after a wait; they know of all that
  /// the phase stands for.
  LaneMask poll(Warp &warp, const Instruction &i, LaneMask mask);
  /// A copy that completes on the mbarrier, which it gives; null after a
  /// failure.
  Mbarrier *issue(Warp &warp, const Instruction &i, unsigned lane,
                  uint64_t address, uint64_t bytes);

  /// Ends a phase whose threads have all arrived, if no bytes are to come.
  void completeIfDone(Block &block, Mbarrier &barrier);

  /// Whether a phase has ended since this was last asked.
  bool takeProgress() { return std::exchange(progress, false); }
  /// Copies end. Whether a phase has ended by that.
  bool land(Block &block);

private:
  bool search(uint64_t offset, uint64_t bytes) const;
  /// The mbarrier at an address, which the lane must know to be one; null after
  /// a failure.
  Mbarrier *get(Warp &warp, const Instruction &i, unsigned lane,
                uint64_t address);
  /// Threads of a warp that use one mbarrier.
  struct Use {
    Mbarrier *barrier;
    LaneMask lanes;
  };
  static LaneMask &lanesOf(std::vector<Use> &uses, Mbarrier *barrier);
  void arrive(Warp &warp, const Instruction &i, const Use &use);
  void complete(Block &block, Mbarrier &barrier);

  std::map<uint64_t, Mbarrier> objects;
  /// Where the first one begins and the last one ends.
  uint64_t begin = ~uint64_t(0), end = 0;
  bool progress = false;
};

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_MBARRIERS_H
