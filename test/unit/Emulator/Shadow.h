//===- Shadow.h - who accessed which memory, and when -----------*- C++ -*-===//
//
// Finds reads of memory that nobody has written and accesses of two threads
// that no barrier puts in order.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_EMULATOR_SHADOW_H
#define NSA_TEST_UNIT_EMULATOR_SHADOW_H

#include "test/unit/Emulator/Clocks.h"

namespace nsa::emulator {

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

/// A read stands for those before it. Of more than two that nothing orders, it
/// is left to chance which are remembered: in a tile that many warps read,
/// there are cells that remember each of them.
inline void recordRead(Cell &cell, const Clocks &clocks, unsigned warp,
                       unsigned lane, Stamp reader) {
  if (cell.read == reader)
    return;
  unsigned agent = agentOf(reader);
  bool isSame = agentOf(cell.read) == agent;
  // Who has waited for a product has for those before.
  bool isLater = isSame && isProduct(reader);
  if (cell.read && !isLater && !clocks.isBefore(cell.read, warp, lane)) {
    bool isFree = !cell.otherRead || agentOf(cell.otherRead) == agent ||
                  clocks.isBefore(cell.otherRead, warp, lane);
    if (isFree || (!isSame && !clocks.toss()))
      cell.otherRead = cell.read;
  }
  cell.read = reader;
}

/// `reader` is remembered to have read this; 0: nobody is.
inline Finding checkRead(Cell &cell, const Clocks &clocks, unsigned warp,
                         unsigned lane, Stamp reader) {
  if (cell.write == 0)
    return Finding::Unwritten;
  Finding finding = Finding::None;
  if (cell.write & (kInFlight | kPoison))
    finding = cell.write & kInFlight ? Finding::InFlight : Finding::Poison;
  else if (!clocks.isBefore(cell.write, warp, lane))
    finding = isCopy(cell.write) ? Finding::InFlight : Finding::WriteRace;
  if (reader)
    recordRead(cell, clocks, warp, lane, reader);
  return finding;
}

/// `stamp` says who the writer is from then on.
inline Finding checkWrite(Cell &cell, const Clocks &clocks, unsigned warp,
                          unsigned lane, Stamp stamp) {
  Finding finding = Finding::None;
  if (cell.write & kInFlight)
    finding = Finding::InFlight;
  else if (cell.write && !clocks.isBefore(cell.write, warp, lane))
    finding = isCopy(cell.write) ? Finding::InFlight : Finding::WriteRace;
  else if ((cell.read && !clocks.isBefore(cell.read, warp, lane)) ||
           (cell.otherRead && !clocks.isBefore(cell.otherRead, warp, lane)))
    finding = Finding::ReadRace;
  cell.write = stamp;
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
                    unsigned lane, Stamp who) {
    if (who && reader != block) {
      manyReaders |= reader != nobody;
      reader = block;
      read = otherRead = 0;
    }
    if (writer == nobody) {
      if (!defined)
        return Finding::Unwritten;
      // Everything before the launch is before everything in it.
      write = makeStamp(0, 0, 1);
      Finding finding = emulator::checkRead(*this, clocks, warp, lane, who);
      write = 0;
      return finding;
    }
    if (writer != block)
      return Finding::OtherBlockWrote;
    return emulator::checkRead(*this, clocks, warp, lane, who);
  }

  Finding checkWrite(const Clocks &clocks, int32_t block, unsigned warp,
                     unsigned lane) {
    Finding finding = Finding::None;
    Stamp stamp = makeStamp(clocks.now(warp), warp, lane);
    if (writer != nobody && writer != block)
      finding = Finding::OtherBlockWrote;
    else if (reader != nobody && (reader != block || manyReaders))
      finding = Finding::OtherBlockRead;
    else
      finding = emulator::checkWrite(*this, clocks, warp, lane, stamp);
    write = stamp;
    writer = block;
    return finding;
  }
};

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_SHADOW_H
