//===- Collectives.cpp - what the lanes of a warp do together -------------===//

#include "test/unit/Emulator/Handlers.h"
#include "test/unit/Emulator/Machine.h"
#include "test/unit/Emulator/TensorCores.h"

#include <algorithm>
#include <cstring>

using namespace nsa::emulator;

namespace {

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

void shuffle(Warp &warp, const Instruction &i, LaneMask mask) {
  uint32_t value[kLanes], result[kLanes];
  std::memcpy(value, warp.narrow(i.b), sizeof value);
  const uint32_t *offset = warp.narrow(i.c), *clamps = warp.narrow(i.all[4]);
  LaneMask from = warp.undefined(i.b), bad = 0;
  uint32_t origin = warp.origin(i.b);
  forLanes(mask, [&](unsigned lane) {
    unsigned segment = clamps[lane] >> 8 & 31, clamp = clamps[lane] & 31;
    unsigned last = (lane & segment) | (clamp & ~segment & 31);
    unsigned first = lane & segment, by = offset[lane] & 31;
    unsigned source =
        i.immediate == Butterfly ? lane ^ by : first | (by & ~segment & 31);
    source = source <= last ? source : lane;
    result[lane] = value[source];
    if (!(mask >> source & 1) || from >> source & 1)
      bad |= LaneMask(1) << lane;
  });
  uint32_t *target = warp.narrow(i.result);
  forLanes(mask, [&](unsigned lane) { target[lane] = result[lane]; });
  warp.define(i.result, mask, bad | warp.undefined(i.c), origin);
}

void vote(Warp &warp, const Instruction &i, LaneMask mask) {
  const uint32_t *predicate = warp.narrow(i.b);
  LaneMask yes = 0;
  forLanes(mask, [&](unsigned lane) {
    yes |= LaneMask(predicate[lane] != 0) << lane;
  });
  uint32_t value = 0;
  switch (VoteKind(i.immediate)) {
  case Any:
    value = yes != 0;
    break;
  case All:
    value = yes == mask;
    break;
  case Ballot:
    value = yes;
    break;
  }
  LaneMask bad = warp.undefined(i.b) & mask;
  uint32_t *result = warp.narrow(i.result), origin = warp.origin(i.b);
  forLanes(mask, [&](unsigned lane) { result[lane] = value; });
  warp.define(i.result, mask, bad ? mask : 0, origin);
}

void warpSync(Warp &, const Instruction &, LaneMask) {}

//===----------------------------------------------------------------------===//
// mma.sync m16n8k8 and m16n8k16
//===----------------------------------------------------------------------===//
//
// Lane L has g = L / 4 and t = L % 4. Register r of A holds row
// g + 8 * (r % 2), columns 2 * t + 8 * (r / 2) and the next; register r of B
// rows 2 * t + 8 * r and the next, column g; registers 2 * h and 2 * h + 1 of
// C and D row g + 8 * h, columns 2 * t and the next.

/// Elements of A, B and C and which of them are undefined.
struct Fragments {
  float a[16][16], b[16][8], c[16][8];
  bool badRow[16] = {}, badColumn[8] = {}, badC[16][8] = {};
};

void readFragments(Warp &warp, const Instruction &i, Fragments &f) {
  unsigned half = unsigned(i.immediate) / 8;
  const uint32_t *a = i.all + 4, *b = a + 2 * half, *c = b + half;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    unsigned g = lane / 4, t = lane % 4 * 2;
    for (unsigned r = 0; r < 2 * half; ++r) {
      uint32_t word = warp.narrow(a[r])[lane];
      unsigned row = g + 8 * (r % 2), column = t + 8 * (r / 2);
      f.a[row][column] = widen(word, i.bytes);
      f.a[row][column + 1] = widen(word >> 16, i.bytes);
      f.badRow[row] |= warp.undefined(a[r]) >> lane & 1;
    }
    for (unsigned r = 0; r < half; ++r) {
      uint32_t word = warp.narrow(b[r])[lane];
      f.b[t + 8 * r][g] = widen(word, i.bytes);
      f.b[t + 8 * r + 1][g] = widen(word >> 16, i.bytes);
      f.badColumn[g] |= warp.undefined(b[r]) >> lane & 1;
    }
    for (unsigned r = 0; r < 4; ++r) {
      unsigned row = g + 8 * (r / 2), column = t + r % 2;
      std::memcpy(&f.c[row][column], &warp.narrow(c[r])[lane], 4);
      f.badC[row][column] = warp.undefined(c[r]) >> lane & 1;
    }
  }
}

void multiply(Warp &warp, const Instruction &i, LaneMask mask) {
  Fragments f;
  readFragments(warp, i, f);
  auto depth = unsigned(i.immediate);
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned column = 0; column < 8; ++column) {
      double sum = f.c[row][column];
      for (unsigned k = 0; k < depth; ++k)
        sum += double(f.a[row][k]) * f.b[k][column];
      f.c[row][column] = cutToFloat(sum);
    }
  uint32_t origin = 0;
  for (unsigned r = 4; r < 8 + 3 * depth / 8 && !origin; ++r)
    if (warp.undefined(i.all[r]))
      origin = warp.origin(i.all[r]);
  for (unsigned r = 0; r < 4; ++r) {
    uint32_t *result = warp.narrow(i.all[r]);
    LaneMask bad = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      unsigned row = lane / 4 + 8 * (r / 2), column = lane % 4 * 2 + r % 2;
      std::memcpy(&result[lane], &f.c[row][column], 4);
      bad |=
          LaneMask(f.badRow[row] || f.badColumn[column] || f.badC[row][column])
          << lane;
    }
    warp.define(i.all[r], mask, bad, origin);
  }
}

//===----------------------------------------------------------------------===//
// Numbers of threads and blocks
//===----------------------------------------------------------------------===//

template <typename Value>
void fill(Warp &warp, const Instruction &i, LaneMask mask, const Value &value) {
  uint32_t *result = warp.narrow(i.result);
  forLanes(mask, [&](unsigned lane) { result[lane] = value(lane); });
  warp.define(i.result, mask, 0, 0);
}

uint32_t along(Dim3 numbers, int64_t axis) {
  return axis == 0 ? numbers.x : axis == 1 ? numbers.y : numbers.z;
}

} // namespace

Handler nsa::emulator::getShuffle() { return shuffle; }
Handler nsa::emulator::getVote() { return vote; }
Handler nsa::emulator::getWarpSync() { return warpSync; }
Handler nsa::emulator::getMultiply() { return multiply; }

Handler nsa::emulator::getThreadId() {
  return [](Warp &warp, const Instruction &i, LaneMask mask) {
    fill(warp, i, mask, [&](unsigned lane) {
      return i.immediate == 0 ? warp.thread(lane) : 0;
    });
  };
}

Handler nsa::emulator::getBlockId() {
  return [](Warp &warp, const Instruction &i, LaneMask mask) {
    fill(warp, i, mask,
         [&](unsigned) { return along(warp.block.index, i.immediate); });
  };
}

Handler nsa::emulator::getUndefined() {
  return [](Warp &warp, const Instruction &i, LaneMask mask) {
    warp.define(i.result, mask, mask, 0);
  };
}
