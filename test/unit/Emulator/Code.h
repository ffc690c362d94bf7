//===- Code.h - kernels as the emulator runs them ---------------*- C++ -*-===//
//
// A kernel is an array of instructions over the registers of a warp. One
// instruction works for all lanes of the warp that are at it.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_EMULATOR_CODE_H
#define NSA_TEST_UNIT_EMULATOR_CODE_H

#include <cstdint>
#include <string>
#include <vector>

namespace mlir {
class Operation;
} // namespace mlir

namespace nsa::emulator {

/// Threads of a warp, and a set of them.
constexpr unsigned kLanes = 32;
using LaneMask = uint32_t;
constexpr LaneMask kAllLanes = ~LaneMask(0);

class Warp;
struct Instruction;
using Handler = void (*)(Warp &, const Instruction &, LaneMask);

/// How control goes on after an instruction.
enum class Kind : uint8_t {
  /// Every lane does it for itself and goes on.
  Lane,
  /// To instruction `immediate`.
  Jump,
  /// To instruction `immediate` where register `a` is not 0, else to `target`.
  Branch,
  /// The thread ends.
  Return,
  /// Runs once all lanes of its mask, register `a`, are here.
  Mask,
  /// Runs once all lanes of the warp are here.
  Warp,
  /// Each lane goes on when the phase before the current one of the mbarrier of
  /// register `a` has the parity of register `b`.
  Wait,
  /// Waits for other warps. Register `a` is the number of the barrier, `b` the
  /// number of threads; `immediate` says what to do, see Barrier.
  Barrier,
};

/// What a Barrier instruction does: it is for a number of threads; it tells
/// them whether the predicate holds for one.
struct Barrier {
  enum : int64_t { Counted = 1, Or = 2 };
};

struct Instruction {
  Handler run = nullptr;
  Kind kind = Kind::Lane;
  /// Of memory accesses: bytes of a component. Of these and of others: a number
  /// of registers or dimensions.
  uint8_t bytes = 0;
  uint16_t count = 0;
  /// Registers: the first result and operands.
  uint32_t result = 0, a = 0, b = 0, c = 0;
  uint32_t target = 0;
  int64_t immediate = 0;
  /// All registers, first the results, where three operands are too few.
  const uint32_t *all = nullptr;
};

/// A tensor in the memory of an argument, and the boxes that are copied of it;
/// all innermost first. Strides and the swizzle are in bytes; the innermost
/// dimension has no stride.
struct TensorMap {
  unsigned argument, elementBytes, swizzle;
  std::vector<int64_t> extents, strides, box;

  uint64_t rowBytes() const { return uint64_t(box[0]) * elementBytes; }
};

/// A kernel that is ready to run. Register `r` takes 32 words, or 64 if it is
/// wide: then `r + 1` is no register.
struct Code {
  std::string name;
  std::vector<Instruction> instructions;
  /// What each instruction was made of, for messages.
  std::vector<mlir::Operation *> sources;
  std::vector<uint32_t> operandPool;
  unsigned registers = 0;

  struct Constant {
    uint32_t reg;
    bool wide;
    uint64_t bits;
  };
  std::vector<Constant> constants;
  /// Registers that hold the pointers to the arguments.
  std::vector<uint32_t> arguments;

  /// What the kernel's last parameters say: tensor maps, and registers that
  /// hold the extents of the launch.
  std::vector<TensorMap> maps;
  std::vector<uint32_t> extents;

  unsigned threads = 0;
  /// Registers that a GPU gives a thread at the launch.
  unsigned registersAtLaunch = 0;
  uint64_t sharedBytes = 0;
  /// The smallest access to each memory, in bytes: what the checks are made
  /// for.
  unsigned sharedGranule = 4, globalGranule = 4;
};

/// Pointers are numbers: shared memory starts at `kSharedBase`, and argument
/// `k` at `argumentBase(k)`, far enough apart that no offset leads from one to
/// another.
constexpr uint64_t kSharedBase = 1024;
constexpr unsigned kArgumentShift = 44;
constexpr uint64_t kArgumentBias = uint64_t(1) << (kArgumentShift - 1);
constexpr uint64_t argumentBase(unsigned argument) {
  return (uint64_t(argument + 1) << kArgumentShift) + kArgumentBias;
}

/// Tensor maps lie where nothing else does.
constexpr uint64_t kTensorMapBase = uint64_t(1) << 40, kTensorMapBytes = 128;

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_CODE_H
