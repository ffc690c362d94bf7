//===- TensorCopies.cpp - TMA tiles to shared memory ----------------------===//
//
// cp.async.bulk.tensor by the rules of the PTX ISA ("Tensors"): a box lies
// densely in shared memory, zeros where it is outside of the tensor, and a
// swizzle exchanges bits of each address. What a copy writes is there when the
// phase of its mbarrier ends.
//
//===----------------------------------------------------------------------===//

#include "test/unit/Emulator/Access.h"
#include "test/unit/Emulator/Handlers.h"

#include <cstring>

using namespace nsa::emulator;

namespace {

/// What is copied at once.
constexpr unsigned kChunk = 16;

/// One lane's copy of a box.
class BoxCopy {
public:
  BoxCopy(Warp &warp, const Instruction &i, unsigned lane)
      : warp(warp), i(i), lane(lane), access(warp, i, lane) {}

  void run();

private:
  bool findMap();
  bool checkTarget();
  bool gather();
  bool gatherRow(const std::vector<int64_t> &at, char *row);
  void scatter(Mbarrier &barrier);

  Warp &warp;
  const Instruction &i;
  unsigned lane;
  Access access;
  const TensorMap *map = nullptr;
  uint64_t target = 0;
  std::vector<char> box;
};

bool BoxCopy::findMap() {
  const Block &block = warp.block;
  uint64_t offset = warp.wide(i.b)[lane] - kTensorMapBase;
  uint64_t number = offset / kTensorMapBytes;
  if (offset % kTensorMapBytes != 0 || number >= block.code.maps.size()) {
    access.fail("copies by something that is no tensor map");
    return false;
  }
  map = &block.code.maps[number];
  if (map->box.size() != i.count) {
    access.fail("gives " + std::to_string(i.count) + " coordinates of " +
                std::to_string(map->box.size()));
    return false;
  }
  auto start =
      reinterpret_cast<uintptr_t>(block.global.views[map->argument].data);
  if (start % kChunk != 0) {
    access.fail("argument " + std::to_string(map->argument) +
                " is not aligned to the 16 bytes that its tensor map claims");
    return false;
  }
  uint64_t bytes = map->elementBytes;
  for (int64_t extent : map->box)
    bytes *= uint64_t(extent);
  box.resize(bytes);
  return true;
}

/// A swizzle is a function of the address, so that its pattern of 8 rows may
/// begin before the box.
bool BoxCopy::checkTarget() {
  constexpr uint64_t align = 128;
  target = warp.wide(i.a)[lane];
  if (target % align == 0)
    return true;
  access.fail("copies to byte " + std::to_string(target - kSharedBase) +
              " of shared memory, which is not aligned to " +
              std::to_string(align) + " bytes");
  return false;
}

/// `at`: where the row starts.
bool BoxCopy::gatherRow(const std::vector<int64_t> &at, char *row) {
  uint64_t address = argumentBase(map->argument);
  for (size_t d = 1; d < at.size(); ++d) {
    if (at[d] < 0 || at[d] >= map->extents[d])
      return true;
    address += uint64_t(at[d] * map->strides[d - 1]);
  }
  int64_t first = std::max<int64_t>(at[0], 0);
  int64_t last = std::min(at[0] + map->box[0], map->extents[0]);
  if (first >= last)
    return true;
  auto bytes = unsigned(uint64_t(last - first) * map->elementBytes);
  Place source =
      access.find(false, address + uint64_t(first) * map->elementBytes, bytes,
                  map->elementBytes, false);
  if (!source.data)
    return false;
  uint32_t origin = 0;
  if (!access.isDefined(source, bytes, true, origin)) {
    access.fail("copies an undefined value; " + warp.block.describe(origin));
    return false;
  }
  std::memcpy(row + uint64_t(first - at[0]) * map->elementBytes, source.data,
              bytes);
  return true;
}

bool BoxCopy::gather() {
  std::vector<int64_t> start, at;
  for (unsigned d = 0; d < i.count; ++d)
    start.push_back(int32_t(warp.narrow(i.all[3 + d])[lane]));
  // An H200 says that this is an illegal instruction.
  if (start[0] * int64_t(map->elementBytes) % int64_t(kChunk) != 0) {
    access.fail("copies from column " + std::to_string(start[0]) +
                ", which is at no multiple of 16 bytes");
    return false;
  }
  for (uint64_t offset = 0; offset < box.size(); offset += map->rowBytes()) {
    auto rest = int64_t(offset / map->rowBytes());
    at = start;
    for (size_t d = 1; d < at.size(); ++d) {
      at[d] += rest % map->box[d];
      rest /= map->box[d];
    }
    if (!gatherRow(at, &box[offset]))
      return false;
  }
  return true;
}

void BoxCopy::scatter(Mbarrier &barrier) {
  for (uint64_t offset = 0; offset < box.size(); offset += kChunk) {
    uint64_t address = target + offset;
    if (map->swizzle)
      address ^= address >> 3 & (map->swizzle - kChunk);
    Place place = access.find(true, address, kChunk, kChunk, true);
    if (!place.data)
      return;
    access.markWritten(place, kChunk, Finding::InFlight);
    Mbarrier::Chunk &chunk = barrier.chunks.emplace_back();
    chunk.offset = place.offset;
    std::memcpy(chunk.data, &box[offset], kChunk);
    std::memset(place.data, 0xFF, kChunk);
  }
}

void BoxCopy::run() {
  if (!findMap() || !checkTarget() || !gather())
    return;
  Mbarriers &mbarriers = warp.block.mbarriers;
  Mbarrier *barrier =
      mbarriers.issue(warp, i, lane, warp.wide(i.c)[lane], box.size());
  if (!barrier)
    return;
  scatter(*barrier);
}

} // namespace

Handler nsa::emulator::getCopyTensor() {
  return [](Warp &warp, const Instruction &i, LaneMask mask) {
    static const char *const what[] = {"where a copy goes to",
                                       "a tensor map's address",
                                       "the address of an mbarrier"};
    for (unsigned k = 0; k < 3u + i.count; ++k)
      if (!requireDefined(warp, i, mask, i.all[k],
                          k < 3 ? what[k] : "a coordinate"))
        return;
    forLanes(mask, [&](unsigned lane) {
      if (!warp.block.failed())
        BoxCopy(warp, i, lane).run();
    });
  };
}
