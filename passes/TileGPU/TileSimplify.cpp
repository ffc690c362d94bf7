//===- TileSimplify.cpp - save registers before layouts -------------------===//
//
// Patterns on kernels without layouts that reduce register pressure. They only
// touch tiles of tensor-core kernels that will be in registers.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tile/TileOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "passes/TileGPU/LayoutAnalysis.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/TileUtils.h"

namespace nsa {
#define GEN_PASS_DEF_TILESIMPLIFY
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Accumulators
//===----------------------------------------------------------------------===//

/// Whether a tile will lie in the registers of tensor cores.
static bool hasMmaLayout(const LayoutAnalysis &layouts, Value tile) {
  return isa_and_present<MmaLayoutAttr>(layouts.getHome(tile));
}

/// Whether `map` adds its two inputs and does nothing else.
static bool isSum(MapOp map) {
  if (map.getNumOperands() != 2 || map.getNumResults() != 1 ||
      map.getOperand(0).getType() != map.getOperand(1).getType())
    return false;
  Block &body = map.getBody().front();
  auto add = map.getYielded()[0].getDefiningOp<arith::AddFOp>();
  return add && llvm::hasSingleElement(body.without_terminator()) &&
         llvm::is_contained(add.getOperands(), body.getArgument(0)) &&
         llvm::is_contained(add.getOperands(), body.getArgument(1));
}

/// Whether all that a loop does with its argument `i` is add a dot to it.
static bool addsProduct(scf::ForOp loop, unsigned i) {
  Value sum = loop.getRegionIterArg(i);
  auto dot = loop.getYieldedValues()[i].getDefiningOp<DotOp>();
  return dot && dot->getBlock() == loop.getBody() && dot.getAcc() == sum &&
         sum.hasOneUse() && dot->hasOneUse();
}

/// Lets the sums of a loop start with what is added to them after it.
static void initializeAccumulators(scf::ForOp loop,
                                   const LayoutAnalysis &layouts) {
  for (OpResult result : loop.getResults()) {
    unsigned i = result.getResultNumber();
    if (!hasMmaLayout(layouts, result) || !result.hasOneUse() ||
        !addsProduct(loop, i))
      continue;
    auto zeros = loop.getInitArgs()[i].getDefiningOp<SplatOp>();
    auto map = dyn_cast<MapOp>(*result.getUsers().begin());
    if (!zeros || !matchPattern(zeros.getValue(), m_AnyZeroFloat()) || !map ||
        map->getBlock() != loop->getBlock() || !isSum(map))
      continue;
    Value other = map.getOperand(map.getOperand(0) == result ? 1 : 0);
    Operation *def = other.getDefiningOp();
    if (other == result || (def && def->getBlock() == loop->getBlock() &&
                            !def->isBeforeInBlock(loop)))
      continue;
    loop.getInitArgsMutable()[i].assign(other);
    map.getResult(0).replaceAllUsesWith(result);
    map.erase();
  }
}

//===----------------------------------------------------------------------===//
// Maps of maps
//===----------------------------------------------------------------------===//

/// Whether the body of `map` uses something that is made after `op`.
static bool usesLater(MapOp map, Operation *op) {
  Block &body = map.getBody().front();
  for (Operation &inner : body)
    for (Value operand : inner.getOperands())
      if (Operation *def = operand.getDefiningOp();
          def && def->getBlock() == op->getBlock() && op->isBeforeInBlock(def))
        return true;
  return false;
}

/// Lets a map compute what another one makes of its result alone, such as
/// numbers of 16 bits: the f32 number takes no register then.
static void fuseMap(MapOp second, const LayoutAnalysis &layouts) {
  if (second.getNumOperands() != 1 || second.getNumResults() != 1)
    return;
  auto result = dyn_cast<OpResult>(second.getOperand(0));
  auto first = result ? dyn_cast<MapOp>(result.getOwner()) : MapOp();
  auto from = dyn_cast<TileType>(second.getOperand(0).getType());
  auto to = cast<TileType>(second.getResult(0).getType());
  if (!first || !result.hasOneUse() || !hasMmaLayout(layouts, result) ||
      first->getBlock() != second->getBlock() ||
      from.withElementType(to.getElementType()) != to ||
      usesLater(second, first))
    return;
  Operation *yield = first.getBody().front().getTerminator();
  OpBuilder builder(yield);
  IRMapping elements;
  Block &body = second.getBody().front();
  elements.map(body.getArgument(0),
               yield->getOperand(result.getResultNumber()));
  for (Operation &op : body.without_terminator())
    builder.clone(op, elements);
  yield->setOperand(result.getResultNumber(),
                    elements.lookupOrDefault(second.getYielded()[0]));
  result.setType(to);
  second.getResult(0).replaceAllUsesWith(result);
  second.erase();
}

//===----------------------------------------------------------------------===//
// Loads
//===----------------------------------------------------------------------===//

/// Whether all that an operation makes are tiles of one row, which MMA tiles
/// repeat in all threads. Integers may be computed where they are used; layouts
/// tell.
static bool makesRows(Operation *op, const LayoutAnalysis &layouts) {
  return isa<LoadOp, MapOp>(op) &&
         llvm::all_of(op->getResults(), [&](Value result) {
           auto tile = dyn_cast<TileType>(result.getType());
           return tile && tile.getRows() == 1 && hasMmaLayout(layouts, result);
         });
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct TileSimplify : nsa::impl::TileSimplifyBase<TileSimplify> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    LayoutAnalysis layouts(kernel, /*warps=*/0, /*wgmma=*/false);
    if (layouts.getProducts().empty())
      return markAllAnalysesPreserved();
    SmallVector<scf::ForOp> loops;
    SmallVector<LoadOp> loads;
    SmallVector<MapOp> maps;
    kernel.walk([&](Operation *op) {
      if (auto map = dyn_cast<MapOp>(op))
        maps.push_back(map);
      if (auto loop = dyn_cast<scf::ForOp>(op))
        loops.push_back(loop);
      if (auto load = dyn_cast<LoadOp>(op);
          load && (hasMmaLayout(layouts, load.getResult()) ||
                   layouts.isRecomputed(load.getResult())))
        loads.push_back(load);
    });
    for (MapOp map : maps)
      fuseMap(map, layouts);
    for (scf::ForOp loop : loops)
      initializeAccumulators(loop, layouts);
    // After loops with dots.
    for (LoadOp load : loads)
      sink(
          load,
          [](Operation *op) { return contains(op, llvm::IsaPred<DotOp>); },
          /*toMaps=*/false);
    for (scf::ForOp loop : loops)
      sinkRows(loop, [&](Operation *op) { return makesRows(op, layouts); });
  }
};
} // namespace
