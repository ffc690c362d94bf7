//===- ArenaPacker.h - offsets of buffers in one arena ----------*- C++ -*-===//
//
// Gives every buffer of a straight-line program an offset in one allocation, so
// that buffers that are alive at the same time do not overlap. No IR, no LLVM.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_ANALYSIS_ARENAPACKER_H
#define NSA_PASSES_ANALYSIS_ARENAPACKER_H

#include <cstdint>
#include <vector>

namespace nsa {

/// A buffer of `size` bytes that is alive at the steps `first` to `last`, both
/// included; `first <= last`.
struct ArenaBuffer {
  uint64_t size = 0;
  uint32_t first = 0;
  uint32_t last = 0;

  bool overlapsInTime(const ArenaBuffer &other) const {
    return first <= other.last && other.first <= last;
  }
};

/// One offset for each buffer, a multiple of the alignment, and the number of
/// bytes that the arena must have.
struct ArenaPlan {
  std::vector<uint64_t> offsets;
  uint64_t size = 0;
};

/// `size` rounded up to a multiple of `alignment`, a power of two.
constexpr uint64_t alignUp(uint64_t size, uint64_t alignment) {
  return (size + alignment - 1) & ~(alignment - 1);
}

/// The largest number of bytes alive at one step, sizes rounded up to
/// `alignment`. No plan is smaller.
uint64_t getPeakLiveBytes(const std::vector<ArenaBuffer> &buffers,
                          uint64_t alignment);

/// Packs the buffers. Buffers are placed one after the other, each into the
/// smallest gap that fits between those placed before; the best of several
/// orders is kept. The result depends on nothing but the arguments.
ArenaPlan packArena(const std::vector<ArenaBuffer> &buffers,
                    uint64_t alignment);

} // namespace nsa

#endif // NSA_PASSES_ANALYSIS_ARENAPACKER_H
