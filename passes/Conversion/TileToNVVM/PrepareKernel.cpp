//===- PrepareKernel.cpp - save registers before emission -----------------===//

#include "passes/Conversion/TileToNVVM/PrepareKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "passes/Conversion/TileToNVVM/Fragment.h"
#include "passes/Conversion/TileToNVVM/ProducerPlan.h"
#include "passes/Conversion/TileToNVVM/SlabBranches.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Sums of sums
//===----------------------------------------------------------------------===//

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

/// Whether all that a loop does with its argument `i` is add a product to it.
static bool addsProduct(scf::ForOp loop, unsigned i) {
  Value sum = loop.getRegionIterArg(i);
  auto dot = loop.getYieldedValues()[i].getDefiningOp<DotOp>();
  return dot && dot->getBlock() == loop.getBody() && dot.getAcc() == sum &&
         sum.hasOneUse() && dot->hasOneUse();
}

static void continueSums(scf::ForOp loop) {
  for (OpResult result : loop.getResults()) {
    unsigned i = result.getResultNumber();
    if (!isFragment(result.getType()) || !result.hasOneUse() ||
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

/// Whether the body of `map` uses something that is made behind `op`.
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
static void continueMap(MapOp second) {
  if (second.getNumOperands() != 1 || second.getNumResults() != 1)
    return;
  auto result = dyn_cast<OpResult>(second.getOperand(0));
  auto first = result ? dyn_cast<MapOp>(result.getOwner()) : MapOp();
  auto from = dyn_cast<TileType>(second.getOperand(0).getType());
  auto to = cast<TileType>(second.getResult(0).getType());
  if (!first || !result.hasOneUse() || !isFragment(from) ||
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

static bool contains(Operation *op, llvm::function_ref<bool(Operation *)> is) {
  return op
      ->walk([&](Operation *inner) {
        return is(inner) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Moves a load behind loops, to its first use, if nothing is stored between.
static void sinkLoad(LoadOp load) {
  Operation *first = nullptr;
  for (Operation *user : load->getUsers()) {
    Operation *inBlock = load->getBlock()->findAncestorOpInBlock(*user);
    if (!first || inBlock->isBeforeInBlock(first))
      first = inBlock;
  }
  if (!first)
    return;
  bool passesLoop = false;
  for (Operation *op = load->getNextNode(); op != first;
       op = op->getNextNode()) {
    if (contains(op, llvm::IsaPred<StoreOp>))
      return;
    passesLoop |= contains(op, llvm::IsaPred<DotOp>);
  }
  if (passesLoop)
    load->moveBefore(first);
}

/// Lets operands a of products stay in shared memory where sums leave no
/// registers for them: reading them again costs a few of many ldmatrix. And
/// those of warpgroups, which take no time to read.
static void keepInSharedMemory(LoadOp load, bool wgmma) {
  constexpr int64_t manyRegisters = 64;
  if (!Fragment(load.getResult()).isPacked() || !getCopyWidth(load) ||
      cast<TileType>(load.getType()).getShape().size() != 2)
    return;
  for (Value index : load.getIndices())
    if (isa<TileType>(index.getType()) && !isOnDemand(index.getType()))
      return;
  for (OpOperand &use : load->getUses()) {
    auto dot = dyn_cast<DotOp>(use.getOwner());
    if (!dot || use.getOperandNumber() != 0)
      return;
    bool isOfWarpgroups =
        wgmma && Fragment(dot.getResult()).warps % warpsOfGroup == 0;
    if (!isOfWarpgroups &&
        countSums(dot->getParentOfType<scf::ForOp>()) < manyRegisters)
      return;
  }
  auto type = cast<TileType>(load.getType());
  load.getResult().setType(type.withLayout(SharedAttr::get(load.getContext())));
}

/// Whether all that an operation makes are fragments of one row: they are
/// repeated in all threads.
static bool makesRows(Operation *op) {
  return isa<LoadOp, MapOp>(op) &&
         llvm::all_of(op->getResultTypes(), [](Type type) {
           return isFragment(type) && cast<TileType>(type).getRows() == 1;
         });
}

/// Moves an operation behind products of its block, to its first use.
static void sinkRow(Operation *row) {
  Operation *first = nullptr;
  for (Operation *user : row->getUsers()) {
    Operation *inBlock = row->getBlock()->findAncestorOpInBlock(*user);
    if (!first || inBlock->isBeforeInBlock(first))
      first = inBlock;
  }
  bool passesProduct = false;
  for (Operation *op = row->getNextNode(); first && op != first;
       op = op->getNextNode()) {
    if (contains(op, llvm::IsaPred<StoreOp>))
      return;
    passesProduct |= isa<DotOp>(op);
  }
  if (first && (passesProduct || isa<MapOp>(first)))
    row->moveBefore(first);
}

void nsa::cuda::prepareKernel(KernelOp kernel, bool wgmma) {
  SmallVector<scf::ForOp> loops;
  SmallVector<LoadOp> loads;
  SmallVector<MapOp> maps;
  kernel.walk([&](Operation *op) {
    if (auto map = dyn_cast<MapOp>(op))
      maps.push_back(map);
    if (auto loop = dyn_cast<scf::ForOp>(op))
      loops.push_back(loop);
    if (auto load = dyn_cast<LoadOp>(op); load && isFragment(load.getType()))
      loads.push_back(load);
  });
  llvm::for_each(maps, continueMap);
  llvm::for_each(loops, continueSums);
  llvm::for_each(loads, sinkLoad);
  // Warps that pass blocks by need the memory of two for their ring.
  auto isOfSlabs = [](LoadOp load) {
    return llvm::any_of(load->getUsers(), isInSlabBranch);
  };
  bool staysOut = llvm::count_if(loads, isOfSlabs) > 1;
  for (LoadOp load : loads)
    if (!staysOut || !isOfSlabs(load))
      keepInSharedMemory(load, wgmma);
  for (scf::ForOp loop : loops)
    for (Operation &op :
         llvm::make_early_inc_range(llvm::reverse(*loop.getBody())))
      if (makesRows(&op))
        sinkRow(&op);
}
