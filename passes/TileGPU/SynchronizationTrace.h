//===- SynchronizationTrace.h - accesses of one execution -------*- C++ -*-===//
//
// Executes the scalars of a kernel, its loops a few times, and lists what
// threads do to memory in program order.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_TILEGPU_SYNCHRONIZATIONTRACE_H
#define NSA_PASSES_TILEGPU_SYNCHRONIZATIONTRACE_H

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/TileGPU/GlobalAccesses.h"

namespace nsa::cuda {

struct TraceEvent {
  enum Kind : uint8_t {
    // Accesses to shared memory from `begin` to `end`.
    Read,
    WgmmaRead,
    Write,
    AsyncCopy,
    TmaLoad,
    // To an argument.
    GlobalAccess,
    // `count`: groups that stay in flight.
    CommitCopies,
    WaitCopies,
    CommitWgmma,
    WaitWgmma,
    Fence,
    Barrier,
    // Of `mbarrier`; `count`: arrivals, bytes, parity.
    InitMBarrier,
    ExpectBytes,
    Arrive,
    WaitMBarrier,
  };

  Kind kind;
  mlir::Operation *op;
  int64_t count = 0;
  int64_t begin = 0, end = 0;
  /// Null is scratch.
  mlir::Value buffer = {};
  /// Where it lies; of a TMA load, where the bytes arrive.
  int64_t mbarrier = 0;
  std::optional<cuda::GlobalAccess> access = {};
};

struct SynchronizationTrace {
  /// What the producer does begins where consumers have done `fork` events.
  std::vector<TraceEvent> consumer, producer;
  size_t fork = 0;
  /// Whether bounds of loops, and conditions of branches, are not known.
  bool hasTrips = false, hasBranches = false;
};

/// How an execution goes where scalars do not say it.
struct TraceChoice {
  /// Iterations of loops.
  int64_t trips;
  /// Which branches are taken: those that none has taken yet, all or none.
  enum { Explore, Then, Else } branches = Explore;
};

/// Branches that executions have taken, and not.
using TakenBranches = llvm::DenseSet<std::pair<mlir::Operation *, unsigned>>;

/// Of a kernel whose buffers are allocated.
SynchronizationTrace traceKernel(tile::KernelOp kernel, TraceChoice choice,
                                 TakenBranches &taken);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPU_SYNCHRONIZATIONTRACE_H
