//===- LayoutAnalysis.cpp - where the tiles of a kernel belong ------------===//

#include "passes/TileGPU/LayoutAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/TileGPU/GlobalAccesses.h"
#include "passes/TileGPU/Prefetch.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/TileUtils.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

LayoutAnalysis::LayoutAnalysis(KernelOp kernel, int64_t warps, bool wgmma)
    : kernel(kernel), warps(warps) {
  findProducts(wgmma);
  if (dots.empty())
    return;
  findRecomputed();
  placeOperands();
  couple();
  propagate();
}

Attribute LayoutAnalysis::mmaLayout() const {
  return MmaLayoutAttr::get(kernel->getContext(), warps);
}

//===----------------------------------------------------------------------===//
// Dots
//===----------------------------------------------------------------------===//

/// Why tensor cores cannot do a dot, or nothing.
static std::string findObstacle(DotOp dot) {
  TileType a = dot.getA().getType(), acc = dot.getAcc().getType();
  int64_t length = dot.getTransposeA() ? a.getRows() : a.getCols();
  if (a.getElementType().isF32())
    return "its operands are f32, not bf16 or f16";
  if (acc.getCols() % 8 != 0)
    return llvm::formatv("its {0} columns are no multiple of 8", acc.getCols());
  if (length % 16 != 0)
    return llvm::formatv("the {0} elements of each sum are no multiple of 16",
                         length);
  if (acc.getRows() < 8)
    return llvm::formatv(
        "its {0} rows fill less than half of the 16 of an M-tile",
        acc.getRows());
  return "";
}

/// As many as there are M-tiles for, up to 8, if no more than an eighth of the
/// work is on rows that do not exist.
static int64_t chooseWarps(int64_t mTiles, bool wgmma) {
  // Whole warpgroups, up to three with one or two M-tiles for each warp.
  for (int64_t groups : {3, 2, 1})
    if (int64_t warps = warpsOfGroup * groups;
        wgmma && mTiles % warps == 0 && mTiles <= 2 * warps)
      return warps;
  for (int64_t warps = std::min<int64_t>(mTiles, 8); warps > 1; --warps)
    if (8 * mTiles >= 7 * int64_t(llvm::alignTo(mTiles, warps)))
      return warps;
  return 1;
}

void LayoutAnalysis::findProducts(bool wgmma) {
  kernel.walk([&](DotOp dot) {
    std::string obstacle = findObstacle(dot);
    if (!obstacle.empty()) {
      missed.emplace_back(dot, std::move(obstacle));
      return;
    }
    dots.push_back(dot);
    mTiles = std::max<int64_t>(
        mTiles, llvm::divideCeil(dot.getAcc().getType().getRows(), 16));
  });
  if (warps == 0)
    warps = chooseWarps(mTiles, wgmma);
}

bool LayoutAnalysis::isProduct(Operation *op) const {
  auto dot = dyn_cast<DotOp>(op);
  return dot && llvm::is_contained(dots, dot);
}

//===----------------------------------------------------------------------===//
// Recomputed tiles
//===----------------------------------------------------------------------===//

void LayoutAnalysis::findRecomputed() {
  llvm::DenseSet<Value> written = getWrittenArguments(kernel);
  auto isCheap = [&](Operation *op) {
    if (auto load = dyn_cast<LoadOp>(op))
      return isTile(load.getResult()) &&
             load.getRef().getType().getElementType().isInteger() &&
             !written.contains(getArgument(load.getRef()));
    if (isa<MapOp>(op))
      return llvm::all_of(op->getResultTypes(), [](Type type) {
        return cast<TileType>(type).getElementType().isInteger();
      });
    return isa<RangeOp, SplatOp>(op);
  };
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (!isCheap(op))
      return;
    bool reads = isa<LoadOp>(op);
    for (Value operand : op->getOperands()) {
      if (!isTile(operand))
        continue;
      if (!isRecomputed(operand))
        return;
      reads |= recomputed.lookup(operand);
    }
    for (Value result : op->getResults())
      recomputed[result] = reads;
  });
}

//===----------------------------------------------------------------------===//
// Operands of dots
//===----------------------------------------------------------------------===//

bool LayoutAnalysis::isInvariant(Value a, DotOp dot) {
  auto loop = dot->getParentOfType<scf::ForOp>();
  return !loop || !loop.getBodyRegion().isAncestor(a.getParentRegion());
}

/// Shared memory is filled in vectors, by whichever thread: it has to be able
/// to compute any coordinate.
bool LayoutAnalysis::canShare(LoadOp load) const {
  return llvm::all_of(load.getIndices(), [&](Value index) {
    return !isTile(index) || isRecomputed(index);
  });
}

void LayoutAnalysis::placeOperand(OpOperand &operand) {
  Value value = operand.get();
  auto dot = cast<DotOp>(operand.getOwner());
  if (isRecomputed(value) || pinned.contains(value))
    return;
  mmaTiles.insert(value);
  auto load = value.getDefiningOp<LoadOp>();
  bool isLeft = operand.getOperandNumber() == 0 && !dot.getTransposeA();
  if (!load || (isLeft && isInvariant(value, dot)))
    return;
  if (canShare(load))
    shared.insert(value);
  else if (!llvm::is_contained(indirect, load))
    indirect.push_back(load);
}

void LayoutAnalysis::placeOperands() {
  kernel.walk([&](Operation *op) {
    if (isa<TransposeOp, TopNOp, SortOp>(op) ||
        (isa<DotOp>(op) && !isProduct(op)))
      pinned.insert(op->result_begin(), op->result_end());
  });
  for (DotOp dot : dots) {
    mmaTiles.insert(dot.getResult());
    placeOperand(dot.getAMutable());
    placeOperand(dot.getBMutable());
  }
}

//===----------------------------------------------------------------------===//
// Coupled tiles
//===----------------------------------------------------------------------===//

void LayoutAnalysis::couple(Value lhs, Value rhs) {
  if (!isTile(lhs) || !isTile(rhs) || isRecomputed(lhs) || isRecomputed(rhs))
    return;
  coupled[lhs].push_back(rhs);
  coupled[rhs].push_back(lhs);
}

void LayoutAnalysis::couple() {
  auto coupleAll = [&](ValueRange values, ValueRange others) {
    for (auto [value, other] : llvm::zip_equal(values, others))
      couple(value, other);
  };
  kernel.walk([&](Operation *op) {
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      coupleAll(loop.getResults(), loop.getRegionIterArgs());
      coupleAll(loop.getRegionIterArgs(), loop.getInitArgs());
    } else if (isa<scf::YieldOp>(op)) {
      coupleAll(op->getParentOp()->getResults(), op->getOperands());
    } else if (isProduct(op)) {
      couple(op->getResult(0), cast<DotOp>(op).getAcc());
    } else if (isa<MapOp, ReduceOp, arith::SelectOp>(op) &&
               op->getNumResults()) {
      for (ValueRange others : {ValueRange(op->getOperands()),
                                ValueRange(op->getResults().drop_front())})
        for (Value other : others)
          couple(op->getResult(0), other);
    }
  });
}

void LayoutAnalysis::propagate() {
  for (size_t i = 0; i < mmaTiles.size(); ++i)
    for (Value other : coupled.lookup(mmaTiles[i]))
      if (!pinned.contains(other))
        mmaTiles.insert(other);
}

//===----------------------------------------------------------------------===//
// Answers
//===----------------------------------------------------------------------===//

Attribute LayoutAnalysis::getHome(Value tile) const {
  if (shared.contains(tile))
    return SharedAttr::get(kernel->getContext());
  return mmaTiles.contains(tile) ? mmaLayout() : Attribute();
}

Attribute LayoutAnalysis::getWanted(Value operand, Attribute result) const {
  auto rematerialized = RematerializedAttr::get(kernel->getContext());
  auto known = recomputed.find(operand);
  if (!result || known == recomputed.end())
    return result;
  // What has been read is worth its registers.
  return isa<MmaLayoutAttr>(result) && known->second
             ? result
             : Attribute(rematerialized);
}

/// Whether a load makes one row or one column of a tile in the MMA layout.
bool LayoutAnalysis::loadsLine(LoadOp load) const {
  auto type = dyn_cast<TileType>(load.getType());
  return type && isa_and_present<MmaLayoutAttr>(getHome(load.getResult())) &&
         (type.getRows() == 1) != (type.getCols() == 1);
}

Attribute LayoutAnalysis::getWanted(OpOperand &use) const {
  Value value = use.get();
  Operation *op = use.getOwner();
  unsigned number = use.getOperandNumber();
  return llvm::TypeSwitch<Operation *, Attribute>(op)
      .Case([&](DotOp dot) -> Attribute {
        if (!isProduct(dot))
          return {};
        bool isShared = number == 1 ||
                        (number == 0 &&
                         (dot.getTransposeA() || (shared.contains(value) &&
                                                  !isInvariant(value, dot))));
        return isShared ? SharedAttr::get(op->getContext()) : mmaLayout();
      })
      .Case([&](StoreOp store) {
        Attribute layout = getHome(store.getValue());
        return number == 0 ? layout : getWanted(value, layout);
      })
      .Case([&](ReduceOp reduce) { return getHome(reduce.getResult()); })
      .Case([&](LoadOp load) {
        // A loop can copy a line ahead if any thread can compute its indices.
        if (loadsLine(load) && isRecomputed(value) &&
            load->getParentOfType<scf::ForOp>())
          return Attribute(RematerializedAttr::get(op->getContext()));
        return getWanted(value, getHome(load.getResult()));
      })
      .Case([&](MapOp map) {
        return getWanted(value, getHome(map->getResult(0)));
      })
      .Case([&](arith::SelectOp select) { return getHome(select.getResult()); })
      .Case([&](AnyOp any) {
        bool isKnown = mmaTiles.contains(value) || isRecomputed(value);
        return any.getWarpUniform() && isKnown ? mmaLayout() : Attribute();
      })
      .Case([&](scf::ForOp loop) {
        return getHome(loop.getTiedLoopRegionIterArg(&use));
      })
      .Case([&](scf::YieldOp yield) {
        Operation *parent = yield->getParentOp();
        return getHome(parent->getResult(number));
      })
      .Default([](Operation *) { return Attribute(); });
}
