//===- Machine.h - one block at work ----------------------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EMULATOR_MACHINE_H
#define NSA_TEST_UNIT_EMULATOR_MACHINE_H

#include "test/unit/Emulator/Code.h"
#include "test/unit/Emulator/Mbarriers.h"
#include "test/unit/Emulator/Shadow.h"

#include <bit>
#include <memory>

namespace nsa::emulator {

/// What a kernel is launched with.
struct Argument {
  char *data;
  uint64_t bytes;
  /// Only outputs may be written.
  bool isOutput;
  /// Whether what is there before counts; else reading it is an error unless
  /// an input lies there too.
  bool isInput = !isOutput;
};

/// The arguments of a launch with their shadows.
class GlobalMemory {
public:
  GlobalMemory(const std::vector<Argument> &arguments, unsigned granule);

  struct View {
    char *data;
    uint64_t bytes;
    bool isOutput;
    /// The cells of the argument's first byte on; null if no one writes there.
    GlobalCell *cells;
    /// Bytes of the first cell before the argument's first byte.
    unsigned skipped;
  };
  std::vector<View> views;
  unsigned granule;

private:
  std::vector<std::vector<GlobalCell>> regions;
};

/// A read that gave an undefined value, for the message if someone uses it.
struct BadRead {
  const Instruction *instruction;
  unsigned thread;
  int32_t block;
  Finding finding;
  /// The thread or the block of the other access, if there is one.
  int32_t other;
  /// Where: argument (-1: shared memory) and byte.
  int argument;
  uint64_t offset;
};

class Block;

/// 32 threads with their registers.
class Warp {
public:
  Warp(Block &block, unsigned number);

  /// Puts all threads at the start of the kernel.
  void start();

  /// Runs until every thread has ended or waits for other warps.
  void run();

  uint32_t *narrow(uint32_t reg) { return words.get() + size_t(reg) * kLanes; }
  uint64_t *wide(uint32_t reg) {
    return reinterpret_cast<uint64_t *>(narrow(reg));
  }
  /// The lanes in which a register is undefined, and where that came from.
  LaneMask &undefined(uint32_t reg) { return marks[reg].lanes; }
  uint32_t &origin(uint32_t reg) { return marks[reg].origin; }

  /// The lanes of `mask` in `reg` get new values, undefined in `lanes`.
  void define(uint32_t reg, LaneMask mask, LaneMask lanes, uint32_t from) {
    Mark &mark = marks[reg];
    mark.lanes = (mark.lanes & ~mask) | (lanes & mask);
    if (lanes & mask)
      mark.origin = from;
  }

  unsigned thread(unsigned lane) const { return number * kLanes + lane; }

  Block &block;
  const unsigned number;

  /// Copies that have been issued but not waited for.
  struct Copy {
    unsigned lane, group, bytes;
    uint64_t offset;
    char data[16];
  };
  std::vector<Copy> copies;
  /// The group that the next copy of each lane belongs to.
  unsigned group[kLanes] = {};

  /// Warps of a group must issue the same wgmmas, and hand over registers
  /// together.
  void traceProduct(uint64_t what) {
    productTrace = (productTrace ^ what) * 0x100000001b3;
  }
  uint64_t productTrace = 0;
  /// Registers of each thread, and what last changed them.
  unsigned registers = 0;
  const Instruction *registersSet = nullptr;

  bool ended() const { return alive == 0; }
  LaneMask aliveLanes() const { return alive; }
  /// The lanes that wait at mbarriers.
  LaneMask blockedLanes() const { return blocked; }
  /// The barrier that all threads wait at; null if none.
  const Instruction *waitsFor = nullptr;
  /// Lets the threads go on after the barrier.
  void pass();

private:
  friend class Block;
  struct Mark {
    LaneMask lanes = 0;
    uint32_t origin = 0;
  };

  bool step(LaneMask &mask, uint32_t &pc);
  /// Lets lanes go on whose mbarriers' phases are over.
  void wake();
  /// Whether the lanes `mask` may run the collective at `pc`: then they become
  /// all that it waits for. Else they wait.
  bool meet(LaneMask &mask, uint32_t pc);
  void move(LaneMask lanes, uint32_t to);
  void reportStuck();
  const Instruction &instructionOf(unsigned lane) const;

  struct Free {
    void operator()(uint32_t *words) const { std::free(words); }
  };
  std::unique_ptr<uint32_t, Free> words;
  std::vector<Mark> marks;
  /// Where each lane is; lanes in `waiting` have arrived at a collective.
  uint32_t place[kLanes] = {};
  LaneMask alive = 0, waiting = 0, blocked = 0;
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

/// Runs the blocks of a launch one after another.
class Block {
public:
  Block(const Code &code, Dim3 grid, GlobalMemory &global);
  ~Block();

  /// Runs a block to its end. False: see `error`.
  bool run(Dim3 index);

  bool failed() const { return !error.empty(); }
  /// Only the first failure counts. `lane` may be -1: the whole warp.
  void fail(const Warp &warp, const Instruction &at, int lane,
            const std::string &what);
  /// A short text of the operation that an instruction was made of.
  std::string describe(const Instruction &at) const;
  std::string describe(uint32_t origin) const;

  /// Notes a read of an undefined value, for Warp::origin.
  uint32_t note(const BadRead &read);

  const Code &code;
  const Dim3 grid;
  Dim3 index;
  int32_t number = 0;
  GlobalMemory &global;
  std::vector<char> shared;
  std::vector<Cell> cells;
  /// How many barriers all threads have met at. Barriers of one warp, which
  /// come before arrivals at mbarriers, do not count.
  uint32_t barriers = 0;
  Mbarriers mbarriers;
  std::string error;
  /// Instructions of all warps, in all blocks and before this block.
  uint64_t executed = 0, executedBefore = 0;

private:
  bool releaseBarriers();
  void reportDeadlock();
  std::string describeWait(Warp &warp);
  void checkWarpgroups();
  void checkRegisters();
  bool release(unsigned id, const std::vector<Warp *> &waiting);

  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<BadRead> badReads;
};

/// Calls `body(lane)` for each lane of the mask.
template <typename Body>
inline void forLanes(LaneMask mask, const Body &body) {
  for (; mask; mask &= mask - 1)
    body(unsigned(std::countr_zero(mask)));
}

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_MACHINE_H
