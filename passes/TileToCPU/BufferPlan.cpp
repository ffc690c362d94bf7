//===- BufferPlan.cpp - where tiles live on the stack ---------------------===//

#include "passes/TileToCPU/BufferPlan.h"

using namespace mlir;
using namespace nsa::cpu;
using namespace nsa::tile;

// The four points of an operation.
enum : int64_t { EarlyWrite = 0, Read = 1, Write = 2, End = 3, Points = 4 };

BufferPlan::BufferPlan(KernelOp kernel, const FusionPlan &fusion,
                       unsigned width,
                       llvm::function_ref<int64_t(Operation *)> scratchBytes)
    : fusion(fusion), width(width) {
  number(kernel.getBody().front());
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) { collectTies(op); });
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto loop = dyn_cast<scf::ForOp>(op))
      addCarried(loop);
    else if (auto branch = dyn_cast<scf::IfOp>(op))
      addBranchResults(branch);
    else
      for (Value result : op->getResults())
        if (fusion.needsBuffer(result))
          addValue(result);
    if (int64_t bytes = scratchBytes(op)) {
      scratchOf[op] = classes.size();
      classes.push_back({{{starts[op], starts[op] + End}}, bytes, 0});
    }
    return isa<MapOp>(op) ? WalkResult::skip() : WalkResult::advance();
  });
  for (Tie &tie : ties) {
    Value source = tie.operand->get();
    if (hasBuffer(source) && !tryMerge(source, tie.target)) {
      // Copied instead, while other results may be written already.
      int64_t point = readPoint(*tie.operand);
      classes[classOf[source]].segments.push_back({point, point - Read + End});
    }
  }
  assignSlots();
}

int64_t BufferPlan::getTotalBytes() const {
  int64_t total = 0;
  for (int64_t bytes : slots)
    total += roundUp(bytes, 64);
  return total;
}

void BufferPlan::number(Block &block) {
  for (Operation &op : block) {
    starts[&op] = counter++ * Points;
    if (!isa<MapOp>(op))
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          number(inner);
    ends[&op] = counter++ * Points;
  }
}

//===----------------------------------------------------------------------===//
// Ties
//===----------------------------------------------------------------------===//

/// In order of importance: what repeats per iteration first.
void BufferPlan::collectTies(Operation *op) {
  auto isTile = [](Value value) { return isa<TileType>(value.getType()); };
  if (auto dot = dyn_cast<DotOp>(op))
    ties.push_back({&dot.getAccMutable(), dot.getResult()});
  if (auto sort = dyn_cast<SortOp>(op))
    ties.push_back({&sort.getInputMutable(), sort.getResult()});
  if (auto top = dyn_cast<TopNOp>(op)) {
    ties.push_back({&top.getBestValuesMutable(), top.getTopValues()});
    ties.push_back({&top.getBestIndicesMutable(), top.getTopIndices()});
  }
  if (auto loop = dyn_cast<scf::ForOp>(op))
    for (unsigned i = 0; i < loop.getNumRegionIterArgs(); ++i)
      if (Value argument = loop.getRegionIterArg(i); isTile(argument)) {
        ties.push_back(
            {&loop.getYieldedValuesMutable()->operator[](i), argument});
        ties.push_back({&loop.getInitArgsMutable()[i], argument});
      }
  if (auto branch = dyn_cast<scf::IfOp>(op))
    for (Region &region : branch->getRegions())
      for (OpResult result : branch->getResults())
        if (isTile(result))
          ties.push_back({&region.front().getTerminator()->getOpOperand(
                              result.getResultNumber()),
                          result});
}

bool BufferPlan::isTied(OpOperand &use) const {
  return llvm::any_of(ties,
                      [&](const Tie &tie) { return tie.operand == &use; });
}

bool BufferPlan::overlap(const Class &a, const Class &b) {
  for (const Segment &x : a.segments)
    for (const Segment &y : b.segments)
      if (x.begin <= y.end && y.begin <= x.end)
        return true;
  return false;
}

bool BufferPlan::tryMerge(Value a, Value b) {
  unsigned into = classOf.lookup(b), from = classOf.lookup(a);
  if (into == from)
    return true;
  if (overlap(classes[into], classes[from]))
    return false;
  llvm::append_range(classes[into].segments, classes[from].segments);
  classes[into].bytes = std::max(classes[into].bytes, classes[from].bytes);
  classes[from].segments.clear();
  classes[from].bytes = 0;
  for (auto &entry : classOf)
    if (entry.second == from)
      entry.second = into;
  return true;
}

//===----------------------------------------------------------------------===//
// Lives
//===----------------------------------------------------------------------===//

/// A reduction over the outer axis is set to its neutral element before the
/// nest reads anything.
static bool isWrittenEarly(Value value) {
  auto reduce = value.getDefiningOp<ReduceOp>();
  return reduce && reduce.getAxis() != innerAxis(reduce.getInput().getType());
}

int64_t BufferPlan::writePoint(Value value) const {
  int64_t start = starts.lookup(fusion.getRoot(value.getDefiningOp()));
  return start + (isWrittenEarly(value) ? EarlyWrite : Write);
}

int64_t BufferPlan::readPoint(OpOperand &use) const {
  return starts.lookup(fusion.getRoot(use.getOwner())) + Read;
}

/// Whether a nest may write its results over the operand: each element is read
/// before the result at the same index is written. Every result is of the
/// nest's shape, or reduced to less than one element per row.
bool BufferPlan::mayWriteInPlace(OpOperand &use) const {
  Operation *user = use.getOwner();
  const Nest *nest = fusion.getNest(fusion.getRoot(user));
  if (!nest || (isa<StoreOp>(user) && use.getOperandNumber() != 0) ||
      isa<LoadOp>(user))
    return false;
  auto type = cast<TileType>(use.get().getType());
  if (type.getRows() != nest->shape.getRows() ||
      type.getCols() != nest->shape.getCols())
    return false;
  unsigned bytes = memoryBytes(type.getElementType());
  for (Operation *op : nest->ops)
    for (Value result : op->getResults())
      if (fusion.needsBuffer(result) &&
          memoryBytes(cast<TileType>(result.getType()).getElementType()) >
              bytes)
        return false;
  return true;
}

/// Where the life of a value ends because of one use: after the loops that
/// repeat the use but not the definition.
int64_t BufferPlan::endOfUse(Value value, OpOperand &use) const {
  Operation *root = fusion.getRoot(use.getOwner());
  Operation *scope = value.getParentRegion()->getParentOp();
  Operation *repeats = nullptr;
  for (Operation *op = root->getParentOp(); op != scope; op = op->getParentOp())
    if (isa<scf::ForOp>(op))
      repeats = op;
  if (repeats)
    return ends.lookup(repeats) + End;
  bool inPlace = isTied(use) || mayWriteInPlace(use);
  return starts.lookup(root) + (inPlace ? Read : End);
}

void BufferPlan::addValue(Value value) {
  int64_t begin = writePoint(value), end = begin;
  for (OpOperand &use : value.getUses())
    end = std::max(end, endOfUse(value, use));
  TileLayout layout(cast<TileType>(value.getType()), width);
  int64_t bytes = layout.bytes();
  // A transposition writes whole blocks of rows.
  if (value.getDefiningOp<TransposeOp>())
    bytes = roundUp(layout.rows, width) * layout.rowStride *
            memoryBytes(layout.elementType);
  classOf[value] = classes.size();
  classes.push_back({{{begin, end}}, bytes, 0});
}

void BufferPlan::addCarried(scf::ForOp loop) {
  Operation *yield = loop.getBody()->getTerminator();
  for (auto [argument, result] :
       llvm::zip(loop.getRegionIterArgs(), loop.getResults())) {
    auto type = dyn_cast<TileType>(argument.getType());
    if (!type)
      continue;
    Segment enter{starts[loop] + Write, starts[loop] + Write};
    for (OpOperand &use : argument.getUses())
      enter.end = std::max(enter.end, endOfUse(argument, use));
    // The next value waits for the next iteration or for the loop's end.
    Segment carry{starts[yield] + Write, ends[loop] + Write};
    for (OpOperand &use : result.getUses())
      carry.end = std::max(carry.end, endOfUse(result, use));
    classOf[argument] = classes.size();
    classOf[result] = classes.size();
    classes.push_back({{enter, carry}, TileLayout(type, width).bytes(), 0});
  }
}

void BufferPlan::addBranchResults(scf::IfOp branch) {
  for (OpResult result : branch->getResults()) {
    auto type = dyn_cast<TileType>(result.getType());
    if (!type)
      continue;
    Class entry{{}, TileLayout(type, width).bytes(), 0};
    for (Region &region : branch->getRegions()) {
      int64_t yield = starts[region.front().getTerminator()];
      entry.segments.push_back({yield + Write, yield + End});
    }
    Segment &last = entry.segments.back();
    last.end = ends[branch] + Write;
    for (OpOperand &use : result.getUses())
      last.end = std::max(last.end, endOfUse(result, use));
    classOf[result] = classes.size();
    classes.push_back(std::move(entry));
  }
}

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

/// Largest first, into the first slot whose classes all live at other times.
void BufferPlan::assignSlots() {
  SmallVector<unsigned> order;
  for (unsigned i = 0; i < classes.size(); ++i)
    if (classes[i].bytes > 0)
      order.push_back(i);
  llvm::stable_sort(order, [&](unsigned a, unsigned b) {
    return classes[a].bytes > classes[b].bytes;
  });
  SmallVector<SmallVector<unsigned>> members;
  for (unsigned index : order) {
    Class &entry = classes[index];
    unsigned slot = 0;
    while (slot < members.size() &&
           llvm::any_of(
               members[slot],
               [&](unsigned other) { return overlap(entry, classes[other]); }))
      ++slot;
    if (slot == members.size()) {
      members.emplace_back();
      slots.push_back(entry.bytes);
    }
    members[slot].push_back(index);
    entry.slot = slot;
  }
}
