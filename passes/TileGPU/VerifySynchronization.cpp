//===- VerifySynchronization.cpp - what barriers, waits and fences miss ---===//
//
// Follows executions of a kernel and keeps for each access to memory until when
// other warps, or the producer, may still be at it. It knows nothing of how
// tile-gpu-insert-barriers decides.
//
//===----------------------------------------------------------------------===//

#include "passes/TileGPU/Passes.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/SynchronizationTrace.h"
#include "passes/TileGPU/TileUtils.h"

namespace nsa {
#define GEN_PASS_DEF_TILEGPUVERIFYSYNCHRONIZATION
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

using Kind = TraceEvent::Kind;

static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

namespace {
enum Role : uint8_t { Consumer, Producer };
enum class Progress : uint8_t { Done, Blocked, Failed };

/// An access that a later one may conflict with. Times are those of consumers.
struct Record {
  TraceEvent event;
  /// When each warp has done its own part; of a TMA load, when consumers know
  /// that it is over.
  int64_t done;
  /// The group, or the phase of the mbarrier of a TMA load.
  int64_t group = 0;
  /// Of a write, from when on the async proxy may see it after a barrier.
  int64_t fenced = kNever;

  bool is(Kind kind) const { return event.kind == kind; }
  bool isWrite() const { return !is(Kind::Read) && !is(Kind::WgmmaRead); }
  bool meets(const TraceEvent &other) const {
    return event.begin < other.end && other.begin < event.end;
  }
};

struct MBarrier {
  int64_t arrivals = 0, missing = 0, bytes = 0;
  /// When each phase that is over has ended.
  SmallVector<int64_t> phases = {};
  /// How many of these a role knows of.
  std::array<int64_t, 2> known = {0, 0};
};

class Checker {
public:
  explicit Checker(const SynchronizationTrace &trace) : trace(trace) {}

  LogicalResult run();

private:
  /// As far as a role comes.
  Progress advance(Role role, size_t &next, size_t end);
  Progress step(const TraceEvent &event, Role role);
  LogicalResult access(const TraceEvent &event, Role role);
  LogicalResult accessArgument(const TraceEvent &event);
  LogicalResult waitWgmma(const TraceEvent &event);
  Progress visitMBarrier(const TraceEvent &event, Role role);
  Progress wait(const TraceEvent &event, MBarrier &mbarrier, Role role);
  LogicalResult verifyEnd();

  StringRef findMissing(const TraceEvent &event, const Record &other,
                        Role role) const;
  void retire(Kind kind, int64_t groups);

  const SynchronizationTrace &trace;
  SmallVector<Record> records;
  /// Accesses to arguments since the last barrier.
  SmallVector<TraceEvent> arguments;
  llvm::MapVector<int64_t, MBarrier> mbarriers;
  /// The last group of a dot.
  llvm::DenseMap<Operation *, int64_t> dots;
  MBarrierInitOp init;
  int64_t now = 0, lastBarrier = 0, copyGroups = 0, wgmmaGroups = 0;
  /// What consumers did until then is over for the producer.
  int64_t released = 0;
};
} // namespace

static InFlightDiagnostic refuse(const TraceEvent &event,
                                 const TraceEvent &other, const Twine &what,
                                 StringRef missing) {
  InFlightDiagnostic error = event.op->emitOpError(what)
                             << " in '" << other.op->getName() << "', with no "
                             << missing << " between";
  error.attachNote(other.op->getLoc()) << "the other access is here";
  return error;
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

/// What keeps an earlier access from being over for this one, or nothing.
StringRef Checker::findMissing(const TraceEvent &event, const Record &other,
                               Role role) const {
  if (other.done == kNever)
    return other.is(Kind::AsyncCopy)   ? "tile_gpu.async_wait"
           : other.is(Kind::WgmmaRead) ? "tile_gpu.wgmma_wait"
                                       : "tile_gpu.mbarrier_wait";
  int64_t known = role == Producer ? released : lastBarrier - 1;
  // A thread that has waited for a TMA load sees all of it.
  if (other.is(Kind::TmaLoad) && role == Consumer)
    return "";
  if (other.done > known)
    return role == Producer
               ? "tile_gpu.mbarrier_arrive and tile_gpu.mbarrier_wait"
               : "tile_gpu.barrier";
  bool isAsync = event.kind == Kind::WgmmaRead || event.kind == Kind::TmaLoad;
  return isAsync && other.isWrite() && !other.is(Kind::TmaLoad) &&
                 other.fenced > known
             ? "tile_gpu.fence_async and barrier"
             : "";
}

LogicalResult Checker::access(const TraceEvent &event, Role role) {
  Record own{event, now, wgmmaGroups};
  bool isWritten = false;
  for (const Record &other : records) {
    if (!other.meets(event) || !(own.isWrite() || other.isWrite()))
      continue;
    if (StringRef missing = findMissing(event, other, role); !missing.empty())
      return refuse(event, other.event,
                    Twine(own.isWrite() ? "writes" : "reads") +
                        " shared memory that is " +
                        (other.isWrite() ? "written" : "read"),
                    missing);
    isWritten |= other.isWrite() && other.event.buffer == event.buffer &&
                 other.event.begin == event.begin;
  }
  if (!own.isWrite() && !isWritten)
    return event.op->emitOpError("reads from byte ")
           << event.begin << " of shared memory what nothing has written there";
  if (!own.is(Kind::Read) && !own.is(Kind::Write))
    own.done = kNever;
  if (own.is(Kind::AsyncCopy))
    own.group = copyGroups;
  if (own.is(Kind::TmaLoad))
    own.group = int64_t(mbarriers[event.mbarrier].phases.size());
  llvm::erase_if(records, [&](const Record &other) {
    return other.meets(event) && (own.isWrite() || other.event.op == event.op);
  });
  records.push_back(own);
  return success();
}

/// All but so many groups are over.
void Checker::retire(Kind kind, int64_t groups) {
  for (Record &record : records)
    if (record.is(kind) && record.group < groups && record.done == kNever)
      record.done = now;
}

LogicalResult Checker::waitWgmma(const TraceEvent &event) {
  int64_t groups = wgmmaGroups - event.count;
  retire(Kind::WgmmaRead, groups);
  for (Value sums : event.op->getOperands())
    if (auto dot = sums.getDefiningOp<DotOp>();
        dot && isWgmma(dot) && dots.lookup(dot) >= groups)
      return event.op->emitOpError("returns sums that it leaves in flight");
  return success();
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

/// An output may lie in the memory of an input.
LogicalResult Checker::accessArgument(const TraceEvent &event) {
  const GlobalAccess &own = *event.access;
  for (const TraceEvent &earlier : arguments) {
    const GlobalAccess &other = *earlier.access;
    bool conflicts = own.argument == other.argument
                         ? own.isWrite || other.isWrite
                         : own.isWrite && !other.isWrite;
    if (conflicts && !haveSameOwners(own, other))
      return refuse(event, earlier,
                    Twine(own.isWrite ? "writes" : "reads") +
                        " an argument that other threads " +
                        (other.isWrite ? "write" : "read"),
                    "tile_gpu.barrier");
  }
  if (llvm::none_of(arguments, [&](const TraceEvent &earlier) {
        return *earlier.access == own;
      }))
    arguments.push_back(event);
  return success();
}

//===----------------------------------------------------------------------===//
// Mbarriers
//===----------------------------------------------------------------------===//

/// The result does not depend on how the roles interleave: a role either waits
/// for the first phase that it does not know of, or for none.
Progress Checker::wait(const TraceEvent &event, MBarrier &mbarrier, Role role) {
  int64_t &known = mbarrier.known[role];
  auto over = int64_t(mbarrier.phases.size());
  if (known % 2 != event.count)
    return Progress::Done;
  if (over <= known)
    return Progress::Blocked;
  if (over > known + 1) {
    event.op->emitOpError("may wait for ever: the phase after it is over, too");
    return Progress::Failed;
  }
  if (role == Producer)
    released = std::max(released, mbarrier.phases[size_t(known)]);
  ++known;
  for (Record &record : records)
    if (role == Consumer && record.is(Kind::TmaLoad) && record.done == kNever &&
        record.event.mbarrier == event.mbarrier && record.group < known)
      record.done = now;
  return Progress::Done;
}

Progress Checker::visitMBarrier(const TraceEvent &event, Role role) {
  if (event.kind == Kind::InitMBarrier) {
    init = cast<MBarrierInitOp>(event.op);
    mbarriers[event.mbarrier] = MBarrier{event.count, event.count};
    return Progress::Done;
  }
  auto *found = mbarriers.find(event.mbarrier);
  if (found == mbarriers.end()) {
    event.op->emitOpError("uses an mbarrier at byte ")
        << event.mbarrier << " that no tile_gpu.mbarrier_init has initialized";
    return Progress::Failed;
  }
  MBarrier &mbarrier = found->second;
  if (event.kind == Kind::WaitMBarrier)
    return wait(event, mbarrier, role);
  if (event.kind == Kind::TmaLoad && failed(access(event, role)))
    return Progress::Failed;
  if (event.kind == Kind::TmaLoad)
    mbarrier.bytes -= event.count;
  else
    mbarrier.missing -= event.kind == Kind::Arrive ? event.count : 1;
  if (event.kind == Kind::ExpectBytes)
    mbarrier.bytes += event.count;
  if (mbarrier.missing == 0 && mbarrier.bytes == 0) {
    mbarrier.phases.push_back(now);
    mbarrier.missing = mbarrier.arrivals;
  }
  return Progress::Done;
}

/// At the end no load is in flight, and each stage was released as often as it
/// was filled.
LogicalResult Checker::verifyEnd() {
  for (const Record &record : records)
    if (record.is(Kind::TmaLoad) && record.done == kNever)
      return record.event.op->emitOpError(
          "may still write when the kernel ends, with no "
          "tile_gpu.mbarrier_wait after it");
  if (!init)
    return success();
  auto full = init.getFull().getDefiningOp<MBarriersOp>(),
       empty = init.getEmpty().getDefiningOp<MBarriersOp>();
  int64_t stages = std::min(full.getBarriers().getType().getCount(),
                            empty.getBarriers().getType().getCount());
  auto count = [&](MBarriersOp barriers, int64_t k) {
    return mbarriers[barriers.getAddress(k)].phases.size();
  };
  for (int64_t k = 0; k < stages; ++k)
    if (count(full, k) != count(empty, k))
      return init.emitOpError("has stage ")
             << k << " filled " << count(full, k) << " times, but released "
             << count(empty, k) << " times";
  return success();
}

//===----------------------------------------------------------------------===//
// Executions
//===----------------------------------------------------------------------===//

Progress Checker::step(const TraceEvent &event, Role role) {
  auto finish = [](LogicalResult result) {
    return succeeded(result) ? Progress::Done : Progress::Failed;
  };
  switch (event.kind) {
  case Kind::Read:
  case Kind::WgmmaRead:
  case Kind::Write:
  case Kind::AsyncCopy:
    return finish(access(event, role));
  case Kind::GlobalAccess:
    return role == Producer ? Progress::Done : finish(accessArgument(event));
  case Kind::CommitCopies:
    ++copyGroups;
    break;
  case Kind::WaitCopies:
    retire(Kind::AsyncCopy, copyGroups - event.count);
    break;
  case Kind::CommitWgmma:
    dots[event.op] = wgmmaGroups++;
    break;
  case Kind::WaitWgmma:
    return finish(waitWgmma(event));
  case Kind::Fence:
    for (Record &record : records)
      if (record.done != kNever)
        record.fenced = std::min(record.fenced, now);
    break;
  case Kind::Barrier:
    lastBarrier = now;
    // Copies that are in flight still read.
    llvm::erase_if(arguments, [&](const TraceEvent &earlier) {
      return llvm::none_of(records, [&](const Record &record) {
        return record.event.op == earlier.op && record.done == kNever;
      });
    });
    break;
  default:
    return visitMBarrier(event, role);
  }
  return Progress::Done;
}

Progress Checker::advance(Role role, size_t &next, size_t end) {
  const std::vector<TraceEvent> &events =
      role == Producer ? trace.producer : trace.consumer;
  Progress progress = Progress::Blocked;
  for (; next < end; ++next) {
    now += role == Consumer;
    Progress one = step(events[next], role);
    if (one == Progress::Failed)
      return one;
    if (one == Progress::Blocked)
      break;
    progress = Progress::Done;
  }
  return progress;
}

LogicalResult Checker::run() {
  size_t consumed = 0, produced = 0;
  const size_t toConsume = trace.consumer.size(),
               toProduce = trace.producer.size();
  if (advance(Consumer, consumed, trace.fork) == Progress::Failed)
    return failure();
  released = now;
  while (consumed < toConsume || produced < toProduce) {
    Progress producer = advance(Producer, produced, toProduce);
    if (producer == Progress::Failed)
      return failure();
    Progress consumer = advance(Consumer, consumed, toConsume);
    if (consumer == Progress::Failed)
      return failure();
    if (producer == Progress::Done || consumer == Progress::Done)
      continue;
    const TraceEvent &event = consumed < toConsume ? trace.consumer[consumed]
                                                   : trace.producer[produced];
    return event.op->emitOpError("waits for a phase that never ends");
  }
  return verifyEnd();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// Results of wgmma may only be used after a wait.
static LogicalResult verifySums(KernelOp kernel) {
  WalkResult result = kernel.walk([](DotOp dot) -> WalkResult {
    for (Operation *user : dot->getUsers())
      if (isWgmma(dot) && !isa<WgmmaWaitOp>(user)) {
        InFlightDiagnostic error = user->emitOpError(
            "uses sums in flight, with no tile_gpu.wgmma_wait between");
        error.attachNote(dot.getLoc()) << "the dot is here";
        return error;
      }
    return success();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct VerifySynchronization
    : nsa::impl::TileGPUVerifySynchronizationBase<VerifySynchronization> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (failed(verifyHasThreads(kernel)) || failed(verifyAllocated(kernel)) ||
        failed(verifySums(kernel)))
      return signalPassFailure();
    // Twice around each pipeline, which has eight stages at most: every phase
    // bit flips and flips back.
    constexpr int64_t many = 17;
    SmallVector<TraceChoice> choices = {{many}};
    TakenBranches taken;
    for (size_t k = 0; k < choices.size(); ++k) {
      size_t before = taken.size();
      SynchronizationTrace trace = traceKernel(kernel, choices[k], taken);
      if (failed(Checker(trace).run()))
        return signalPassFailure();
      if (k == 0 && trace.hasTrips)
        choices.append({{0}, {1}, {2}});
      if (k == 0 && trace.hasBranches)
        choices.append({{many, TraceChoice::Then}, {many, TraceChoice::Else}});
      if (k + 1 == choices.size() && taken.size() > before)
        choices.push_back({many});
    }
  }
};
} // namespace
