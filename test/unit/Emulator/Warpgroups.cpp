//===- Warpgroups.cpp - wgmma of four warps -------------------------------===//
//
// wgmma.mma_async by the rules of the PTX ISA alone ("Asynchronous warpgroup
// level matrix multiply-accumulate"): a descriptor says where a matrix starts
// in shared memory and how far its parts are apart, and a swizzle exchanges
// bits of each address. A wgmma is computed when it is issued.
// tile-gpu-verify-synchronization proves that its results and what it reads are
// left alone until it has been waited for.
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
  // All that the wgmma reads of registers is read before it writes any.
  std::vector<std::array<float, kLanes>> sums(shape.results());
  std::vector<LaneMask> bad(shape.results());
  for (unsigned r = 0; r < shape.results(); ++r) {
    sums[r].fill(0);
    if (shape.adds) {
      std::memcpy(sums[r].data(), warp.narrow(tied[r]), sizeof sums[r]);
      bad[r] = warp.undefined(tied[r]);
      if (bad[r] && !origin)
        origin = warp.origin(tied[r]);
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
    warp.define(reg, mask, bad[r], origin);
  }
}

/// Moves operand `k` to result `k`.
void passThrough(Warp &warp, const Instruction &i, LaneMask mask) {
  struct Moved {
    uint32_t words[kLanes];
    LaneMask undefined;
    uint32_t origin;
  };
  std::vector<Moved> values(i.count);
  for (unsigned k = 0; k < i.count; ++k) {
    uint32_t reg = i.all[i.count + k];
    Moved &value = values[k];
    std::memcpy(value.words, warp.narrow(reg), sizeof value.words);
    value.undefined = warp.undefined(reg);
    value.origin = warp.origin(reg);
  }
  for (unsigned k = 0; k < i.count; ++k) {
    const Moved &value = values[k];
    std::memcpy(warp.narrow(i.all[k]), value.words, sizeof value.words);
    warp.define(i.all[k], mask, value.undefined, value.origin);
  }
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
Handler nsa::emulator::getPassThrough() { return passThrough; }

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
