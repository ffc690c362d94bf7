//===- FusionPlan.cpp - which operations share a loop nest ----------------===//

#include "passes/TileToCPU/FusionPlan.h"

using namespace mlir;
using namespace nsa::cpu;
using namespace nsa::tile;

/// The shape whose elements an operation visits in a nest; null if it never is
/// part of one.
static TileType nestShape(Operation *op) {
  if (auto map = dyn_cast<MapOp>(op))
    return map.getShapeType();
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return cast<TileType>(reduce.getInput().getType());
  if (auto load = dyn_cast<LoadOp>(op))
    return dyn_cast<TileType>(load.getResult().getType());
  if (auto store = dyn_cast<StoreOp>(op))
    return dyn_cast<TileType>(store.getValue().getType());
  return nullptr;
}

static bool sameShape(TileType a, TileType b) {
  return a.getRows() == b.getRows() && a.getCols() == b.getCols();
}

bool nsa::cpu::touchesMemory(Operation *op, bool writesOnly) {
  return op
      ->walk([&](Operation *inner) {
        return isa<StoreOp>(inner) || (!writesOnly && isa<LoadOp>(inner))
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

FusionPlan::FusionPlan(KernelOp kernel, TileBounds &bounds, unsigned width) {
  kernel.walk([&](Operation *op) {
    if (auto load = dyn_cast<LoadOp>(op);
        load && isa<TileType>(load.getResult().getType()))
      accesses.try_emplace(op, Access(load, bounds, width));
    if (auto store = dyn_cast<StoreOp>(op);
        store && isa<TileType>(store.getValue().getType()))
      accesses.try_emplace(op, Access(store, bounds, width));
  });
  kernel.walk([&](Block *block) {
    if (!isa<MapOp>(block->getParentOp()))
      planBlock(*block);
  });
  // Gather the nests in program order.
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
    Operation *root = roots.lookup(op);
    if (!root)
      return;
    Nest &nest = nests[root];
    nest.root = root;
    nest.shape = nestShape(root);
    nest.ops.push_back(op);
  });
}

/// Walks backwards, so that the users of an operation are placed already.
void FusionPlan::planBlock(Block &block) {
  for (Operation &op : llvm::reverse(block)) {
    bool access = isa<LoadOp, StoreOp>(op);
    if (!nestShape(&op) || roots.count(&op) ||
        (access && !getAccess(&op).fusible))
      continue;
    if (isa<MapOp, LoadOp>(op) && canDefer(&op)) {
      roots[&op] = getRoot(*op.getUsers().begin());
      continue;
    }
    // A load that stays where it is has a lowering of its own.
    if (isa<LoadOp>(op))
      continue;
    roots[&op] = &op;
    if (auto map = dyn_cast<MapOp>(op))
      absorbUsers(map);
  }
}

bool FusionPlan::canDefer(Operation *op) const {
  if (op->use_empty())
    return false;
  TileType shape = nestShape(op);
  Operation *root = getRoot(*op->getUsers().begin());
  if (root->getBlock() != op->getBlock())
    return false;
  for (OpOperand &use : op->getUses()) {
    Operation *user = use.getOwner();
    bool isElement = isa<MapOp, ReduceOp>(user) ||
                     (isa<StoreOp>(user) && use.getOperandNumber() == 0);
    if (!isElement || roots.lookup(user) != root ||
        !sameShape(nestShape(user), shape))
      return false;
  }
  auto load = dyn_cast<LoadOp>(op);
  if (!load)
    return true;
  for (Operation *between = op->getNextNode(); between != root;
       between = between->getNextNode())
    if (writers.contains(between) ||
        touchesMemory(between, /*writesOnly=*/true))
      return false;
  // Stores of the nest write what is read later unless they share an iteration
  // space.
  for (auto [other, otherRoot] : roots)
    if (auto store = dyn_cast<StoreOp>(other);
        store && otherRoot == root && store.getRef() == load.getRef() &&
        !llvm::equal(store.getIndices(), load.getIndices()))
      return false;
  return true;
}

void FusionPlan::absorbUsers(MapOp map) {
  // Uses are unordered; stores move up one after the other.
  SmallVector<Operation *> users;
  for (Operation *user : map->getUsers())
    if (user->getBlock() == map->getBlock() && roots.lookup(user) == user)
      users.push_back(user);
  llvm::sort(users,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *user : users) {
    if (isa<ReduceOp>(user)) {
      roots[user] = map;
    } else if (auto store = dyn_cast<StoreOp>(user);
               store && canMoveUp(store, map)) {
      roots[user] = map;
      writers.insert(map);
    }
  }
}

bool FusionPlan::canMoveUp(StoreOp store, MapOp root) const {
  if (!llvm::is_contained(root.getResults(), store.getValue()))
    return false;
  for (Value index : store.getIndices())
    if (Operation *def = index.getDefiningOp();
        def && def->getBlock() == root->getBlock() &&
        !def->isBeforeInBlock(root))
      return false;
  for (Operation *between = root->getNextNode(); between != store;
       between = between->getNextNode())
    if (roots.lookup(between) != root &&
        touchesMemory(between, /*writesOnly=*/false))
      return false;
  return true;
}

bool FusionPlan::needsBuffer(Value value) const {
  if (!isa<TileType>(value.getType()))
    return false;
  Operation *def = value.getDefiningOp();
  if (!def)
    return true;
  if (isa<RangeOp, SplatOp>(def))
    return llvm::any_of(value.getUses(), [](OpOperand &use) {
      Operation *user = use.getOwner();
      return isa<AnyOp, TransposeOp, TopNOp, SortOp>(user) ||
             (isa<DotOp>(user) && use.getOperandNumber() < 2);
    });
  if (!isa<MapOp, LoadOp>(def))
    return true;
  Operation *root = getRoot(def);
  return llvm::any_of(value.getUsers(),
                      [&](Operation *user) { return getRoot(user) != root; });
}
