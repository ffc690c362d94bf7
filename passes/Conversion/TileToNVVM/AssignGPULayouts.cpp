//===- AssignGPULayouts.cpp - blocked layouts and mma versions ------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Remarks.h"
#include "passes/Conversion/TileToNVVM/BlockedLayout.h"
#include "passes/Conversion/TileToNVVM/MmaLayout.h"
#include "passes/Conversion/TileToNVVM/MmaVersions.h"
#include "passes/Conversion/TileToNVVM/Passes.h"
#include "passes/Conversion/TileToNVVM/ProducerPlan.h"
#include "passes/Conversion/TileToNVVM/SinkRows.h"

namespace nsa {
#define GEN_PASS_DEF_TILEGPUASSIGNLAYOUTS
#include "passes/Conversion/TileToNVVM/Passes.h.inc"
} // namespace nsa

#define DEBUG_TYPE "tile-gpu-assign-layouts"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// Says why an operation is not compiled as well as others are.
static void noteMissed(Operation *op, StringRef name, StringRef what,
                       StringRef obstacle) {
  remark::missed(op->getLoc(),
                 remark::RemarkOpts::name(name)
                     .category(DEBUG_TYPE)
                     .function(op->getParentOfType<KernelOp>().getSymName()))
      << remark::reason("{0}: {1}", what, obstacle);
}

//===----------------------------------------------------------------------===//
// Branches of warps
//===----------------------------------------------------------------------===//

/// Why warps cannot take the branches on `any` alone, or nothing.
static std::string findObstacle(AnyOp any) {
  for (Operation *user : any->getUsers()) {
    if (!isa<scf::IfOp>(user))
      return "it is not only the condition of branches";
    std::string obstacle = nsa::tile_gpu::findWarpBranchObstacle(
        any.getInput(), user->getResultTypes(), user->getRegions());
    if (!obstacle.empty())
      return obstacle;
  }
  return "";
}

static void makeWarpBranch(scf::IfOp branch, Value rows) {
  OpBuilder b(branch);
  auto own = nsa::tile_gpu::WarpIfOp::create(b, branch.getLoc(),
                                             branch.getResultTypes(), rows);
  for (auto [from, to] : llvm::zip(branch->getRegions(), own->getRegions())) {
    to.takeBody(from);
    auto yield = cast<scf::YieldOp>(to.front().getTerminator());
    b.setInsertionPoint(yield);
    nsa::tile_gpu::YieldOp::create(b, yield.getLoc(), yield.getOperands());
    yield.erase();
  }
  branch.replaceAllUsesWith(own);
  branch.erase();
}

/// Where a branch leaves rows alone that did not ask for it, a warp without
/// such rows skips it: nothing inside may be a matter of several warps.
static void makeWarpBranches(KernelOp kernel) {
  SmallVector<AnyOp> votes;
  kernel.walk([&](AnyOp any) {
    if (any.getWarpUniform())
      votes.push_back(any);
  });
  for (AnyOp any : votes) {
    if (std::string obstacle = findObstacle(any); !obstacle.empty()) {
      noteMissed(any, "Branch", "not for each warp alone", obstacle);
      continue;
    }
    for (Operation *user : llvm::make_early_inc_range(any->getUsers()))
      makeWarpBranch(cast<scf::IfOp>(user), any.getInput());
    any.erase();
  }
}

//===----------------------------------------------------------------------===//
// Operands in shared memory
//===----------------------------------------------------------------------===//

/// Lets operands a of dots stay in shared memory where sums leave no
/// registers for them: reading them again costs a few of many ldmatrix. And
/// those of warpgroups, which take no time to read; and all of kernels whose
/// first schedules had too many registers.
static void keepInSharedMemory(LoadOp load, bool wgmma, bool isLater) {
  int64_t manyRegisters = isLater ? 0 : 64;
  if (!MmaLayout(load.getResult()).isPacked() || !getCopyWidth(load) ||
      cast<TileType>(load.getType()).getShape().size() != 2)
    return;
  for (Value index : load.getIndices())
    if (isa<TileType>(index.getType()) && !isRematerialized(index.getType()))
      return;
  for (OpOperand &use : load->getUses()) {
    auto dot = dyn_cast<DotOp>(use.getOwner());
    if (!dot || use.getOperandNumber() != 0)
      return;
    bool isOfWarpgroups =
        wgmma && MmaLayout(dot.getResult()).warps % warpsOfGroup == 0;
    if (!isOfWarpgroups &&
        countSums(dot->getParentOfType<scf::ForOp>()) < manyRegisters)
      return;
  }
  auto type = cast<TileType>(load.getType());
  load.getResult().setType(type.withLayout(SharedAttr::get(load.getContext())));
}

/// Whether all that an operation makes are MMA tiles of one row, of integers
/// that are computed elsewhere, too.
static bool makesIntegerRows(Operation *op) {
  return isa<LoadOp, MapOp>(op) &&
         llvm::all_of(op->getResultTypes(), [](Type type) {
           auto tile = dyn_cast<TileType>(type);
           return hasMmaLayout(type) && tile.getRows() == 1 &&
                  tile.getElementType().isInteger();
         });
}

/// Gives dots a load of their own where a wide tile is operand a of theirs and
/// stays in registers for others, too: those of the dots may be elsewhere.
static LoadOp splitForDots(LoadOp load) {
  constexpr int64_t wide = 192;
  if (cast<TileType>(load.getType()).getCols() < wide)
    return {};
  auto isLeftOfDot = [](OpOperand &use) {
    return isa<DotOp>(use.getOwner()) && use.getOperandNumber() == 0;
  };
  auto uses = load.getResult().getUses();
  if (llvm::all_of(uses, isLeftOfDot) || llvm::none_of(uses, isLeftOfDot))
    return {};
  OpBuilder builder(load);
  auto own = cast<LoadOp>(builder.clone(*load));
  load.getResult().replaceUsesWithIf(own.getResult(), isLeftOfDot);
  return own;
}

static void promoteOperands(KernelOp kernel, bool wgmma) {
  SmallVector<LoadOp> loads;
  kernel.walk([&](LoadOp load) {
    if (hasMmaLayout(load.getType()))
      loads.push_back(load);
  });
  // Warps that pass blocks by need the memory of two for their ring.
  auto isInWarpBranches = [](LoadOp load) {
    return llvm::any_of(load->getUsers(), [](Operation *user) {
      return bool(user->getParentOfType<nsa::tile_gpu::WarpIfOp>());
    });
  };
  auto schedule = kernel->getAttrOfType<DictionaryAttr>(nsa::kScheduleAttr);
  bool isLater =
      schedule && schedule.get("number") !=
                      Builder(kernel.getContext()).getI64IntegerAttr(0);
  if (isLater)
    for (size_t i = 0, end = loads.size(); i < end; ++i)
      if (LoadOp own = splitForDots(loads[i]))
        loads.push_back(own);
  bool staysOut = llvm::count_if(loads, isInWarpBranches) > 1;
  for (LoadOp load : loads)
    if (!staysOut || !isInWarpBranches(load))
      keepInSharedMemory(load, wgmma, isLater);
  kernel.walk([](scf::ForOp loop) { sinkRows(loop, makesIntegerRows); });
}

//===----------------------------------------------------------------------===//
// Versions of mma
//===----------------------------------------------------------------------===//

/// Writes on each dot of MMA tiles which instructions it becomes.
static void assignMma(KernelOp kernel, bool wgmma) {
  kernel.walk([&](DotOp op) {
    if (!hasMmaLayout(op.getType()))
      return;
    std::string obstacle;
    if (wgmma)
      obstacle = findWgmmaObstacle(op);
    int64_t version = wgmma && obstacle.empty() ? 3 : 2;
    op->setAttr(nsa::tile_gpu::kMmaAttr,
                nsa::tile_gpu::MmaAttr::get(op.getContext(), version));
    if (!obstacle.empty())
      noteMissed(op, "Product", "not on warpgroups", obstacle);
  });
}

//===----------------------------------------------------------------------===//
// Blocked layouts
//===----------------------------------------------------------------------===//

/// How many warps the MMA tiles of `kernel` lie in; 0 if it has none. Fails if
/// they do not agree.
static FailureOr<int64_t> getMmaWarps(KernelOp kernel) {
  int64_t warps = 0;
  auto check = [&](Type type, Operation *op) -> LogicalResult {
    if (!hasMmaLayout(type))
      return success();
    int64_t own = MmaLayout(cast<TileType>(type)).warps;
    if (warps && own != warps)
      return op->emitOpError("spreads a tile over ")
             << own << " warps, but others of the kernel lie in " << warps;
    warps = own;
    return success();
  };
  WalkResult result = kernel.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (failed(check(type, op)))
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  return warps;
}

/// Gives tiles without a layout the one that is planned for their shape.
static void assignBlocked(KernelOp kernel, int64_t wanted) {
  BlockedLayoutPlan plan(kernel, wanted);
  auto assign = [&](Value value) {
    auto tile = dyn_cast<TileType>(value.getType());
    if (!tile || tile.getLayout())
      return;
    BlockedLayout blocked = plan.get(tile);
    value.setType(tile.withLayout(
        nsa::tile_gpu::BlockedAttr::get(kernel.getContext(), blocked.threads,
                                        blocked.threadsPerRow, blocked.width)));
  };
  kernel.walk([&](Operation *op) {
    llvm::for_each(op->getResults(), assign);
    if (auto loop = dyn_cast<scf::ForOp>(op))
      llvm::for_each(loop.getRegionIterArgs(), assign);
  });
  kernel->setAttr(nsa::tile_gpu::kThreadsAttr,
                  Builder(kernel.getContext())
                      .getI32IntegerAttr(int32_t(plan.getThreads())));
}

namespace {
struct AssignGPULayouts
    : nsa::impl::TileGPUAssignLayoutsBase<AssignGPULayouts> {
  using TileGPUAssignLayoutsBase::TileGPUAssignLayoutsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (threads != 0 && !nsa::tile_gpu::isBlockSize(threads)) {
      module.emitError("a block cannot have ")
          << threads.getValue()
          << " threads; multiples of 32 up to 1024 are possible";
      return signalPassFailure();
    }
    for (KernelOp kernel : module.getOps<KernelOp>()) {
      FailureOr<int64_t> warps = getMmaWarps(kernel);
      if (failed(warps))
        return signalPassFailure();
      makeWarpBranches(kernel);
      promoteOperands(kernel, wgmma);
      assignMma(kernel, wgmma);
      assignBlocked(kernel, *warps ? 32 * *warps : int64_t(threads));
    }
  }
};
} // namespace
