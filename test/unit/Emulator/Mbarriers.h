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
#include <memory>
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
  /// The thread that made it, and whether it has let the TMA unit see that.
  unsigned maker = 0;
  bool isFenced = false;
  /// What the copies of the current phase write when it ends.
  struct Chunk {
    uint64_t offset;
    char data[16];
  };
  std::vector<Chunk> chunks;
  /// The last copy, and the number of phases that must be over for it.
  const Instruction *copy = nullptr;
  unsigned copier = 0;
  uint32_t copyPhases = 0;
  /// How many phases were over when a thread last found one to be.
  uint32_t awaited = 0;

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
  /// The TMA unit sees what this thread has made.
  void fence(Warp &warp, unsigned lane);
  /// Each lane of `mask` arrives at the mbarrier of register `a`, and before
  /// that expects the bytes of register `b` if `count` is 1.
  void arrive(Warp &warp, const Instruction &i, LaneMask mask);
  /// The lanes of `mask` that may go on after a wait; they know of all that
  /// the phase stands for.
  LaneMask poll(Warp &warp, const Instruction &i, LaneMask mask);
  /// A copy that completes on the mbarrier, which it gives; null after a
  /// failure.
  Mbarrier *issue(Warp &warp, const Instruction &i, unsigned lane,
                  uint64_t address, uint64_t bytes);

  /// All threads of a phase have arrived: checks the bytes, and ends the phase
  /// if there are none to come.
  void completeIfDone(Warp &warp, const Instruction &i, unsigned lane,
                      Mbarrier &barrier);

  /// Whether a phase has ended since this was last asked.
  bool takeProgress() { return std::exchange(progress, false); }
  /// Copies end. Whether a phase has ended by that.
  bool land(Block &block);
  /// The block has ended.
  void checkEnd(const std::vector<std::unique_ptr<Warp>> &warps) const;

  /// What is missing where a lane waits.
  std::string describeWait(Warp &warp, const Instruction &i, unsigned lane);

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
