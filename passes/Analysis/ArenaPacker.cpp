//===- ArenaPacker.cpp - offsets of buffers in one arena ------------------===//

#include "passes/Analysis/ArenaPacker.h"

#include <algorithm>
#include <functional>
#include <numeric>

using namespace nsa;

uint64_t nsa::getPeakLiveBytes(const std::vector<ArenaBuffer> &buffers,
                               uint64_t alignment) {
  uint32_t steps = 0;
  for (const ArenaBuffer &buffer : buffers)
    steps = std::max(steps, buffer.last + 1);
  // Bytes that come to life at a step, and those that are gone at it.
  std::vector<uint64_t> born(steps + 1), dead(steps + 1);
  for (const ArenaBuffer &buffer : buffers) {
    uint64_t size = alignUp(buffer.size, alignment);
    born[buffer.first] += size;
    dead[buffer.last + 1] += size;
  }
  uint64_t live = 0, peak = 0;
  for (uint32_t step = 0; step < steps; ++step) {
    live = live - dead[step] + born[step];
    peak = std::max(peak, live);
  }
  return peak;
}

namespace {
/// Places buffers in a given order. Keeps those placed sorted by offset.
class Packer {
public:
  Packer(const std::vector<ArenaBuffer> &buffers, uint64_t alignment)
      : buffers(buffers), alignment(alignment) {
    plan.offsets.resize(buffers.size());
  }

  ArenaPlan pack(const std::vector<uint32_t> &order) {
    for (uint32_t index : order)
      place(index);
    return std::move(plan);
  }

private:
  uint64_t sizeOf(uint32_t index) const {
    return alignUp(buffers[index].size, alignment);
  }

  /// The smallest gap between buffers alive together with this one, or the
  /// end of the last of them.
  uint64_t findOffset(uint32_t index) const {
    uint64_t size = sizeOf(index);
    uint64_t end = 0, best = 0, bestGap = UINT64_MAX;
    for (uint32_t other : placed) {
      if (!buffers[index].overlapsInTime(buffers[other]))
        continue;
      uint64_t begin = plan.offsets[other];
      if (begin >= end + size && begin - end < bestGap) {
        best = end;
        bestGap = begin - end;
      }
      end = std::max(end, begin + sizeOf(other));
    }
    return bestGap == UINT64_MAX ? end : best;
  }

  void place(uint32_t index) {
    if (buffers[index].size == 0)
      return;
    uint64_t offset = findOffset(index);
    plan.offsets[index] = offset;
    plan.size = std::max(plan.size, offset + sizeOf(index));
    auto position = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [&](uint64_t at, uint32_t other) { return at < plan.offsets[other]; });
    placed.insert(position, index);
  }

  const std::vector<ArenaBuffer> &buffers;
  uint64_t alignment;
  ArenaPlan plan;
  std::vector<uint32_t> placed;
};
} // namespace

ArenaPlan nsa::packArena(const std::vector<ArenaBuffer> &buffers,
                         uint64_t alignment) {
  auto lifetime = [&](uint32_t i) {
    return uint64_t(buffers[i].last - buffers[i].first) + 1;
  };
  using Key = std::function<double(uint32_t)>;
  const Key keys[] = {
      [&](uint32_t i) { return double(buffers[i].size); },
      [&](uint32_t i) { return double(buffers[i].size) * lifetime(i); },
      [&](uint32_t i) { return double(lifetime(i)); },
      [&](uint32_t i) { return -double(buffers[i].first); },
  };
  uint64_t bound = getPeakLiveBytes(buffers, alignment);
  ArenaPlan best;
  best.size = UINT64_MAX;
  for (const Key &key : keys) {
    std::vector<uint32_t> order(buffers.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      double ka = key(a), kb = key(b);
      return ka != kb ? ka > kb : buffers[a].size > buffers[b].size;
    });
    ArenaPlan plan = Packer(buffers, alignment).pack(order);
    if (plan.size < best.size)
      best = std::move(plan);
    if (best.size == bound)
      break;
  }
  return best;
}
