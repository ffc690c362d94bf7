//===- Shadow.h - who accessed which memory, and when -----------*- C++ -*-===//
//
// Finds reads of memory that nobody has written and accesses of two threads
// that no barrier puts in order. Every warp has a clock that its barriers
// advance, and knows from barriers up to which time of another warp all
// accesses lie before its own next one.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_EMULATOR_SHADOW_H
#define NSA_TEST_UNIT_EMULATOR_SHADOW_H

#include <array>
#include <cstdint>
#include <vector>

namespace nsa::emulator {

/// Warps of the largest block.
constexpr unsigned kMaxWarps = 32;

/// A thread at a time: clock, warp, lane and two flags. 0 is nobody.
using Stamp = uint32_t;
/// The value is still on its way (cp.async); it is undefined.
constexpr Stamp kInFlight = 1, kPoison = 2;
constexpr unsigned kClockShift = 12;
constexpr uint32_t kMaxClock = (uint32_t(1) << (32 - kClockShift)) - 1;

inline Stamp makeStamp(uint32_t clock, unsigned warp, unsigned lane) {
  return clock << kClockShift | warp << 7 | lane << 2;
}
inline unsigned threadOf(Stamp stamp) { return stamp >> 2 & 0x3ff; }

/// What each warp of a block knows of the others' clocks.
class Clocks {
public:
  Clocks() { reset(); }

  void reset() {
    for (auto &row : seen)
      row.fill(1);
  }

  uint32_t now(unsigned warp) const { return seen[warp][warp]; }
  /// Threads of a warp have met.
  void tick(unsigned warp) { ++seen[warp][warp]; }

  /// Whether what `stamp` says happened before anything that this thread does
  /// from now on.
  bool isBefore(Stamp stamp, unsigned warp, unsigned lane) const {
    return (stamp >> kClockShift) < seen[warp][stamp >> 7 & 31] ||
           threadOf(stamp) == (warp << 5 | lane);
  }

  using Times = std::array<uint32_t, kMaxWarps>;
  /// Adds what `warp` knows to `times`, and that it was there.
  void release(unsigned warp, Times &times) {
    for (unsigned i = 0; i < kMaxWarps; ++i)
      times[i] = times[i] > seen[warp][i] ? times[i] : seen[warp][i];
    times[warp] = ++seen[warp][warp];
  }
  void acquire(unsigned warp, const Times &times) {
    for (unsigned i = 0; i < kMaxWarps; ++i)
      if (times[i] > seen[warp][i])
        seen[warp][i] = times[i];
  }

private:
  std::array<Times, kMaxWarps> seen;
};

/// What an access found.
enum class Finding : uint8_t {
  None,
  /// Nobody has written this.
  Unwritten,
  /// An undefined value was stored here.
  Poison,
  /// A copy to here has not been waited for.
  InFlight,
  /// Another thread wrote or read this without a barrier between.
  WriteRace,
  ReadRace,
  /// The same, a thread of another block.
  OtherBlockWrote,
  OtherBlockRead,
  /// It is the result of an asynchronous product.
  ProductInFlight,
};

/// One granule of memory.
struct Cell {
  Stamp write = 0;
  /// Two threads that have read it since, in different warps if there are.
  Stamp read = 0, otherRead = 0;
  /// How often the writer had fenced for asynchronous products before.
  uint32_t fences = 0;
};

inline Finding checkRead(Cell &cell, const Clocks &clocks, unsigned warp,
                         unsigned lane, bool records) {
  if (cell.write == 0)
    return Finding::Unwritten;
  Finding finding = Finding::None;
  if (cell.write & (kInFlight | kPoison))
    finding = cell.write & kInFlight ? Finding::InFlight : Finding::Poison;
  else if (!clocks.isBefore(cell.write, warp, lane))
    finding = Finding::WriteRace;
  if (records) {
    Stamp stamp = makeStamp(clocks.now(warp), warp, lane);
    if (cell.read >> 7 != stamp >> 7)
      cell.otherRead = cell.read;
    else if (cell.read != stamp && clocks.isBefore(cell.otherRead, warp, lane))
      cell.otherRead = cell.read;
    cell.read = stamp;
  }
  return finding;
}

inline Finding checkWrite(Cell &cell, const Clocks &clocks, unsigned warp,
                          unsigned lane, Stamp flags) {
  Finding finding = Finding::None;
  if (cell.write & kInFlight)
    finding = Finding::InFlight;
  else if (cell.write && !clocks.isBefore(cell.write, warp, lane))
    finding = Finding::WriteRace;
  else if ((cell.read && !clocks.isBefore(cell.read, warp, lane)) ||
           (cell.otherRead && !clocks.isBefore(cell.otherRead, warp, lane)))
    finding = Finding::ReadRace;
  cell.write = makeStamp(clocks.now(warp), warp, lane) | flags;
  cell.read = cell.otherRead = 0;
  return finding;
}

/// A granule of global memory: all blocks of a launch may run at once.
struct GlobalCell : Cell {
  static constexpr int32_t nobody = -1;
  int32_t writer = nobody, reader = nobody;
  bool manyReaders = false;
  bool defined = false;

  Finding checkRead(const Clocks &clocks, int32_t block, unsigned warp,
                    unsigned lane, bool records) {
    if (records && reader != block) {
      manyReaders |= reader != nobody;
      reader = block;
      read = otherRead = 0;
    }
    if (writer == nobody) {
      if (!defined)
        return Finding::Unwritten;
      // Everything before the launch is before everything in it.
      write = makeStamp(0, 0, 1);
      Finding finding = emulator::checkRead(*this, clocks, warp, lane, records);
      write = 0;
      return finding;
    }
    if (writer != block)
      return Finding::OtherBlockWrote;
    return emulator::checkRead(*this, clocks, warp, lane, records);
  }

  Finding checkWrite(const Clocks &clocks, int32_t block, unsigned warp,
                     unsigned lane) {
    Finding finding = Finding::None;
    if (writer != nobody && writer != block)
      finding = Finding::OtherBlockWrote;
    else if (reader != nobody && (reader != block || manyReaders))
      finding = Finding::OtherBlockRead;
    else
      finding = emulator::checkWrite(*this, clocks, warp, lane, 0);
    write = makeStamp(clocks.now(warp), warp, lane);
    writer = block;
    return finding;
  }
};

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_SHADOW_H
