//===- OverlapLaunches.cpp - kernels that begin early ---------------------===//

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/TileGPUToNVVM/ConvertKernel.h"
#include "passes/TileGPUToNVVM/ThreadBuilder.h"

using namespace mlir;
using namespace nsa::cuda;

/// The argument that an address is computed from, or null.
static BlockArgument getArgument(Value address) {
  while (auto element = address.getDefiningOp<LLVM::GEPOp>())
    address = element.getBase();
  return dyn_cast<BlockArgument>(address);
}

static bool isInShared(Value address) {
  auto type = dyn_cast<LLVM::LLVMPointerType>(address.getType());
  return type && type.getAddressSpace() ==
                     static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared);
}

/// What reads or writes registers and shared memory, or waits for threads.
static bool isInsideBlock(Operation &op) {
  if (auto load = dyn_cast<LLVM::LoadOp>(op))
    return isInShared(load.getAddr());
  if (auto store = dyn_cast<LLVM::StoreOp>(op))
    return isInShared(store.getAddr());
  if (auto call = dyn_cast<LLVM::CallIntrinsicOp>(op))
    return call.getIntrin() == "llvm.nvvm.ex2.approx.ftz.f";
  return isa<NVVM::LdMatrixOp, NVVM::MmaOp, NVVM::ShflOp,
             nsa::tile_gpu::BarrierOp, nsa::tile_gpu::FenceAsyncOp,
             nsa::tile_gpu::AsyncCommitOp, nsa::tile_gpu::AsyncWaitOp>(op);
}

/// Whether the operation may come before the earlier launches have ended.
static bool isIndependent(Operation &op, ArrayRef<int64_t> settled) {
  auto isSettled = [&](Value address) {
    BlockArgument argument = getArgument(address);
    return argument &&
           isa<LLVM::LLVMFuncOp>(argument.getOwner()->getParentOp()) &&
           llvm::is_contained(settled, argument.getArgNumber());
  };
  if (auto load = dyn_cast<LLVM::LoadOp>(op); load && isSettled(load.getAddr()))
    return true;
  if (auto copy = dyn_cast<NVVM::CpAsyncOp>(op))
    return isSettled(copy.getSrc());
  if (isInsideBlock(op))
    return true;
  if (!isa<scf::IfOp, scf::ForOp>(op))
    return op.getNumRegions() == 0 && isMemoryEffectFree(&op);
  return llvm::all_of(op.getRegions(), [&](Region &region) {
    return llvm::all_of(region.getOps(), [&](Operation &inner) {
      return isIndependent(inner, settled);
    });
  });
}

/// Inline assembly: the intrinsics are marked as not touching memory, so that
/// accesses could be moved across them.
static void createControl(ImplicitLocOpBuilder &b, StringRef action) {
  Assembly control;
  control.text = ("griddepcontrol." + action + ";").str();
  control.ordersMemory = true;
  control.create(b);
}

/// Whether a branch is the guard of an access to global memory, as each thread
/// has its own, and not one that the block takes.
static bool isGuard(scf::IfOp branch) {
  bool accesses = false, waits = false;
  branch->walk([&](Operation *op) {
    if (auto load = dyn_cast<LLVM::LoadOp>(op))
      accesses |= !isInShared(load.getAddr());
    if (auto store = dyn_cast<LLVM::StoreOp>(op))
      accesses |= !isInShared(store.getAddr());
    waits |= isa<nsa::tile_gpu::BarrierOp>(op);
  });
  return !branch.elseBlock() && accesses && !waits;
}

/// Waits in the block, or in the branches of the condition where its first
/// operation is that depends on other launches.
static void waitIn(Block &body, ArrayRef<int64_t> settled, bool late) {
  Operation *first = &*llvm::find_if(body, [&](Operation &op) {
    return op.hasTrait<OpTrait::IsTerminator>() || !isIndependent(op, settled);
  });
  if (auto condition = dyn_cast<scf::IfOp>(first);
      condition && !isGuard(condition)) {
    if (!condition.elseBlock()) {
      auto b = ImplicitLocOpBuilder(condition.getLoc(), condition);
      b.createBlock(&condition.getElseRegion());
      scf::YieldOp::create(b);
    }
    waitIn(*condition.thenBlock(), settled, late);
    return waitIn(*condition.elseBlock(), settled, late);
  }
  ImplicitLocOpBuilder b(first->getLoc(), first);
  createControl(b, "wait");
  if (late)
    createControl(b, "launch_dependents");
}

void nsa::cuda::overlapLaunches(LLVM::LLVMFuncOp function,
                                ArrayRef<int64_t> settled, bool late) {
  Block &body = function.front();
  waitIn(body, settled, late);
  if (late)
    return;
  auto b = ImplicitLocOpBuilder::atBlockBegin(function.getLoc(), &body);
  createControl(b, "launch_dependents");
}

/// The number of the program among all.
static Value getProgram(ThreadBuilder &b, ArrayRef<int32_t> grid) {
  Value row = arith::AddIOp::create(
      b, arith::MulIOp::create(b, b.blockId(2), b.i32(grid[1])), b.blockId(1));
  return arith::AddIOp::create(b, arith::MulIOp::create(b, row, b.i32(grid[0])),
                               b.blockId(0));
}

void nsa::cuda::prefetchArguments(LLVM::LLVMFuncOp function,
                                  ArrayRef<int64_t> ranges,
                                  ArrayRef<int32_t> grid) {
  ThreadBuilder b(function.getLoc(), &function.front().front());
  Value program = getProgram(b, grid);
  int64_t programs = int64_t(grid[0]) * grid[1] * grid[2];
  for (size_t i = 0; i + 2 < ranges.size(); i += 3) {
    int64_t begin = ranges[i + 1], bytes = ranges[i + 2];
    auto share = static_cast<int64_t>(
        llvm::alignTo(llvm::divideCeil(bytes, programs), 128));
    Value offset = arith::MulIOp::create(b, program, b.i32(share));
    Value size = arith::MinSIOp::create(
        b, b.i32(share), arith::SubIOp::create(b, b.i32(bytes), offset));
    Value address = b.advance(function.getArgument(unsigned(ranges[i])),
                              arith::AddIOp::create(b, b.i32(begin), offset));
    // One thread asks, if there is something left for the program.
    Assembly prefetch;
    prefetch.text = "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; "
                    "setp.eq.u32 p, t, 0; setp.gt.and.s32 p, $1, 0, p; "
                    "@p cp.async.bulk.prefetch.L2.global [$0], $1; }";
    prefetch.inputs = {address, size};
    prefetch.create(b);
  }
}
