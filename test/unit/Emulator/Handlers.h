//===- Handlers.h - memory and what lanes do together -----------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EMULATOR_HANDLERS_H
#define NSA_TEST_UNIT_EMULATOR_HANDLERS_H

#include "test/unit/Emulator/Code.h"

namespace nsa::emulator {

/// Registers of a load in `Instruction::all`: the components, the address, and
/// if bit 0 of `immediate` is set a condition: other lanes read, but nothing
/// comes of it. Of a store: the components, the address. The rest of
/// `immediate` is the alignment times 2.
Handler getLoad(bool shared, unsigned bytes);
Handler getStore(bool shared);

/// a: to, b: from, c (if `count` is 1): bytes that are read, the rest is 0;
/// `bytes` bytes.
Handler getCopyAsync();
Handler getCommitGroup();
/// Waits for all groups but the last `immediate`.
Handler getWaitGroup();

/// b: value, c: offset, all[3]: clamp. `immediate` is the kind.
enum ShuffleKind : int64_t { Butterfly, Index };
Handler getShuffle();
/// b: predicate. `immediate` is the kind.
enum VoteKind : int64_t { Any, All, Ballot };
Handler getVote();
Handler getWarpSync();

/// all: `count` results, the address. `immediate`: transposed.
Handler getLoadMatrix();
/// all: 4 results, A, B, C. `immediate` is K, 8 or 16; `bytes` 1 for bf16, 0
/// for f16.
Handler getMultiply();

/// A wgmma.mma_async of 64 rows and 16 elements of each sum.
struct ProductShape {
  unsigned columns;
  bool isBF16, adds, aInRegisters;
  /// Whether neighbours in shared memory belong to neighbouring rows of a or
  /// columns of b.
  bool aAcross, bAcross;
  /// Registers of a thread.
  unsigned results() const { return columns / 2; }
};
ProductShape decodeProduct(int64_t bits);
int64_t encodeProduct(const ProductShape &shape);
/// all: the results; a: four registers or a descriptor; the descriptor of b; if
/// it adds, what to. `immediate` is the shape.
Handler getWarpgroupMultiply();
/// Of the fences and waits around it. all: `count` results, and as many values
/// that pass through.
Handler getPassThrough();
/// `immediate` is how many registers each thread has from now on; `count` is 1
/// if these are to be more than before.
Handler getSetRegisters();

/// a: address, b: threads of each phase.
Handler getMakeMbarrier();
/// a: address; b (if `count` is 1): bytes that are expected. `immediate`: 1
/// takes the lane's cp.async along.
Handler getArrive();
/// all: to, the tensor map, the mbarrier, `count` coordinates.
Handler getCopyTensor();

/// `immediate` 0 to 2: along x, y, z.
Handler getThreadId();
Handler getBlockId();
/// The result is undefined.
Handler getUndefined();

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_HANDLERS_H
