//===- Access.cpp - loads, stores and copies ------------------------------===//

#include "test/unit/Emulator/Access.h"
#include "test/unit/Emulator/Handlers.h"

#include <cstring>

using namespace nsa::emulator;

namespace {

std::string describe(Finding finding, bool shared) {
  if (finding == Finding::InFlight)
    return "a copy to here has not been waited for, of thread ";
  std::string verb = finding == Finding::OtherWrote ? " wrote" : " read";
  return shared ? "another thread" + verb +
                      " this without a barrier between: thread "
                : "another block" + verb + " this: block ";
}

std::string place(int argument, uint64_t offset) {
  return argument < 0 ? "byte " + std::to_string(offset) + " of shared memory"
                      : "byte " + std::to_string(offset) + " of argument " +
                            std::to_string(argument);
}

} // namespace

//===----------------------------------------------------------------------===//
// One access
//===----------------------------------------------------------------------===//

Place Access::find(bool shared, uint64_t address, unsigned bytes,
                   uint64_t align, bool writes) {
  Place place = locate(shared, address, bytes, align, writes);
  if (!shared || !place.data || !block.mbarriers.overlap(place.offset, bytes))
    return place;
  fail((writes ? "writes " : "reads ") + ::place(-1, place.offset) +
       ", where an mbarrier is");
  return {};
}

Place Access::locate(bool shared, uint64_t address, unsigned bytes,
                     uint64_t align, bool writes) {
  Place place;
  uint64_t size;
  char *data;
  if (shared) {
    place.offset = address - kSharedBase;
    size = block.shared.size();
    data = block.shared.data();
  } else {
    uint64_t number = address >> kArgumentShift;
    if (number == 0 || number > block.global.views.size()) {
      fail("the address is not that of an argument: " +
           std::to_string(address));
      return {};
    }
    place.argument = int(number) - 1;
    const GlobalMemory::View &view = block.global.views[number - 1];
    place.offset = address - argumentBase(unsigned(number - 1));
    size = view.bytes;
    data = view.data;
    if (writes && !view.isOutput) {
      fail("writes argument " + std::to_string(number - 1) +
           ", which is not an output");
      return {};
    }
  }
  if (place.offset > size || size - place.offset < bytes) {
    auto at = int64_t(place.offset);
    fail((writes ? "writes " : "reads ") + std::to_string(bytes) +
         " bytes at byte " + std::to_string(at) + " of " +
         (shared ? "shared memory"
                 : "argument " + std::to_string(place.argument)) +
         ", which has " + std::to_string(size));
    return {};
  }
  uint64_t real =
      shared ? address : reinterpret_cast<uintptr_t>(data) + place.offset;
  if (real % align != 0) {
    fail("an access of " + std::to_string(bytes) + " bytes at " +
         ::place(place.argument, place.offset) + " is not aligned to the " +
         std::to_string(align) + " bytes that it claims");
    return {};
  }
  place.data = data + place.offset;
  return place;
}

bool Access::isDefined(const Place &place, unsigned bytes, bool matters,
                       uint32_t &origin) {
  Finding found = Finding::None;
  int32_t other = 0;
  if (place.argument < 0) {
    unsigned granule = block.code.sharedGranule;
    for (uint64_t index = place.offset / granule;
         index <= (place.offset + bytes - 1) / granule; ++index) {
      Cell &cell = block.cells[index];
      Finding one = cell.content;
      if (one == Finding::None && matters)
        one = cell.usersBehind(block.barriers).read(int32_t(warp.thread(lane)));
      if (found == Finding::None) {
        found = one;
        other = int32_t(cell.thread);
      }
    }
  } else {
    const GlobalMemory::View &view = block.global.views[place.argument];
    if (!view.cells)
      return true;
    unsigned granule = block.global.granule;
    uint64_t first = (place.offset + view.skipped) / granule,
             last = (place.offset + view.skipped + bytes - 1) / granule;
    for (uint64_t index = first; index <= last; ++index) {
      GlobalCell &cell = view.cells[index];
      Users users = cell.users;
      Finding one = (matters ? cell.users : users).read(block.number);
      if (users.writer == Users::nobody && !cell.defined)
        one = Finding::Unwritten;
      if (found == Finding::None) {
        found = one;
        other = users.writer;
      }
    }
  }
  if (found == Finding::None)
    return true;
  // The first one is enough for a message.
  if (matters && !origin)
    origin = block.note({&i, warp.thread(lane), block.number, found, other,
                         place.argument, place.offset});
  return false;
}

void Access::write(const Place &place, Users &users, int32_t who) {
  Users before = users;
  Finding found = users.write(who);
  if (found != Finding::None)
    fail("writes " + ::place(place.argument, place.offset) + "; " +
         describe(found, place.argument < 0) +
         std::to_string(found == Finding::OtherWrote ? before.writer
                                                     : before.reader));
}

void Access::markWritten(const Place &place, unsigned bytes, Finding content) {
  if (place.argument < 0) {
    unsigned granule = block.code.sharedGranule;
    for (uint64_t index = place.offset / granule;
         index <= (place.offset + bytes - 1) / granule; ++index) {
      Cell &cell = block.cells[index];
      cell.content = content;
      cell.thread = warp.thread(lane);
      if (content != Finding::InFlight)
        write(place, cell.usersBehind(block.barriers), int32_t(cell.thread));
    }
    return;
  }
  const GlobalMemory::View &view = block.global.views[place.argument];
  unsigned granule = block.global.granule;
  uint64_t first = (place.offset + view.skipped) / granule,
           last = (place.offset + view.skipped + bytes - 1) / granule;
  for (uint64_t index = first; index <= last; ++index)
    write(place, view.cells[index].users, block.number);
}

bool nsa::emulator::requireDefined(Warp &warp, const Instruction &i,
                                   LaneMask mask, uint32_t reg,
                                   const char *what) {
  LaneMask bad = warp.undefined(reg) & mask;
  if (!bad)
    return true;
  warp.block.fail(warp, i, std::countr_zero(bad),
                  std::string(what) + " is undefined; " +
                      warp.block.describe(warp.origin(reg)));
  return false;
}

namespace {

/// One lane's components, `Bytes` bytes each.
template <unsigned Bytes>
void loadLane(Warp &warp, const Instruction &i, unsigned lane,
              const char *data) {
  for (unsigned k = 0; k < i.count; ++k) {
    if constexpr (Bytes == 8) {
      std::memcpy(&warp.wide(i.all[k])[lane], data + k * Bytes, Bytes);
    } else {
      uint32_t word = 0;
      std::memcpy(&word, data + k * Bytes, Bytes);
      warp.narrow(i.all[k])[lane] = word;
    }
  }
}

template <bool Shared, unsigned Bytes>
void load(Warp &warp, const Instruction &i, LaneMask mask) {
  unsigned count = i.count;
  uint32_t addressReg = i.all[count];
  if (!requireDefined(warp, i, mask, addressReg, "the address of a load"))
    return;
  const uint64_t *address = warp.wide(addressReg);
  const uint32_t *matters =
      i.immediate & 1 ? warp.narrow(i.all[count + 1]) : nullptr;
  auto align = uint64_t(i.immediate) >> 1;
  LaneMask bad = 0;
  uint32_t origin = 0;
  // Often all lanes read the same. Two of them are enough for the checks.
  uint64_t last = ~uint64_t(0);
  unsigned repeated = 0;
  Place place;
  forLanes(mask, [&](unsigned lane) {
    if (warp.block.failed())
      return;
    repeated = address[lane] == last && !matters ? repeated + 1 : 0;
    if (repeated < 2 || bad) {
      Access access(warp, i, lane);
      place = access.find(Shared, address[lane], Bytes * count, align, false);
      if (!place.data)
        return;
      if (!access.isDefined(place, Bytes * count, !matters || matters[lane],
                            origin))
        bad |= LaneMask(1) << lane;
      last = address[lane];
    }
    loadLane<Bytes>(warp, i, lane, place.data);
  });
  for (unsigned k = 0; k < count; ++k)
    warp.define(i.all[k], mask, bad, origin);
}

template <bool Shared>
Handler getLoadOf(unsigned bytes) {
  switch (bytes) {
  case 1:
    return load<Shared, 1>;
  case 2:
    return load<Shared, 2>;
  case 4:
    return load<Shared, 4>;
  default:
    return load<Shared, 8>;
  }
}

template <bool Shared>
void store(Warp &warp, const Instruction &i, LaneMask mask) {
  unsigned count = i.count, bytes = i.bytes;
  uint32_t addressReg = i.all[count];
  if (!requireDefined(warp, i, mask, addressReg, "the address of a store"))
    return;
  LaneMask bad = 0;
  for (unsigned k = 0; k < count; ++k) {
    if (!Shared &&
        !requireDefined(warp, i, mask, i.all[k], "a value that is stored"))
      return;
    bad |= warp.undefined(i.all[k]);
  }
  const uint64_t *address = warp.wide(addressReg);
  auto align = uint64_t(i.immediate) >> 1;
  forLanes(mask, [&](unsigned lane) {
    if (warp.block.failed())
      return;
    Access access(warp, i, lane);
    Place place =
        access.find(Shared, address[lane], bytes * count, align, true);
    if (!place.data)
      return;
    access.markWritten(place, bytes * count,
                       bad >> lane & 1 ? Finding::Poison : Finding::None);
    for (unsigned k = 0; k < count; ++k) {
      if (bytes == 8)
        std::memcpy(place.data + 8 * k, &warp.wide(i.all[k])[lane], 8);
      else
        std::memcpy(place.data + bytes * k, &warp.narrow(i.all[k])[lane],
                    bytes);
    }
  });
}

//===----------------------------------------------------------------------===//
// cp.async
//===----------------------------------------------------------------------===//

void copyAsync(Warp &warp, const Instruction &i, LaneMask mask) {
  if (!requireDefined(warp, i, mask, i.a, "where a copy goes to") ||
      !requireDefined(warp, i, mask, i.b, "where a copy comes from") ||
      (i.count && !requireDefined(warp, i, mask, i.c, "the size of a copy")))
    return;
  const uint64_t *to = warp.wide(i.a), *from = warp.wide(i.b);
  forLanes(mask, [&](unsigned lane) {
    if (warp.block.failed())
      return;
    Access access(warp, i, lane);
    Warp::Copy copy = {lane, warp.group[lane], i.bytes, 0, {}};
    unsigned read = i.count ? warp.narrow(i.c)[lane] : i.bytes;
    if (read > i.bytes)
      return access.fail("copies " + std::to_string(read) + " bytes of " +
                         std::to_string(i.bytes));
    Place target = access.find(true, to[lane], i.bytes, i.bytes, true);
    if (!target.data)
      return;
    copy.offset = target.offset;
    if (read > 0) {
      Place source = access.find(false, from[lane], read, i.bytes, false);
      if (!source.data)
        return;
      uint32_t origin = 0;
      if (!access.isDefined(source, read, true, origin))
        return access.fail("copies an undefined value; " +
                           warp.block.describe(origin));
      std::memcpy(copy.data, source.data, read);
    }
    access.markWritten(target, i.bytes, Finding::InFlight);
    // What others find there until then must not be right by chance.
    std::memset(target.data, 0xFF, i.bytes);
    warp.copies.push_back(copy);
  });
}

void commitGroup(Warp &warp, const Instruction &, LaneMask mask) {
  forLanes(mask, [&](unsigned lane) { ++warp.group[lane]; });
}

void waitGroup(Warp &warp, const Instruction &i, LaneMask mask) {
  Block &block = warp.block;
  size_t kept = 0;
  for (const Warp::Copy &copy : warp.copies) {
    if (!(mask >> copy.lane & 1) ||
        int64_t(copy.group) >= int64_t(warp.group[copy.lane]) - i.immediate) {
      warp.copies[kept++] = copy;
      continue;
    }
    std::memcpy(block.shared.data() + copy.offset, copy.data, copy.bytes);
    unsigned granule = block.code.sharedGranule;
    for (uint64_t cell = copy.offset / granule;
         cell <= (copy.offset + copy.bytes - 1) / granule; ++cell)
      block.cells[cell].content = Finding::None;
  }
  warp.copies.resize(kept);
}

//===----------------------------------------------------------------------===//
// Matrices of 8 x 8 in shared memory
//===----------------------------------------------------------------------===//

/// The row that `lane` gives the address of; null after a failure.
Place matrixRow(Warp &warp, const Instruction &i, unsigned lane,
                uint64_t address, bool writes) {
  return Access(warp, i, lane).find(true, address, 16, 16, writes);
}

void loadMatrix(Warp &warp, const Instruction &i, LaneMask mask) {
  unsigned count = i.count;
  LaneMask used = count == 4 ? kAllLanes : (LaneMask(1) << 8 * count) - 1;
  uint32_t addressReg = i.all[count];
  if (!requireDefined(warp, i, used, addressReg, "the address of a row"))
    return;
  const uint64_t *address = warp.wide(addressReg);
  uint16_t rows[32][8];
  bool bad[32][8] = {};
  uint32_t origin = 0;
  for (unsigned row = 0; row < 8 * count; ++row) {
    Place place = matrixRow(warp, i, row, address[row], false);
    if (!place.data)
      return;
    std::memcpy(rows[row], place.data, 16);
    Access access(warp, i, row);
    if (access.isDefined(place, 16, true, origin))
      continue;
    for (unsigned k = 0; k < 8; ++k) {
      Place one = place;
      one.offset += 2 * k;
      bad[row][k] = !access.isDefined(one, 2, false, origin);
    }
  }
  for (unsigned m = 0; m < count; ++m) {
    uint32_t *result = warp.narrow(i.all[m]);
    LaneMask undefined = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      unsigned g = lane / 4, t = lane % 4 * 2;
      bool transposed = i.immediate != 0;
      unsigned row0 = 8 * m + (transposed ? t : g), col0 = transposed ? g : t;
      unsigned row1 = row0 + transposed, col1 = col0 + !transposed;
      result[lane] = rows[row0][col0] | uint32_t(rows[row1][col1]) << 16;
      undefined |= LaneMask(bad[row0][col0] || bad[row1][col1]) << lane;
    }
    warp.define(i.all[m], mask, undefined, origin);
  }
}

} // namespace

Handler nsa::emulator::getLoad(bool shared, unsigned bytes) {
  return shared ? getLoadOf<true>(bytes) : getLoadOf<false>(bytes);
}
Handler nsa::emulator::getStore(bool shared) {
  return shared ? store<true> : store<false>;
}
Handler nsa::emulator::getCopyAsync() { return copyAsync; }
Handler nsa::emulator::getCommitGroup() { return commitGroup; }
Handler nsa::emulator::getWaitGroup() { return waitGroup; }
Handler nsa::emulator::getLoadMatrix() { return loadMatrix; }

//===----------------------------------------------------------------------===//
// Bad reads
//===----------------------------------------------------------------------===//

uint32_t Block::note(const BadRead &read) {
  // Enough for a message; a kernel may read its padding without end.
  if (badReads.size() == 65536)
    badReads.clear();
  badReads.push_back(read);
  return uint32_t(badReads.size());
}

std::string Block::describe(uint32_t origin) const {
  if (origin == 0 || origin > badReads.size())
    return "it was never given a value";
  const BadRead &read = badReads[origin - 1];
  std::string text = "thread " + std::to_string(read.thread) + " of block " +
                     std::to_string(read.block) + " read " +
                     ::place(read.argument, read.offset) + " in '" +
                     describe(*read.instruction) + "'; ";
  switch (read.finding) {
  case Finding::Unwritten:
    return text + "nobody has written this";
  case Finding::Poison:
    return text + "an undefined value was stored here by thread " +
           std::to_string(read.other);
  default:
    return text + ::describe(read.finding, read.argument < 0) +
           std::to_string(read.other);
  }
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

GlobalMemory::GlobalMemory(const std::vector<Argument> &arguments,
                           unsigned granule)
    : granule(granule) {
  struct Range {
    uintptr_t begin, end;
  };
  auto rangeOf = [&](const Argument &argument) {
    auto begin = reinterpret_cast<uintptr_t>(argument.data);
    return Range{begin / granule * granule, begin + argument.bytes};
  };
  // The outputs, and what overlaps them, in disjoint regions.
  std::vector<Range> merged;
  for (const Argument &argument : arguments)
    if (argument.isOutput && argument.bytes > 0)
      merged.push_back(rangeOf(argument));
  for (bool changed = true; changed;) {
    changed = false;
    for (const Argument &argument : arguments)
      for (Range &range : merged) {
        Range other = rangeOf(argument);
        if (other.begin >= range.end || range.begin >= other.end ||
            (other.begin >= range.begin && other.end <= range.end))
          continue;
        range = {std::min(range.begin, other.begin),
                 std::max(range.end, other.end)};
        changed = true;
      }
  }
  std::vector<Range> disjoint;
  for (const Range &range : merged) {
    bool known = false;
    for (const Range &other : disjoint)
      known |= other.begin <= range.begin && range.end <= other.end;
    if (!known)
      disjoint.push_back(range);
  }
  for (const Range &range : disjoint)
    regions.emplace_back((range.end - range.begin + granule - 1) / granule);
  for (const Argument &argument : arguments) {
    View &view = views.emplace_back(
        View{argument.data, argument.bytes, argument.isOutput, nullptr, 0});
    Range own = rangeOf(argument);
    for (size_t r = 0; r < disjoint.size(); ++r) {
      if (argument.bytes == 0 || own.begin < disjoint[r].begin ||
          own.end > disjoint[r].end)
        continue;
      view.cells =
          regions[r].data() + (own.begin - disjoint[r].begin) / granule;
      view.skipped =
          unsigned(reinterpret_cast<uintptr_t>(argument.data) - own.begin);
      if (argument.isInput)
        for (uint64_t k = 0; k < (own.end - own.begin + granule - 1) / granule;
             ++k)
          view.cells[k].defined = true;
    }
  }
}
