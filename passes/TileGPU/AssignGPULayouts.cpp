//===- AssignGPULayouts.cpp - blocked layouts and mma versions ------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Remarks.h"
#include "passes/TileGPU/GlobalAccesses.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileGPU/ProducerPlan.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/TileUtils.h"

namespace nsa {
#define GEN_PASS_DEF_TILEGPUASSIGNLAYOUTS
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

#define DEBUG_TYPE "tile-gpu-assign-layouts"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

/// Emits a missed remark with the reason.
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
    std::string obstacle = findWarpBranchObstacle(
        any.getInput(), user->getResultTypes(), user->getRegions());
    if (!obstacle.empty())
      return obstacle;
  }
  return "";
}

static void makeWarpBranch(scf::IfOp branch, Value rows) {
  OpBuilder b(branch);
  auto own =
      WarpIfOp::create(b, branch.getLoc(), branch.getResultTypes(), rows);
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

/// A branch that does not change rows whose condition is false can be skipped
/// by a warp without true ones, if nothing inside involves several warps.
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
  if (!RegisterLayout(load.getResult()).isPacked() || !getCopyWidth(load) ||
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
        wgmma && RegisterLayout(dot.getResult()).warps() % warpsOfGroup == 0;
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
  // Kernels with per-warp skips need the memory of two CTAs for their stages.
  auto isInWarpBranches = [](LoadOp load) {
    return llvm::any_of(load->getUsers(), [](Operation *user) {
      return bool(user->getParentOfType<WarpIfOp>());
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

/// Sets the MMA version of each dot of MMA tiles.
static void assignMma(KernelOp kernel, bool wgmma) {
  kernel.walk([&](DotOp op) {
    if (!hasMmaLayout(op.getType()))
      return;
    std::string obstacle;
    if (wgmma)
      obstacle = findWgmmaObstacle(op);
    int64_t version = wgmma && obstacle.empty() ? 3 : 2;
    op->setAttr(kMmaAttr, MmaAttr::get(op.getContext(), version));
    if (!obstacle.empty())
      noteMissed(op, "Product", "not on warpgroups", obstacle);
  });
}

//===----------------------------------------------------------------------===//
// Blocked layouts
//===----------------------------------------------------------------------===//

namespace {
/// How the tiles of a kernel without layouts are to be laid out. Tiles with the
/// same number of columns have the same pieces of them, so that a row need not
/// be exchanged to meet several. What is moved from and to memory decides how
/// long pieces are.
class BlockedLayoutPlan {
public:
  /// With 0 threads chooses their number.
  BlockedLayoutPlan(KernelOp kernel, int64_t threads);

  int64_t getThreads() const { return threads; }
  BlockedAttr get(TileType type) const;

private:
  void noteShapes(KernelOp kernel);
  void noteAccess(Value ref, ValueRange indices, Type accessed);
  int64_t pickThreads() const;
  int64_t getThreadsPerRow(int64_t rows, int64_t cols) const;
  /// The columns that lie together, given enough of them for all threads.
  int64_t getWidth(int64_t cols) const;

  int64_t threads;
  /// Whether an operation reads single elements of what others hold.
  bool readsElements = false;
  /// Shapes of lists that lie in one thread each.
  SmallVector<std::pair<int64_t, int64_t>> lists;
  /// By the number of columns: how many can be moved together, and the most
  /// rows. By the number of rows: the most columns.
  llvm::DenseMap<int64_t, int64_t> together, tallest, widest;
};
} // namespace

static constexpr int64_t kMostThreads = 256;

/// From how many lists on, and up to which length, a thread has whole ones.
static constexpr int64_t kFewestLists = 32, kLongestList = 16;

static int64_t ceilPowerOf2(int64_t number) {
  return int64_t(llvm::PowerOf2Ceil(uint64_t(number)));
}

BlockedLayoutPlan::BlockedLayoutPlan(KernelOp kernel, int64_t wanted)
    : threads(wanted) {
  noteShapes(kernel);
  if (!threads)
    threads = pickThreads();
}

void BlockedLayoutPlan::noteShapes(KernelOp kernel) {
  kernel.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (auto tile = dyn_cast<TileType>(type); tile && !tile.getLayout()) {
        readsElements |= isa<DotOp, TransposeOp, TopNOp, SortOp>(op);
        int64_t rows = tile.getRows(), cols = tile.getCols();
        tallest[cols] = std::max(tallest[cols], rows);
        widest[rows] = std::max(widest[rows], cols);
        if (isa<TopNOp>(op) && rows >= kFewestLists && cols <= kLongestList)
          lists.emplace_back(rows, cols);
      }
    if (auto load = dyn_cast<LoadOp>(op))
      noteAccess(load.getRef(), load.getIndices(), load.getType());
    if (auto store = dyn_cast<StoreOp>(op))
      noteAccess(store.getRef(), store.getIndices(),
                 store.getValue().getType());
  });
}

void BlockedLayoutPlan::noteAccess(Value ref, ValueRange indices,
                                   Type accessed) {
  auto tile = dyn_cast<TileType>(accessed);
  if (!tile || tile.getLayout())
    return;
  int64_t &most = together[tile.getCols()];
  most = std::max(
      most, getAccessWidth(ref, indices, getMostTogether(ref, tile.getCols())));
}

/// Enough threads that each has one piece of the largest tile or a few, and as
/// few as give all of them equally many.
int64_t BlockedLayoutPlan::pickThreads() const {
  int64_t largest = 1, cols = 1;
  for (auto [c, r] : tallest)
    if (r * c > largest)
      largest = r * c, cols = c;
  if (readsElements)
    return largest >= 4096 ? 256 : 128;
  int64_t pieces = largest / std::max<int64_t>(together.lookup(cols), 1);
  if (pieces <= kWarp)
    return kWarp;
  if (largest > cols)
    return std::min(int64_t(llvm::bit_floor(uint64_t(pieces))), kMostThreads);
  if (pieces <= kMostThreads)
    return static_cast<int64_t>(llvm::alignTo(pieces, kWarp));
  for (int64_t count = kMostThreads; count > kMostThreads / 2; count -= kWarp)
    if (pieces % count == 0)
      return count;
  return kMostThreads;
}

int64_t BlockedLayoutPlan::getWidth(int64_t cols) const {
  if (readsElements)
    return 1;
  int64_t width = std::max<int64_t>(together.lookup(cols), 1);
  while (width > 1 && tallest.lookup(cols) * cols / width < threads)
    width /= 2;
  return width;
}

int64_t BlockedLayoutPlan::getThreadsPerRow(int64_t rows, int64_t cols) const {
  if (cols == 1) {
    int64_t most = widest.lookup(rows);
    if (rows == 1)
      return threads;
    return most > 1 ? getThreadsPerRow(rows, most) : 1;
  }
  if (rows == 1) {
    int64_t most = tallest.lookup(cols);
    return most > 1 ? getThreadsPerRow(most, cols) : threads;
  }
  int64_t pieces = llvm::divideCeil(cols, getWidth(cols));
  int64_t covering = std::min(ceilPowerOf2(pieces), kWarp);
  int64_t threadsPerRow = std::min(pieces & -pieces, kWarp);
  // Short ranges of memory cost more than threads without work.
  if (threadsPerRow < 4)
    threadsPerRow = covering;
  while (threadsPerRow < covering &&
         threads / threadsPerRow > ceilPowerOf2(rows))
    threadsPerRow *= 2;
  return threadsPerRow;
}

BlockedAttr BlockedLayoutPlan::get(TileType type) const {
  int64_t rows = type.getRows(), cols = type.getCols();
  if (llvm::is_contained(lists, std::pair(rows, cols)))
    return BlockedAttr::get(type.getContext(), threads, /*threads_per_row=*/1,
                            std::min<int64_t>(cols & -cols, 4));
  return BlockedAttr::get(type.getContext(), threads,
                          getThreadsPerRow(rows, cols),
                          cols == 1 ? 1 : getWidth(cols));
}

/// How many warps the MMA tiles of `kernel` lie in; 0 if it has none. Fails if
/// they do not agree.
static FailureOr<int64_t> getMmaWarps(KernelOp kernel) {
  int64_t warps = 0;
  WalkResult result = kernel.walk([&](Operation *op) -> WalkResult {
    for (Type type :
         llvm::make_filter_range(op->getResultTypes(), hasMmaLayout)) {
      int64_t own = RegisterLayout(cast<TileType>(type)).warps();
      if (warps && own != warps)
        return op->emitOpError("spreads a tile over ")
               << own << " warps, but others of the kernel lie in " << warps;
      warps = own;
    }
    return success();
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
    value.setType(tile.withLayout(plan.get(tile)));
  };
  kernel.walk([&](Operation *op) {
    llvm::for_each(op->getResults(), assign);
    if (auto loop = dyn_cast<scf::ForOp>(op))
      llvm::for_each(loop.getRegionIterArgs(), assign);
  });
  kernel->setAttr(kThreadsAttr,
                  Builder(kernel.getContext())
                      .getI32IntegerAttr(int32_t(plan.getThreads())));
}

namespace {
struct AssignGPULayouts
    : nsa::impl::TileGPUAssignLayoutsBase<AssignGPULayouts> {
  using TileGPUAssignLayoutsBase::TileGPUAssignLayoutsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (threads != 0 && !isBlockSize(threads)) {
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
