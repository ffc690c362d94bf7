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
enum ShuffleKind : int64_t { Butterfly, Up, Down, Index };
Handler getShuffle();
/// b: predicate. `immediate` is the kind.
enum VoteKind : int64_t { Any, All, Ballot, Uniform };
Handler getVote();
/// b: value.
enum ReduxKind : int64_t {
  ReduxAdd,
  ReduxMax,
  ReduxMin,
  ReduxUmax,
  ReduxUmin,
  ReduxAnd,
  ReduxOr,
  ReduxXor
};
Handler getRedux();
Handler getWarpSync();

/// all: `count` results, the address. `immediate`: transposed.
Handler getLoadMatrix();
/// all: the address, `count` values.
Handler getStoreMatrix();
/// all: 4 results, A, B, C. `immediate` is K, 8 or 16; `bytes` 1 for bf16, 0
/// for f16.
Handler getMultiply();

/// `immediate` 0 to 2: along x, y, z.
Handler getThreadId();
Handler getBlockId();
Handler getGridSize();
/// Of which only x is not 1.
Handler getBlockSize();
Handler getLaneId();
/// The result is undefined.
Handler getUndefined();

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_HANDLERS_H
