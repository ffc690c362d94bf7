//===- Prefetch.cpp - which copies a loop can make ahead ------------------===//

#include "passes/Conversion/TileToNVVM/Prefetch.h"
#include "passes/Conversion/TileToNVVM/AccessWidth.h"
#include "passes/Conversion/TileToNVVM/Fragment.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

int64_t nsa::cuda::getCopyWidth(LoadOp load) {
  auto type = cast<TileType>(load.getType());
  int64_t width = getAccessWidth(load.getRef(), load.getIndices(),
                                 SharedShape::chunkElements);
  bool empty = cast<MemRefType>(load.getRef().getType()).getNumElements() == 0;
  return width < 2 || type.getCols() % width != 0 || empty ? 0 : width;
}

namespace {
/// Collects the operations in a loop that values depend on.
class Slice {
public:
  /// `takesTiles` if maps and votes on tiles of other iterations may be made.
  Slice(scf::ForOp loop, const llvm::DenseSet<Value> &written,
        bool takesTiles = false)
      : loop(loop), written(written), takesTiles(takesTiles) {}

  /// False if a value depends on what the last iteration computed, or on more
  /// than scalars and elements computed where they are used.
  bool add(Value value) {
    if (value == loop.getInductionVar())
      return true;
    if (!loop->isProperAncestor(value.getParentRegion()->getParentOp()) &&
        value.getParentRegion()->getParentOp() != loop)
      return true;
    Operation *def = value.getDefiningOp();
    return def && add(def);
  }

  const llvm::DenseSet<Operation *> &operations() const { return found; }

private:
  bool add(Operation *op) {
    if (found.contains(op))
      return true;
    if (!isSimple(op))
      return false;
    // Operands, and what regions use of the surroundings.
    bool fits = true;
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (!op->isProperAncestor(operand.getParentRegion()->getParentOp()) &&
            operand.getParentRegion()->getParentOp() != op)
          fits = fits && add(operand);
    });
    found.insert(op);
    return fits;
  }

  /// Scalars, and loads of memory that the kernel leaves alone.
  bool isSimple(Operation *op) {
    auto result = op->walk([&](Operation *inner) {
      bool taken = takesTiles && isa<MapOp, SplatOp, RangeOp>(inner);
      for (Type type : inner->getResultTypes())
        if (isa<TileType>(type) && !isOnDemand(type) && !taken)
          return WalkResult::interrupt();
      // All threads take part in a vote.
      if (isa<AnyOp>(inner) && !takesTiles)
        return WalkResult::interrupt();
      if (auto load = dyn_cast<LoadOp>(inner))
        return written.contains(getArgument(load.getRef()))
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      if (isa<StoreOp>(inner))
        return WalkResult::interrupt();
      return WalkResult::advance();
    });
    return !result.wasInterrupted();
  }

  scf::ForOp loop;
  const llvm::DenseSet<Value> &written;
  bool takesTiles;
  llvm::DenseSet<Operation *> found;
};
} // namespace

/// Those of `operations` that stand in `block`, in its order.
static void inOrder(Block &block, const llvm::DenseSet<Operation *> &operations,
                    llvm::SetVector<Operation *> &ordered) {
  for (Operation &op : block)
    if (operations.contains(&op))
      ordered.insert(&op);
}

/// Whether a load makes one row of 4-byte elements for all threads.
static bool loadsRow(LoadOp load) {
  if (!isFragment(load.getType()))
    return false;
  auto type = cast<TileType>(load.getType());
  return type.getRows() == 1 && type.getCols() > 1 &&
         type.getElementType().getIntOrFloatBitWidth() == 32 &&
         cast<MemRefType>(load.getRef().getType()).getNumElements() > 0;
}

/// Loads of `block` that can be made ahead. Operations they need are those of
/// the loop's block and of this one.
static void findLoads(scf::ForOp loop, Block &block,
                      const llvm::DenseSet<Value> &written,
                      Prefetch &prefetch) {
  Slice all(loop, written);
  for (auto load : block.getOps<LoadOp>()) {
    bool isTile = isShared(load.getType()) && getCopyWidth(load) > 0;
    if (load->use_empty() || !(isTile || loadsRow(load)) ||
        written.contains(getArgument(load.getRef())))
      continue;
    Slice own(loop, written);
    if (!llvm::all_of(load.getIndices(),
                      [&](Value index) { return own.add(index); }) ||
        !own.add(load.getRef()))
      continue;
    for (Value index : load.getIndices())
      all.add(index);
    all.add(load.getRef());
    (isTile ? prefetch.loads : prefetch.rows).push_back(load);
  }
  // Rows alone are not worth a barrier.
  if (prefetch.loads.empty()) {
    prefetch.rows.clear();
    return;
  }
  inOrder(*loop.getBody(), all.operations(), prefetch.addresses);
  if (&block != loop.getBody())
    inOrder(block, all.operations(), prefetch.addresses);
}

/// A loop that is nothing but a branch, which hands on what the last iteration
/// computed if it is not taken.
static scf::IfOp findBranch(scf::ForOp loop) {
  auto branches = llvm::to_vector(loop.getBody()->getOps<scf::IfOp>());
  if (branches.size() != 1 || branches[0].getElseRegion().empty())
    return {};
  scf::IfOp branch = branches[0];
  if (!llvm::equal(loop.getYieldedValues(), branch.getResults()) ||
      branch.getNumResults() != loop.getNumRegionIterArgs() ||
      !llvm::equal(branch.elseYield().getOperands(),
                   loop.getRegionIterArgs()) ||
      !llvm::hasSingleElement(*branch.elseBlock()))
    return {};
  return branch;
}

Prefetch nsa::cuda::findPrefetch(scf::ForOp loop,
                                 const llvm::DenseSet<Value> &written) {
  Prefetch prefetch;
  // A store may go to the memory of an input.
  bool stores = loop->walk([](StoreOp) { return WalkResult::interrupt(); })
                    .wasInterrupted();
  if (stores)
    return prefetch;
  findLoads(loop, *loop.getBody(), written, prefetch);
  if (!prefetch.empty())
    return prefetch;
  scf::IfOp branch = findBranch(loop);
  Slice condition(loop, written, /*takesTiles=*/true);
  if (!branch || !condition.add(branch.getCondition()))
    return {};
  findLoads(loop, *branch.thenBlock(), written, prefetch);
  if (prefetch.empty())
    return {};
  prefetch.branch = branch;
  inOrder(*loop.getBody(), condition.operations(), prefetch.condition);
  // Nothing else may depend on the iteration in which it is computed.
  Slice body(loop, written, /*takesTiles=*/true);
  for (Operation &op : loop.getBody()->without_terminator()) {
    if (&op == branch)
      continue;
    for (Value result : op.getResults())
      if (!body.add(result))
        return {};
  }
  llvm::DenseSet<Operation *> used;
  for (Operation &op : llvm::reverse(loop.getBody()->without_terminator()))
    if (&op != branch && llvm::any_of(op.getUsers(), [&](Operation *user) {
          return branch.getThenRegion().isAncestor(user->getParentRegion()) ||
                 used.contains(loop.getBody()->findAncestorOpInBlock(*user));
        }))
      used.insert(&op);
  inOrder(*loop.getBody(), used, prefetch.body);
  return prefetch;
}
