//===- Warpgroups.cpp - wgmma of four warps -------------------------------===//
//
// wgmma.mma_async by the rules of the PTX ISA alone ("Asynchronous warpgroup
// level matrix multiply-accumulate"): a descriptor says where a matrix starts
// in shared memory and how far its parts are apart, and a swizzle exchanges
// bits of each address. A wgmma is computed when it is issued; until it has
// been waited for its results are undefined, and what it read must stay the
// same.
//
//===----------------------------------------------------------------------===//

#include "test/unit/Emulator/Access.h"
#include "test/unit/Emulator/Handlers.h"
#include "test/unit/Emulator/TensorCores.h"

#include <array>
#include <cstring>

using namespace nsa::emulator;

namespace {

/// Elements of each sum of one wgmma.
constexpr unsigned kDepth = 16;
constexpr unsigned kWarpsOfGroup = 4;

//===----------------------------------------------------------------------===//
// Matrices in shared memory
//===----------------------------------------------------------------------===//

struct Descriptor {
  explicit Descriptor(uint64_t bits)
      : start((bits & 0x3FFF) << 4), leading((bits >> 16 & 0x3FFF) << 4),
        stride((bits >> 32 & 0x3FFF) << 4), baseOffset(bits >> 49 & 7),
        swizzle(unsigned(bits >> 62)) {}

  /// Bytes of a row of the pattern: of 8 of these rows it consists.
  uint64_t rowBytes() const { return uint64_t(256) >> swizzle; }
  uint64_t swizzled(uint64_t address) const {
    return address ^ ((address >> 3) & (rowBytes() - 16));
  }

  uint64_t start, leading, stride, baseOffset;
  unsigned swizzle;
};

/// Rows of a matrix (of b: columns) with the elements of their sums.
struct Operand {
  explicit Operand(unsigned count) : elements(count * kDepth), bad(count) {}
  float *row(unsigned number) { return &elements[size_t(number) * kDepth]; }

  std::vector<float> elements;
  std::vector<bool> bad;
};

/// What one warp does of a wgmma.
class Product {
public:
  Product(Warp &warp, const Instruction &i)
      : warp(warp), i(i), shape(decodeProduct(i.immediate)) {}

  void run(LaneMask mask);

private:
  bool readDescriptor(uint32_t reg, Descriptor &descriptor);
  bool readMatrix(uint32_t reg, bool across, unsigned first, Operand &operand);
  void readRegisters(const uint32_t *regs, Operand &operand);

  Warp &warp;
  const Instruction &i;
  ProductShape shape;
  std::vector<Warp::InFlight::Read> reads;
  uint32_t origin = 0;
};

bool Product::readDescriptor(uint32_t reg, Descriptor &descriptor) {
  Access access(warp, i, 0);
  const uint64_t *bits = warp.wide(reg);
  if (warp.undefined(reg)) {
    access.fail("a descriptor is undefined; " +
                warp.block.describe(warp.origin(reg)));
    return false;
  }
  for (unsigned lane = 1; lane < kLanes; ++lane)
    if (bits[lane] != bits[0]) {
      Access(warp, i, lane).fail("has another descriptor than lane 0");
      return false;
    }
  descriptor = Descriptor(bits[0]);
  warp.traceProduct(bits[0]);
  if (descriptor.swizzle == 0 || descriptor.baseOffset != 0) {
    access.fail("the emulator does not know descriptors without swizzle or "
                "with a base offset");
    return false;
  }
  return true;
}

/// Reads rows `first` and on. `across`: neighbours in memory are elements of
/// neighbouring rows, else of one sum.
bool Product::readMatrix(uint32_t reg, bool across, unsigned first,
                         Operand &operand) {
  Descriptor descriptor(0);
  if (!readDescriptor(reg, descriptor))
    return false;
  uint64_t rowBytes = descriptor.rowBytes();
  auto count = unsigned(operand.bad.size());
  // Chunks of 8 elements, `along` the rows or the sums.
  auto read = [&](uint64_t offset, unsigned row, unsigned k) {
    Access access(warp, i, (row + k) % kLanes);
    uint64_t address = descriptor.swizzled(descriptor.start + offset);
    Place place = access.find(true, address, 16, 16, false);
    if (!place.data)
      return false;
    Warp::InFlight::Read note{place.offset, {}};
    std::memcpy(note.data, place.data, 16);
    reads.push_back(note);
    bool isDefined = access.isDefined(place, 16, true, origin);
    uint16_t halves[8];
    std::memcpy(halves, place.data, 16);
    for (unsigned e = 0; e < 8; ++e) {
      unsigned r = across ? row + e : row;
      operand.row(r)[across ? k : k + e] = widen(halves[e], shape.isBF16);
      operand.bad[r] = operand.bad[r] || !isDefined;
    }
    return true;
  };
  if (!across) {
    for (unsigned row = 0; row < count; ++row)
      for (unsigned k = 0; k < kDepth; k += 8) {
        unsigned at = first + row;
        if (!read(at / 8 * descriptor.stride + at % 8 * rowBytes + k * 2, row,
                  k))
          return false;
      }
    return true;
  }
  auto perPanel = unsigned(rowBytes / 2);
  for (unsigned k = 0; k < kDepth; ++k)
    for (unsigned row = 0; row < count; row += 8) {
      unsigned at = first + row;
      if (!read(at / perPanel * descriptor.leading + at % perPanel * 2 +
                    k / 8 * descriptor.stride + k % 8 * rowBytes,
                row, k))
        return false;
    }
  return true;
}

/// Lane L has g = L / 4 and t = L % 4; register r holds row g + 8 * (r % 2),
/// elements 2 * t + 8 * (r / 2) and the next.
void Product::readRegisters(const uint32_t *regs, Operand &operand) {
  for (unsigned lane = 0; lane < kLanes; ++lane)
    for (unsigned r = 0; r < 4; ++r) {
      uint32_t word = warp.narrow(regs[r])[lane];
      unsigned row = lane / 4 + 8 * (r % 2), k = lane % 4 * 2 + 8 * (r / 2);
      operand.row(row)[k] = widen(word, shape.isBF16);
      operand.row(row)[k + 1] = widen(word >> 16, shape.isBF16);
      if (warp.undefined(regs[r]) >> lane & 1) {
        operand.bad[row] = true;
        origin = origin ? origin : warp.origin(regs[r]);
      }
    }
}

void Product::run(LaneMask mask) {
  unsigned group = warp.number / kWarpsOfGroup * kWarpsOfGroup;
  warp.traceProduct(uint64_t(&i - warp.block.code.instructions.data()));
  if ((group + kWarpsOfGroup) * kLanes > warp.block.code.threads)
    return warp.block.fail(warp, i, -1, "is in no group of four warps");
  if (!warp.isFenced)
    return warp.block.fail(warp, i, -1,
                           "no wgmma.fence stands before this wgmma");
  const uint32_t *operands = i.all + shape.results();
  Operand a(16), b(shape.columns);
  if (shape.aInRegisters)
    readRegisters(operands, a);
  else if (!readMatrix(operands[0], shape.aAcross, warp.number % 4 * 16, a))
    return;
  operands += shape.aInRegisters ? 4 : 1;
  if (!readMatrix(operands[0], shape.bAcross, 0, b))
    return;
  const uint32_t *tied = operands + 1;
  uint32_t note = warp.block.note({&i, warp.thread(0), warp.block.number,
                                   Finding::ProductInFlight, 0, -1, 0});
  // All that the wgmma reads of registers is read before it writes any.
  std::vector<std::array<float, kLanes>> sums(shape.results());
  std::vector<LaneMask> bad(shape.results());
  for (unsigned r = 0; r < shape.results(); ++r) {
    sums[r].fill(0);
    if (shape.adds) {
      std::memcpy(sums[r].data(), warp.narrow(tied[r]), sizeof sums[r]);
      uint32_t from = warp.origin(tied[r]);
      bad[r] = warp.undefined(tied[r]);
      if (const LaneMask *known = warp.findInFlight(tied[r]))
        bad[r] = *known;
      else if (bad[r])
        origin = origin ? origin : from;
    }
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      unsigned row = lane / 4 + r % 4 / 2 * 8;
      unsigned column = r / 4 * 8 + lane % 4 * 2 + r % 2;
      const float *x = a.row(row), *y = b.row(column);
      double sum = sums[r][lane];
      for (unsigned k = 0; k < kDepth; ++k)
        sum += double(x[k]) * y[k];
      sums[r][lane] = cutToFloat(sum);
      if (a.bad[row] || b.bad[column])
        bad[r] |= LaneMask(1) << lane;
    }
  }
  for (unsigned r = 0; r < shape.results(); ++r) {
    uint32_t reg = i.all[r];
    std::memcpy(warp.narrow(reg), sums[r].data(), sizeof sums[r]);
    warp.define(reg, mask, mask, note);
    warp.results[reg] = {note, warp.productGroup, bad[r], origin};
  }
  warp.products.push_back({warp.productGroup, &i, std::move(reads)});
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

/// Moves operand `k` to result `k`, and the wgmmas in flight with them.
void moveResults(Warp &warp, const Instruction &i, LaneMask mask,
                 uint64_t endedGroups) {
  struct Moved {
    uint32_t words[kLanes];
    LaneMask undefined;
    uint32_t origin;
    const Warp::Result *result;
    Warp::Result copy;
  };
  std::vector<Moved> values(i.count);
  for (unsigned k = 0; k < i.count; ++k) {
    uint32_t reg = i.all[i.count + k];
    Moved &value = values[k];
    std::memcpy(value.words, warp.narrow(reg), sizeof value.words);
    value.undefined = warp.undefined(reg);
    value.origin = warp.origin(reg);
    bool inFlight = warp.findInFlight(reg) != nullptr;
    value.result = inFlight ? &value.copy : nullptr;
    if (inFlight)
      value.copy = warp.results[reg];
  }
  for (unsigned k = 0; k < i.count; ++k) {
    const Moved &value = values[k];
    uint32_t reg = i.all[k];
    std::memcpy(warp.narrow(reg), value.words, sizeof value.words);
    if (value.result && value.copy.group < endedGroups) {
      warp.define(reg, mask, value.copy.bad, value.copy.origin);
      continue;
    }
    warp.define(reg, mask, value.undefined, value.origin);
    if (value.result)
      warp.results[reg] = value.copy;
  }
}

void fence(Warp &warp, const Instruction &i, LaneMask mask) {
  warp.isFenced = true;
  warp.traceProduct(uint64_t(&i - warp.block.code.instructions.data()));
  moveResults(warp, i, mask, 0);
}

void commit(Warp &warp, const Instruction &i, LaneMask) {
  warp.traceProduct(uint64_t(&i - warp.block.code.instructions.data()));
  ++warp.productGroup;
}

void await(Warp &warp, const Instruction &i, LaneMask mask) {
  warp.traceProduct(uint64_t(&i - warp.block.code.instructions.data()));
  uint64_t pending = uint64_t(i.immediate);
  uint64_t ended =
      warp.productGroup > pending ? warp.productGroup - pending : 0;
  std::vector<Warp::InFlight> kept;
  for (Warp::InFlight &product : warp.products) {
    if (product.group >= ended) {
      kept.push_back(std::move(product));
      continue;
    }
    for (const Warp::InFlight::Read &read : product.reads)
      if (std::memcmp(read.data, warp.block.shared.data() + read.offset, 16) !=
          0)
        return warp.block.fail(
            warp, *product.instruction, -1,
            "byte " + std::to_string(read.offset) +
                " of shared memory changes while a wgmma reads it");
  }
  warp.products = std::move(kept);
  warp.isFenced = false;
  moveResults(warp, i, mask, ended);
}

} // namespace

ProductShape nsa::emulator::decodeProduct(int64_t bits) {
  return {unsigned(bits & 0xFFFF), (bits & 1 << 16) != 0,
          (bits & 1 << 17) != 0,   (bits & 1 << 18) != 0,
          (bits & 1 << 19) != 0,   (bits & 1 << 20) != 0};
}

int64_t nsa::emulator::encodeProduct(const ProductShape &shape) {
  return int64_t(shape.columns) | shape.isBF16 << 16 | shape.adds << 17 |
         shape.aInRegisters << 18 | shape.aAcross << 19 | shape.bAcross << 20;
}

Handler nsa::emulator::getWarpgroupMultiply() {
  return [](Warp &warp, const Instruction &i, LaneMask mask) {
    Product(warp, i).run(mask);
  };
}
Handler nsa::emulator::getWarpgroupFence() { return fence; }
Handler nsa::emulator::getWarpgroupCommit() { return commit; }
Handler nsa::emulator::getWarpgroupWait() { return await; }

Handler nsa::emulator::getProxyFence() {
  return [](Warp &warp, const Instruction &, LaneMask mask) {
    forLanes(mask,
             [&](unsigned lane) { warp.block.mbarriers.fence(warp, lane); });
  };
}

Handler nsa::emulator::getSetRegisters() {
  return [](Warp &warp, const Instruction &i, LaneMask) {
    auto wanted = unsigned(i.immediate);
    if (i.count ? wanted < warp.registers : wanted > warp.registers)
      return warp.block.fail(warp, i, -1,
                             "threads have " + std::to_string(warp.registers) +
                                 " registers before");
    warp.registers = wanted;
    warp.registersSet = &i;
    warp.traceProduct(uint64_t(&i - warp.block.code.instructions.data()));
  };
}

const LaneMask *Warp::findInFlight(uint32_t reg) const {
  auto known = results.find(reg);
  return known != results.end() && marks[reg].lanes &&
                 marks[reg].origin == known->second.note
             ? &known->second.bad
             : nullptr;
}
