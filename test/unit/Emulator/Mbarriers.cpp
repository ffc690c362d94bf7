//===- Mbarriers.cpp - barriers in shared memory --------------------------===//

#include "test/unit/Emulator/Mbarriers.h"
#include "test/unit/Emulator/Access.h"
#include "test/unit/Emulator/Handlers.h"

#include <cstring>

using namespace nsa::emulator;

static constexpr uint64_t kBytes = 8;
/// The most threads and bytes of a phase.
static constexpr uint32_t kMaxCount = (1 << 20) - 1;

static std::string nameOf(const Mbarrier &barrier) {
  return "the mbarrier at byte " + std::to_string(barrier.offset) +
         " of shared memory";
}

//===----------------------------------------------------------------------===//
// Objects
//===----------------------------------------------------------------------===//

void Mbarriers::reset() {
  objects.clear();
  begin = ~uint64_t(0);
  end = 0;
  progress = false;
}

bool Mbarriers::search(uint64_t offset, uint64_t bytes) const {
  auto next = objects.lower_bound(offset + bytes);
  return next != objects.begin() && std::prev(next)->first + kBytes > offset;
}

void Mbarriers::make(Warp &warp, const Instruction &i, unsigned lane,
                     uint64_t address, uint32_t count) {
  Access access(warp, i, lane);
  Place place = access.locate(true, address, kBytes, kBytes, true);
  if (!place.data)
    return;
  if (overlap(place.offset, kBytes))
    return access.fail("makes an mbarrier at byte " +
                       std::to_string(place.offset) +
                       " of shared memory, where there is one");
  if (count == 0 || count > kMaxCount)
    return access.fail("makes an mbarrier for " + std::to_string(count) +
                       " threads");
  access.markWritten(place, kBytes);
  Mbarrier &barrier = objects[place.offset];
  barrier.offset = place.offset;
  barrier.count = barrier.pending = count;
  begin = std::min(begin, place.offset);
  end = std::max(end, place.offset + kBytes);
}

Mbarrier *Mbarriers::get(Warp &warp, const Instruction &i, unsigned lane,
                         uint64_t address) {
  Access access(warp, i, lane);
  Place place = access.locate(true, address, kBytes, kBytes, true);
  if (!place.data)
    return nullptr;
  auto known = objects.find(place.offset);
  if (known == objects.end()) {
    access.fail("there is no mbarrier at byte " + std::to_string(place.offset) +
                " of shared memory");
    return nullptr;
  }
  Mbarrier &barrier = known->second;
  return &barrier;
}

//===----------------------------------------------------------------------===//
// Phases
//===----------------------------------------------------------------------===//

void Mbarriers::complete(Block &block, Mbarrier &barrier) {
  unsigned granule = block.code.sharedGranule;
  for (const Mbarrier::Chunk &chunk : barrier.chunks) {
    std::memcpy(&block.shared[chunk.offset], chunk.data, chunk.bytes);
    for (uint64_t cell = chunk.offset / granule;
         cell <= (chunk.offset + chunk.bytes - 1) / granule; ++cell)
      block.cells[cell].content = Finding::None;
  }
  barrier.chunks.clear();
  ++barrier.phase;
  barrier.pending = barrier.count;
  barrier.expected = barrier.issued = 0;
  progress = true;
}

void Mbarriers::completeIfDone(Block &block, Mbarrier &barrier) {
  if (barrier.pending == 0 && barrier.expected == 0 && barrier.issued == 0)
    complete(block, barrier);
}

bool Mbarriers::land(Block &block) {
  for (auto &[offset, barrier] : objects)
    if (barrier.pending == 0 && barrier.issued == barrier.expected)
      complete(block, barrier);
  return takeProgress();
}

LaneMask &Mbarriers::lanesOf(std::vector<Use> &uses, Mbarrier *barrier) {
  for (Use &use : uses)
    if (use.barrier == barrier)
      return use.lanes;
  return uses.emplace_back(Use{barrier, 0}).lanes;
}

void Mbarriers::arrive(Warp &warp, const Instruction &i, LaneMask mask) {
  std::vector<Use> uses;
  const uint64_t *address = warp.wide(i.a);
  forLanes(mask, [&](unsigned lane) {
    if (warp.block.failed())
      return;
    Mbarrier *barrier = get(warp, i, lane, address[lane]);
    if (!barrier)
      return;
    lanesOf(uses, barrier) |= LaneMask(1) << lane;
    if (i.immediate)
      std::erase_if(warp.copies, [&](const Warp::Copy &copy) {
        if (copy.lane != lane)
          return false;
        Mbarrier::Chunk &chunk = barrier->chunks.emplace_back();
        chunk.offset = copy.offset;
        chunk.bytes = copy.bytes;
        std::memcpy(chunk.data, copy.data, copy.bytes);
        return true;
      });
    uint32_t bytes = i.count ? warp.narrow(i.b)[lane] : 0;
    barrier->expected += bytes;
    if (bytes > kMaxCount || barrier->expected > kMaxCount)
      warp.block.fail(warp, i, int(lane),
                      nameOf(*barrier) + " cannot expect " +
                          std::to_string(barrier->expected) + " bytes");
  });
  for (const Use &use : uses)
    if (!warp.block.failed())
      arrive(warp, i, use);
}

void Mbarriers::arrive(Warp &warp, const Instruction &i, const Use &use) {
  Block &block = warp.block;
  Mbarrier &barrier = *use.barrier;
  auto count = uint32_t(std::popcount(use.lanes));
  auto first = unsigned(std::countr_zero(use.lanes));
  if (count > barrier.pending)
    return block.fail(warp, i, int(first),
                      std::to_string(count) + " threads arrive at " +
                          nameOf(barrier) + ", which waits for " +
                          std::to_string(barrier.pending) + " in this phase");
  barrier.pending -= count;
  completeIfDone(block, barrier);
}

LaneMask Mbarriers::poll(Warp &warp, const Instruction &i, LaneMask mask) {
  if (!requireDefined(warp, i, mask, i.a, "the address of an mbarrier") ||
      !requireDefined(warp, i, mask, i.b, "the parity of a phase"))
    return 0;
  LaneMask ready = 0;
  forLanes(mask, [&](unsigned lane) {
    if (warp.block.failed())
      return;
    Mbarrier *barrier = get(warp, i, lane, warp.wide(i.a)[lane]);
    uint32_t parity = warp.narrow(i.b)[lane];
    if (parity > 1)
      warp.block.fail(warp, i, int(lane),
                      "there is no parity " + std::to_string(parity));
    else if (barrier && barrier->hasPassed(parity))
      ready |= LaneMask(1) << lane;
  });
  if (warp.block.failed())
    return 0;
  return ready;
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

Mbarrier *Mbarriers::issue(Warp &warp, const Instruction &i, unsigned lane,
                           uint64_t address, uint64_t bytes) {
  Mbarrier *barrier = get(warp, i, lane, address);
  if (barrier)
    barrier->issued += bytes;
  return barrier;
}

//===----------------------------------------------------------------------===//
// Handlers
//===----------------------------------------------------------------------===//

Handler nsa::emulator::getMakeMbarrier() {
  return [](Warp &warp, const Instruction &i, LaneMask mask) {
    if (!requireDefined(warp, i, mask, i.a, "the address of an mbarrier") ||
        !requireDefined(warp, i, mask, i.b, "how many threads arrive"))
      return;
    forLanes(mask, [&](unsigned lane) {
      if (!warp.block.failed())
        warp.block.mbarriers.make(warp, i, lane, warp.wide(i.a)[lane],
                                  warp.narrow(i.b)[lane]);
    });
  };
}

Handler nsa::emulator::getArrive() {
  return [](Warp &warp, const Instruction &i, LaneMask mask) {
    if (!requireDefined(warp, i, mask, i.a, "the address of an mbarrier") ||
        (i.count &&
         !requireDefined(warp, i, mask, i.b, "how many bytes are expected")))
      return;
    warp.block.mbarriers.arrive(warp, i, mask);
  };
}
