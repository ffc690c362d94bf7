//===- InsertBarriers.cpp - barriers where memory is accessed -------------===//

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/TileGPU/GlobalAccesses.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/Scratch.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"
#include "llvm/ADT/SetOperations.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/SaveAndRestore.h"

namespace nsa {
#define GEN_PASS_DEF_TILEGPUINSERTBARRIERS
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

namespace {
/// A piece of shared memory.
struct Piece {
  int64_t bytes, offset;

  bool meets(const Piece &other) const {
    return offset < other.offset + other.bytes && other.offset < offset + bytes;
  }
};

/// What other threads may not have done yet, or may not see, before an
/// operation: the union over all paths to it.
struct Pending {
  /// Accesses to global memory since the last barrier.
  SmallVector<GlobalAccess> reads, writes;
  /// Whether something may have been written since then.
  bool stored = false;
  /// What each group of copies in flight fills, in order: nothing, if others
  /// wait for it. Empty where that is so for all.
  SmallVector<Piece> copies;
  /// What other threads may not see yet, and whether a fence has come after
  /// all of it.
  SmallVector<Piece> unseen;
  bool isFenced = false;
  /// Whether shared memory was read since the last barrier.
  bool sharedRead = false;

  void add(const GlobalAccess &access);
  void write(const Piece &piece) {
    unseen.push_back(piece);
    isFenced = false;
  }
  /// Where two paths meet. No copies are in flight on either.
  void join(const Pending &other);
};
} // namespace

void Pending::add(const GlobalAccess &access) {
  SmallVector<GlobalAccess> &accesses = access.isWrite ? writes : reads;
  if (!llvm::is_contained(accesses, access))
    accesses.push_back(access);
}

void Pending::join(const Pending &other) {
  assert(copies.empty() && other.copies.empty() && "copies are in flight");
  for (const GlobalAccess &access :
       llvm::concat<const GlobalAccess>(other.reads, other.writes))
    add(access);
  stored |= other.stored;
  isFenced =
      (isFenced || unseen.empty()) && (other.isFenced || other.unseen.empty());
  unseen.append(other.unseen);
  sharedRead |= other.sharedRead;
}

static bool isKnown(const Piece &copy) { return copy.bytes != 0; }

/// Where a tile in shared memory, or a buffer, lies; of several stages, the
/// first one.
static Piece getPiece(Value tile) {
  Value buffer = getBuffer(tile);
  return {SharedShape(buffer).bytes(), getOffset(buffer)};
}

namespace {
class BarrierInserter {
public:
  explicit BarrierInserter(KernelOp kernel);

  /// Fails with an error if a barrier would be divergent.
  LogicalResult run() {
    visitAll(kernel.getBody().front());
    return failure(hasRefused);
  }

private:
  /// Visits the operations of a block, up to the last dots in it.
  void visitAll(Block &block);
  void visit(Operation *op);
  void visitAccess(const GlobalAccess &access);
  void visitCopy(AsyncCopyOp op);
  void visitDot(DotOp op);
  void visitVote();
  void visitLoop(scf::ForOp op);
  void visitBranch(scf::IfOp op);
  void visitWarpBranch(WarpIfOp op);
  void visitRoles(WarpSpecializeOp op);
  /// Visits a region that only some threads execute.
  void visitApart(Region &region);

  // Before what comes next:
  /// Inserts a barrier.
  void insertBarrier();
  /// Prepares a barrier: waits for the wgmma that read shared memory, and makes
  /// writes visible.
  void prepareBarrier();
  /// Waits until all threads may access a piece.
  void awaitPiece(const Piece &piece);
  void read(const Piece &piece);
  void write(const Piece &piece);
  void waitAll();
  /// Nothing is in flight at the end of a loop's or a branch's block.
  void visitAndSettle(Block &block);
  /// Waits for a dot, and those before it; for all without one.
  void awaitWgmma(DotOp last = {});
  void awaitOperands(Operation *op);
  void refuse(StringRef what) {
    if (!std::exchange(hasRefused, true))
      emitError(b.getLoc())
          << "needs " << what << ", but not all threads of the block come by";
  }

  KernelOp kernel;
  ImplicitLocOpBuilder b;
  bool hasWgmma;
  /// Arguments that the kernel both reads and writes.
  llvm::DenseSet<Value> readAndWritten;
  Pending pending;
  /// Dots of warpgroups in flight, in order.
  SmallVector<DotOp> dots;
  /// Whether only some of the threads that barriers count execute this.
  bool isApart = false;
  bool hasRefused = false;
};
} // namespace

BarrierInserter::BarrierInserter(KernelOp kernel)
    : kernel(kernel), b(kernel.getLoc(), kernel.getContext()),
      hasWgmma(usesWgmma(kernel)) {
  llvm::DenseSet<Value> read;
  kernel.walk([&](Operation *op) {
    for (const GlobalAccess &access : getGlobalAccesses(op))
      (access.isWrite ? readAndWritten : read).insert(access.argument);
  });
  llvm::set_intersect(readAndWritten, read);
}

//===----------------------------------------------------------------------===//
// Waits
//===----------------------------------------------------------------------===//

void BarrierInserter::prepareBarrier() {
  if (isApart)
    return refuse("a barrier");
  awaitWgmma();
  // wgmma reads shared memory through the async proxy, threads write through
  // the generic one.
  if (hasWgmma && !pending.unseen.empty() && !pending.isFenced)
    FenceAsyncOp::create(b);
  Pending after;
  after.copies = std::move(pending.copies);
  pending = std::move(after);
}

void BarrierInserter::insertBarrier() {
  prepareBarrier();
  BarrierOp::create(b);
}

void BarrierInserter::awaitPiece(const Piece &piece) {
  auto meets = [&](const Piece &other) { return other.meets(piece); };
  auto *last = llvm::find_if(llvm::reverse(pending.copies), meets).base();
  if (last != pending.copies.begin()) {
    AsyncWaitOp::create(b, int32_t(pending.copies.end() - last));
    for (const Piece &copy : llvm::make_range(pending.copies.begin(), last))
      if (isKnown(copy))
        pending.write(copy);
    pending.copies.erase(pending.copies.begin(), last);
    if (llvm::none_of(pending.copies, isKnown))
      pending.copies.clear();
  }
  if (llvm::any_of(pending.unseen, meets))
    insertBarrier();
}

void BarrierInserter::read(const Piece &piece) {
  awaitPiece(piece);
  pending.sharedRead = true;
}

/// Of a piece that threads are going to store to or copy to.
void BarrierInserter::write(const Piece &piece) {
  awaitPiece(piece);
  if (pending.sharedRead)
    insertBarrier();
}

void BarrierInserter::waitAll() {
  if (!pending.copies.empty()) {
    Piece last = *llvm::find_if(llvm::reverse(pending.copies), isKnown);
    read(last);
  } else if (!pending.unseen.empty()) {
    insertBarrier();
  }
}

void BarrierInserter::awaitWgmma(DotOp last) {
  auto *end = last ? llvm::find(dots, last) : dots.end();
  if (last && end != dots.end())
    ++end;
  else if (last || dots.empty())
    return;
  SmallVector<Value> sums;
  for (DotOp done : llvm::make_range(dots.begin(), end)) {
    if (done->getBlock() != b.getInsertionBlock())
      return refuse("a wait for wgmma");
    sums.push_back(done.getResult());
  }
  auto wait = WgmmaWaitOp::create(b, TypeRange(ValueRange(sums)),
                                  int32_t(dots.end() - end), sums);
  for (auto [sum, result] : llvm::zip_equal(sums, wait.getResults()))
    sum.replaceAllUsesExcept(result, wait);
  dots.erase(dots.begin(), end);
}

/// What an operation with a region does with its surroundings shows in its
/// operands, or it is a loop or a branch. Where a stage is free again, dots
/// have read it.
void BarrierInserter::awaitOperands(Operation *op) {
  if (isa<scf::ForOp, scf::IfOp, MBarrierArriveOp>(op))
    return awaitWgmma();
  for (Value operand : op->getOperands())
    if (auto dot = operand.getDefiningOp<DotOp>())
      awaitWgmma(dot);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// A kernel that reads what it has written needs the writes of all threads. An
/// output may lie in the memory of an input whose elements are read before: a
/// thread that writes the elements that it has read itself needs no barrier. Of
/// two writes of one element the later one counts.
void BarrierInserter::visitAccess(const GlobalAccess &access) {
  if (!access.isWrite) {
    if (pending.stored && readAndWritten.contains(access.argument))
      insertBarrier();
    return pending.add(access);
  }
  auto isOther = [&](const GlobalAccess &other) {
    return !haveSameOwners(other, access);
  };
  auto overtakes = [&](const GlobalAccess &other) {
    return other.argument == access.argument && isOther(other);
  };
  if (llvm::any_of(pending.reads, isOther) ||
      llvm::any_of(pending.writes, overtakes)) {
    waitAll();
    insertBarrier();
  }
  pending.add(access);
  pending.stored = true;
}

/// Copies to a stage are waited for when the stage is used.
void BarrierInserter::visitCopy(AsyncCopyOp op) {
  if (op.getStage())
    return;
  Piece piece = getPiece(op.getBuffer());
  write(piece);
  if (op.isAsync())
    pending.copies.push_back(piece);
  else
    pending.write(piece);
}

void BarrierInserter::visitDot(DotOp op) {
  for (Value operand : {op.getA(), op.getB()})
    if (isShared(operand.getType()))
      read(getPiece(operand));
  if (!isWgmma(op))
    return;
  if (isApart)
    return refuse("whole warpgroups");
  dots.push_back(op);
}

/// A vote is a barrier, but without the fence that warpgroups need.
void BarrierInserter::visitVote() {
  if (isApart)
    return refuse("all votes");
  pending.reads.clear();
  pending.writes.clear();
  pending.stored = false;
}

void BarrierInserter::visit(Operation *op) {
  b.setInsertionPoint(op);
  b.setLoc(op->getLoc());
  awaitOperands(op);
  SmallVector<GlobalAccess> accesses = getGlobalAccesses(op);
  for (const GlobalAccess &access : accesses)
    if (!access.isWrite)
      visitAccess(access);
  if (auto store = dyn_cast<LocalStoreOp>(op)) {
    write(getPiece(store.getBuffer()));
    pending.write(getPiece(store.getBuffer()));
  }
  // Threads wait for each other before and after what they write to scratch.
  if (getScratchBytes(op) > 0)
    prepareBarrier();
  for (const GlobalAccess &access : accesses)
    if (access.isWrite)
      visitAccess(access);
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](LocalStoreOp store) {
        pending.write(getPiece(store.getBuffer()));
      })
      .Case([&](AsyncCopyOp copy) { visitCopy(copy); })
      .Case([&](ConvertOp convert) {
        if (isShared(convert.getInput().getType()))
          read(getPiece(convert.getInput()));
      })
      .Case([&](DotOp dot) { visitDot(dot); })
      .Case([&](AnyOp) { visitVote(); })
      .Case<BarrierOp, MBarrierInitOp>([&](auto) { prepareBarrier(); })
      .Case([&](FenceAsyncOp) { pending.isFenced = true; })
      .Case([&](AsyncCommitOp) {
        if (!pending.copies.empty())
          pending.copies.push_back({0, 0});
      })
      .Case([&](scf::ForOp loop) { visitLoop(loop); })
      .Case([&](scf::IfOp branch) { visitBranch(branch); })
      .Case([&](WarpIfOp branch) { visitWarpBranch(branch); })
      .Case([&](CopyIfOp copies) { visitApart(copies.getBody()); })
      .Case([&](WarpSpecializeOp roles) { visitRoles(roles); });
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

void BarrierInserter::visitAll(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      break;
    visit(&op);
  }
  if (!block.empty() && block.back().hasTrait<OpTrait::IsTerminator>())
    b.setInsertionPoint(&block.back());
  else
    b.setInsertionPointToEnd(&block);
  awaitWgmma();
}

void BarrierInserter::visitAndSettle(Block &block) {
  visitAll(block);
  waitAll();
}

void BarrierInserter::visitApart(Region &region) {
  llvm::SaveAndRestore saved(isApart, true);
  for (Operation &op : llvm::make_early_inc_range(region.front()))
    visit(&op);
}

void BarrierInserter::visitLoop(scf::ForOp op) {
  waitAll();
  awaitWgmma();
  // What an iteration reads last, the next one may write first. A barrier in
  // the loop is none if it does not run.
  op.getBody()->walk([&](Operation *inner) {
    for (const GlobalAccess &access : getGlobalAccesses(inner))
      pending.add(access);
    pending.sharedRead |= isa<ConvertOp, DotOp>(inner) &&
                          llvm::any_of(inner->getOperandTypes(), isShared);
  });
  pending.stored = true;
  Pending around = pending;
  visitAndSettle(*op.getBody());
  pending.join(around);
}

void BarrierInserter::visitBranch(scf::IfOp op) {
  // Before the branch: no thread waits again after it.
  waitAll();
  awaitWgmma();
  Pending before = pending, after;
  after.isFenced = true;
  for (Region *region : {&op.getThenRegion(), &op.getElseRegion()}) {
    pending = before;
    if (!region->empty())
      visitAndSettle(region->front());
    after.join(pending);
  }
  pending = std::move(after);
}

/// What a warp reads inside is visible already: no barrier.
void BarrierInserter::visitWarpBranch(WarpIfOp op) {
  waitAll();
  awaitWgmma();
  visitApart(op.getThenRegion());
  visitApart(op.getElseRegion());
}

/// The producer only copies memory that the kernel does not write.
void BarrierInserter::visitRoles(WarpSpecializeOp op) {
  waitAll();
  awaitWgmma();
  Pending before = pending;
  visitApart(op.getProducer());
  pending = std::move(before);
  visitAll(op.getConsumer().front());
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct InsertBarriers : nsa::impl::TileGPUInsertBarriersBase<InsertBarriers> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (failed(verifyHasThreads(kernel)) || failed(verifyAllocated(kernel)) ||
        failed(BarrierInserter(kernel).run()))
      signalPassFailure();
  }
};
} // namespace
