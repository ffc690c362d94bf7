//===- AssignLayouts.cpp - tiles for tensor cores -------------------------===//

#include "dialects/Interfaces/PerformanceLints.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/TileGPU/LayoutAnalysis.h"
#include "passes/TileGPU/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_NSAASSIGNLAYOUTS
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

#define DEBUG_TYPE "nsa-assign-layouts"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

namespace {
/// Gives the tiles of a kernel the layouts of an analysis.
class LayoutRewriter {
public:
  LayoutRewriter(KernelOp kernel, const LayoutAnalysis &layouts)
      : kernel(kernel), layouts(layouts), b(kernel.getContext()) {}

  void run();

private:
  void setTypes();
  /// The elements of `tile` in another layout.
  Value get(Value tile, Attribute layout);
  void recompute(Operation *op, Attribute layout);
  Value convert(Value tile, Attribute layout);

  KernelOp kernel;
  const LayoutAnalysis &layouts;
  OpBuilder b;
  DenseMap<std::pair<Value, Attribute>, Value> versions;
};
} // namespace

static void setLayout(Value value, Attribute layout) {
  if (auto tile = dyn_cast<TileType>(value.getType()))
    value.setType(tile.withLayout(layout));
}

void LayoutRewriter::setTypes() {
  kernel.walk([&](Operation *op) {
    for (Value result : op->getResults())
      setLayout(result, layouts.getHome(result));
    if (auto loop = dyn_cast<scf::ForOp>(op))
      for (Value carried : loop.getRegionIterArgs())
        setLayout(carried, layouts.getHome(carried));
  });
}

void LayoutRewriter::run() {
  SmallVector<Operation *> ops;
  kernel.walk([&](Operation *op) { ops.push_back(op); });
  setTypes();
  auto isRecomputed = [&](Operation *op) {
    return op->getNumResults() && layouts.isRecomputed(op->getResult(0));
  };
  for (Operation *op : ops)
    if (!isRecomputed(op))
      for (OpOperand &use : op->getOpOperands())
        if (isa<TileType>(use.get().getType()))
          use.set(get(use.get(), layouts.getWanted(use)));
  // What is computed elsewhere now. Erasing one also erases what is inside.
  llvm::erase_if(ops, [&](Operation *op) { return !isRecomputed(op); });
  for (Operation *op : llvm::reverse(ops))
    if (isOpTriviallyDead(op))
      op->erase();
}

Value LayoutRewriter::get(Value tile, Attribute layout) {
  if (cast<TileType>(tile.getType()).getLayout() == layout)
    return tile;
  if (Value known = versions.lookup({tile, layout}))
    return known;
  if (!layouts.isRecomputed(tile))
    return versions[{tile, layout}] = convert(tile, layout);
  recompute(tile.getDefiningOp(), layout);
  return versions.lookup({tile, layout});
}

void LayoutRewriter::recompute(Operation *op, Attribute layout) {
  SmallVector<std::pair<unsigned, Value>> operands;
  for (OpOperand &use : op->getOpOperands())
    if (isa<TileType>(use.get().getType()))
      operands.emplace_back(
          use.getOperandNumber(),
          get(use.get(), layouts.getWanted(use.get(), layout)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(op);
  Operation *copy = b.clone(*op);
  for (auto [number, operand] : operands)
    copy->setOperand(number, operand);
  for (auto [from, to] :
       llvm::zip_equal(op->getResults(), copy->getResults())) {
    setLayout(to, layout);
    versions[{from, layout}] = to;
  }
}

Value LayoutRewriter::convert(Value tile, Attribute layout) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(tile);
  auto type = cast<TileType>(tile.getType());
  return ConvertOp::create(b, tile.getLoc(), type.withLayout(layout), tile);
}

//===----------------------------------------------------------------------===//
// Remarks
//===----------------------------------------------------------------------===//

static void report(KernelOp kernel, const LayoutAnalysis &layouts) {
  auto options = [&](StringRef name) {
    return remark::RemarkOpts::name(name)
        .category(DEBUG_TYPE)
        .function(kernel.getSymName());
  };
  for (auto [dot, reason] : layouts.getMissed())
    remark::missed(dot.getLoc(), options("Product"))
        << remark::reason("not on tensor cores: {0}", reason);
  for (LoadOp load : layouts.getIndirect())
    remark::missed(load.getLoc(), options("Load"))
        << remark::reason("goes through registers to shared memory: its "
                          "coordinates are not computed on demand");
  if (layouts.getProducts().empty())
    return;
  size_t count = layouts.getProducts().size();
  remark::passed(kernel.getLoc(), options("Kernel"))
      << remark::add("{0} of {1} dots on tensor cores, {2} M-tiles of 16 "
                     "rows for {3} warps",
                     count, count + layouts.getMissed().size(),
                     layouts.getMTiles(), layouts.getWarps());
}

/// Notes 16-bit dots without tensor cores. f32 dots are small next to these, or
/// fp32 was asked for.
static void notePerformanceLints(KernelOp kernel,
                                 const LayoutAnalysis &layouts) {
  bool isSlow = llvm::any_of(layouts.getMissed(), [](const auto &missed) {
    return !DotOp(missed.first).getA().getType().getElementType().isF32();
  });
  if (isSlow &&
      nsa::getArgumentBytes(kernel.getArgumentTypes()) >= nsa::kNegligibleBytes)
    nsa::addPerformanceLints(kernel, {nsa::kScalarProductPath});
}

namespace {
struct AssignLayouts : nsa::impl::NSAAssignLayoutsBase<AssignLayouts> {
  using NSAAssignLayoutsBase::NSAAssignLayoutsBase;

  void runOnOperation() override {
    if (warps > 32) {
      getOperation().emitError("a block cannot have ")
          << warps.getValue() << " warps; up to 32 are possible";
      return signalPassFailure();
    }
    for (KernelOp kernel : getOperation().getOps<KernelOp>()) {
      LayoutAnalysis layouts(kernel, warps, wgmma);
      report(kernel, layouts);
      notePerformanceLints(kernel, layouts);
      if (!layouts.getProducts().empty())
        LayoutRewriter(kernel, layouts).run();
    }
  }
};
} // namespace
