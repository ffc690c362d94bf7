//===- InsertBarriers.cpp - barriers where threads access memory ----------===//

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/Conversion/TileToNVVM/Passes.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/SaveAndRestore.h"

namespace nsa {
#define GEN_PASS_DEF_TILEGPUINSERTBARRIERS
#include "passes/Conversion/TileToNVVM/Passes.h.inc"
} // namespace nsa

using namespace mlir;
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

/// What other threads may not have done yet, or may not see, in front of an
/// operation: all that some path there leaves.
struct Pending {
  /// Accesses to global memory since the last barrier.
  llvm::SetVector<GlobalAccessOp> reads, writes;
  /// Whether something may have been written since then.
  bool stored = false;
  /// What each group of copies in flight fills, in order: nothing, if others
  /// wait for it. Empty where that is so for all.
  SmallVector<Piece> copies;
  /// What other threads may not see yet.
  SmallVector<Piece> unseen;
  /// Whether shared memory was read since the last barrier.
  bool sharedRead = false;

  /// Behind one path or the other. No copies are in flight on either.
  void join(const Pending &other);
};
} // namespace

void Pending::join(const Pending &other) {
  assert(copies.empty() && other.copies.empty() && "copies are in flight");
  reads.insert_range(other.reads);
  writes.insert_range(other.writes);
  stored |= other.stored;
  unseen.append(other.unseen);
  sharedRead |= other.sharedRead;
}

static bool isKnown(const Piece &copy) { return copy.bytes != 0; }

static bool meetsAny(ArrayRef<Piece> pieces, const Piece &piece) {
  return llvm::any_of(pieces,
                      [&](const Piece &other) { return other.meets(piece); });
}

/// Whether the same threads access the same elements, each its own.
static bool haveSameOwners(GlobalAccessOp x, GlobalAccessOp y) {
  return x.getOwners() && x.getOwners() == y.getOwners();
}

namespace {
class BarrierInserter {
public:
  explicit BarrierInserter(LLVM::LLVMFuncOp func);

  LogicalResult run() { return visit(func.getBody()); }

private:
  LogicalResult visit(Region &region);
  LogicalResult visit(Operation *op);
  LogicalResult visit(GlobalAccessOp op);
  LogicalResult visit(SharedAccessOp op);
  LogicalResult visitRegions(Operation *op);
  LogicalResult visitLoop(scf::ForOp op);
  LogicalResult visitBranch(scf::IfOp op);
  LogicalResult visitRoles(scf::IfOp op, IntegerAttr consumers);
  /// Visits a region that only some threads come by.
  LogicalResult visitApart(Region &region);

  // In front of an operation:
  /// Lets all threads wait for each other.
  LogicalResult insertBarrier(Operation *op);
  /// What a barrier takes: no wgmma reads shared memory any more, and all sees
  /// what was written there.
  LogicalResult prepareBarrier(Operation *op);
  /// Waits until all threads may access a piece.
  LogicalResult awaitPiece(Operation *op, const Piece &piece);
  LogicalResult read(Operation *op, const Piece &piece);
  LogicalResult waitAll(Operation *op);
  /// Waits for a group of wgmma, and those before it; of all without one.
  LogicalResult awaitWgmma(Operation *op, WgmmaCommitOp last = {});

  LLVM::LLVMFuncOp func;
  bool usesWgmma;
  /// Arguments that the kernel both reads and writes.
  llvm::DenseSet<Value> readAndWritten;
  Pending pending;
  /// Groups of wgmma in flight, in order.
  SmallVector<WgmmaCommitOp> wgmmaGroups;
  /// The threads that meet at barriers, if not all; and whether not all of
  /// these come by.
  IntegerAttr threads;
  bool isApart = false;
};
} // namespace

BarrierInserter::BarrierInserter(LLVM::LLVMFuncOp func) : func(func) {
  usesWgmma = func.walk([](WgmmaCommitOp) { return WalkResult::interrupt(); })
                  .wasInterrupted();
  llvm::DenseSet<Value> read;
  func.walk([&](GlobalAccessOp op) {
    if (op.getKind() == AccessKind::Read)
      read.insert(op.getPointer());
  });
  func.walk([&](GlobalAccessOp op) {
    if (op.getKind() == AccessKind::Write && read.contains(op.getPointer()))
      readAndWritten.insert(op.getPointer());
  });
}

//===----------------------------------------------------------------------===//
// Waits
//===----------------------------------------------------------------------===//

static LogicalResult refuse(Operation *op, StringRef what) {
  return op->emitError("needs ")
         << what << ", but not all threads of the block come by";
}

LogicalResult BarrierInserter::prepareBarrier(Operation *op) {
  if (isApart)
    return refuse(op, "a barrier");
  if (failed(awaitWgmma(op)))
    return failure();
  // Warpgroups read shared memory through another path than threads write it.
  OpBuilder builder(op);
  if (usesWgmma && !pending.unseen.empty())
    FenceAsyncOp::create(builder, op->getLoc());
  pending = Pending{{}, {}, false, std::move(pending.copies), {}, false};
  return success();
}

LogicalResult BarrierInserter::insertBarrier(Operation *op) {
  if (failed(prepareBarrier(op)))
    return failure();
  OpBuilder builder(op);
  BarrierOp::create(builder, op->getLoc(), threads);
  return success();
}

LogicalResult BarrierInserter::awaitPiece(Operation *op, const Piece &piece) {
  auto isFilled = [&](const Piece &copy) { return copy.meets(piece); };
  auto *last = llvm::find_if(llvm::reverse(pending.copies), isFilled).base();
  if (last != pending.copies.begin()) {
    OpBuilder builder(op);
    AsyncWaitOp::create(builder, op->getLoc(),
                        int32_t(pending.copies.end() - last));
    llvm::copy_if(llvm::make_range(pending.copies.begin(), last),
                  std::back_inserter(pending.unseen), isKnown);
    pending.copies.erase(pending.copies.begin(), last);
    if (llvm::none_of(pending.copies, isKnown))
      pending.copies.clear();
  }
  return meetsAny(pending.unseen, piece) ? insertBarrier(op) : success();
}

LogicalResult BarrierInserter::read(Operation *op, const Piece &piece) {
  if (failed(awaitPiece(op, piece)))
    return failure();
  pending.sharedRead = true;
  return success();
}

LogicalResult BarrierInserter::waitAll(Operation *op) {
  if (!pending.copies.empty()) {
    Piece last = *llvm::find_if(llvm::reverse(pending.copies), isKnown);
    return read(op, last);
  }
  return pending.unseen.empty() ? success() : insertBarrier(op);
}

LogicalResult BarrierInserter::awaitWgmma(Operation *op, WgmmaCommitOp last) {
  auto *end = last ? llvm::find(wgmmaGroups, last) : wgmmaGroups.end();
  if (last && end != wgmmaGroups.end())
    ++end;
  else if (last || wgmmaGroups.empty())
    return success();
  SmallVector<Value> sums;
  for (WgmmaCommitOp done : llvm::make_range(wgmmaGroups.begin(), end)) {
    if (done->getBlock() != op->getBlock())
      return refuse(op, "a wait for wgmma");
    llvm::append_range(sums, done.getResults());
  }
  OpBuilder builder(op);
  auto wait =
      WgmmaWaitOp::create(builder, op->getLoc(), TypeRange(ValueRange(sums)),
                          int32_t(wgmmaGroups.end() - end), sums);
  for (auto [sum, result] : llvm::zip_equal(sums, wait.getResults()))
    sum.replaceAllUsesExcept(result, wait);
  wgmmaGroups.erase(wgmmaGroups.begin(), end);
  return success();
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// A kernel that reads what it has written needs the writes of all threads. An
/// output may lie in the memory of an input whose elements are read before: a
/// thread that writes the elements that it has read itself needs no barrier. Of
/// two writes of one element the later one counts.
LogicalResult BarrierInserter::visit(GlobalAccessOp op) {
  if (op.getKind() == AccessKind::Read) {
    if (pending.stored && readAndWritten.contains(op.getPointer()) &&
        failed(insertBarrier(op)))
      return failure();
    pending.reads.insert(op);
    return success();
  }
  auto isOther = [&](GlobalAccessOp other) {
    return !haveSameOwners(other, op);
  };
  auto overtakes = [&](GlobalAccessOp other) {
    return other.getPointer() == op.getPointer() && isOther(other);
  };
  if ((llvm::any_of(pending.reads, isOther) ||
       llvm::any_of(pending.writes, overtakes)) &&
      (failed(waitAll(op)) || failed(insertBarrier(op))))
    return failure();
  pending.writes.insert(op);
  pending.stored = true;
  return success();
}

LogicalResult BarrierInserter::visit(SharedAccessOp op) {
  Piece piece{int64_t(op.getBytes()), int64_t(op.getOffset())};
  if (op.getKind() == SharedAccessKind::Read)
    return read(op, piece);
  if (op.getKind() != SharedAccessKind::Arrive) {
    if (failed(awaitPiece(op, piece)) ||
        (pending.sharedRead && failed(insertBarrier(op))))
      return failure();
  }
  if (op.getKind() != SharedAccessKind::Copy)
    pending.unseen.push_back(piece);
  return success();
}

LogicalResult BarrierInserter::visit(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<GlobalAccessOp, SharedAccessOp>(
          [&](auto access) { return visit(access); })
      .Case([&](ReuseOp reuse) { return insertBarrier(reuse); })
      .Case([&](BarrierOp barrier) {
        barrier.setThreadsAttr(threads);
        return prepareBarrier(barrier);
      })
      .Case([&](AnyThreadOp any) -> LogicalResult {
        if (isApart)
          return refuse(any, "all votes");
        any.setThreadsAttr(threads);
        // It is a barrier, but without the fence that warpgroups need.
        pending.reads.clear();
        pending.writes.clear();
        pending.stored = false;
        return success();
      })
      .Case([&](AsyncCommitOp commit) {
        if (commit.getBytes())
          pending.copies.push_back(
              {int64_t(*commit.getBytes()), int64_t(*commit.getOffset())});
        else if (!pending.copies.empty())
          pending.copies.push_back({0, 0});
        return success();
      })
      .Case([&](WgmmaCommitOp commit) -> LogicalResult {
        if (isApart)
          return refuse(commit, "whole warpgroups");
        wgmmaGroups.push_back(commit);
        return success();
      })
      .Case([&](WgmmaUseOp use) {
        auto commit = use.getValue()
                          ? use.getValue().getDefiningOp<WgmmaCommitOp>()
                          : WgmmaCommitOp();
        return use.getValue() && !commit ? success() : awaitWgmma(use, commit);
      })
      .Default([&](Operation *other) { return visitRegions(other); });
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

LogicalResult BarrierInserter::visit(Region &region) {
  for (Block &block : region)
    for (Operation &op : block)
      if (failed(visit(&op)))
        return failure();
  return success();
}

LogicalResult BarrierInserter::visitApart(Region &region) {
  llvm::SaveAndRestore saved(isApart, true);
  return visit(region);
}

LogicalResult BarrierInserter::visitRegions(Operation *op) {
  auto branch = dyn_cast<scf::IfOp>(op);
  if (auto consumers = op->getAttrOfType<IntegerAttr>(kConsumersAttr))
    return visitRoles(branch, consumers);
  auto uniform = op->getAttrOfType<StringAttr>(kUniformAttr);
  if (uniform && branch)
    return visitBranch(branch);
  if (uniform && uniform == "block")
    return visitLoop(cast<scf::ForOp>(op));
  // What some threads do alone; nothing says that they do it all.
  for (Region &region : op->getRegions())
    if (failed(visitApart(region)))
      return failure();
  return success();
}

LogicalResult BarrierInserter::visitLoop(scf::ForOp op) {
  if (failed(waitAll(op)) || failed(awaitWgmma(op)))
    return failure();
  // What an iteration reads last, the next one may write first. A barrier in
  // the loop is none if it does not run.
  op.walk([&](GlobalAccessOp access) {
    bool reads = access.getKind() == AccessKind::Read;
    (reads ? pending.reads : pending.writes).insert(access);
  });
  op.walk([&](SharedAccessOp access) {
    pending.sharedRead |= access.getKind() == SharedAccessKind::Read;
  });
  pending.stored = true;
  Pending around = pending;
  Operation *end = op.getBody()->getTerminator();
  if (failed(visit(op.getRegion())) || failed(waitAll(end)) ||
      failed(awaitWgmma(end)))
    return failure();
  pending.join(around);
  return success();
}

LogicalResult BarrierInserter::visitBranch(scf::IfOp op) {
  bool apart = op->getAttrOfType<StringAttr>(kUniformAttr) != "block";
  // In front of the branch: behind it nobody waits again.
  if (failed(waitAll(op)) || failed(awaitWgmma(op)))
    return failure();
  Pending before = pending, after;
  for (Region *region : {&op.getThenRegion(), &op.getElseRegion()}) {
    pending = before;
    if (!region->empty()) {
      llvm::SaveAndRestore saved(isApart, isApart || apart);
      Operation *end = region->front().getTerminator();
      if (failed(visit(*region)) || failed(waitAll(end)) ||
          failed(awaitWgmma(end)))
        return failure();
    }
    after.join(pending);
  }
  pending = std::move(after);
  return success();
}

LogicalResult BarrierInserter::visitRoles(scf::IfOp op, IntegerAttr consumers) {
  if (failed(waitAll(op)) || failed(awaitWgmma(op)))
    return failure();
  Pending before = pending;
  if (failed(visitApart(op.getElseRegion())))
    return failure();
  // The others copy what nobody writes.
  pending = std::move(before);
  llvm::SaveAndRestore saved(threads, consumers);
  return visit(op.getThenRegion());
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct InsertBarriers : nsa::impl::TileGPUInsertBarriersBase<InsertBarriers> {
  void runOnOperation() override {
    LLVM::LLVMFuncOp func = getOperation();
    if (failed(BarrierInserter(func).run()))
      return signalPassFailure();
    func.walk([](Operation *op) {
      if (isa<scf::ForOp, scf::IfOp>(op)) {
        op->removeAttr(kUniformAttr);
        op->removeAttr(kConsumersAttr);
      }
      if (isa<GlobalAccessOp, SharedAccessOp, ReuseOp, WgmmaUseOp>(op))
        op->erase();
    });
  }
};
} // namespace
