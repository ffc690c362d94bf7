//===- OverlapAllReduce.cpp - run reductions beside backward --------------===//

#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"
#include "passes/Host/Passes.h"

#include <array>
#include <map>

#define DEBUG_TYPE "nsa-overlap-all-reduce"

namespace nsa {
#define GEN_PASS_DEF_OVERLAPALLREDUCE
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

/// Whether `op` is a command that cannot change places with `other`.
static bool conflicts(Operation *op, Operation *other) {
  auto command = dyn_cast<rt::CommandOpInterface>(op);
  return command && rt::conflict(command, cast<rt::CommandOpInterface>(other));
}

/// Whether a launch computes more than it moves, as those of attention do.
/// Their many programs leave a reduction some multiprocessors at little cost; a
/// matmul of a library, in one wave of large tiles, takes nearly twice as long.
static bool isComputeBound(Operation *command) {
  auto launch = dyn_cast<rt::LaunchOp>(command);
  if (!launch)
    return false;
  auto kernel = SymbolTable::lookupNearestSymbolFrom<tile::KernelOp>(
      launch, launch.getKernelAttr());
  constexpr int64_t operationsPerByte = 32;
  return kernel && kernel.getFlops().value_or(0) >
                       operationsPerByte * kernel.getBytes().value_or(0);
}

namespace {
struct OverlapAllReducePass
    : nsa::impl::OverlapAllReduceBase<OverlapAllReducePass> {
  using OverlapAllReduceBase::OverlapAllReduceBase;

  void runOnOperation() override {
    Block &block = getOperation().getBody().front();
    // Starts wait for copies of chunks, and copies of chunks for ends.
    forEach<rt::WriteSequenceOp>(block, &OverlapAllReducePass::hoist);
    forEach<rt::CollectiveStartOp>(block, &OverlapAllReducePass::hoist);
    forEach<rt::SliceSequenceOp>(block, &OverlapAllReducePass::sink);
    forEach<rt::CollectiveDoneOp>(block, &OverlapAllReducePass::sink);
    group(block);
  }

  template <typename OpT>
  void forEach(Block &block, void (OverlapAllReducePass::*move)(Operation *)) {
    for (OpT op : llvm::to_vector(block.getOps<OpT>()))
      (this->*move)(op);
  }

  /// Moves a command, with fills of its memory and what names that, after the
  /// last one that has to come before, and a start before the next launch that
  /// is bound by computing.
  void hoist(Operation *op) {
    unsigned passed = 0;
    Operation *after = op->getPrevNode(), *beside = nullptr;
    SmallVector<Operation *> group = {op};
    for (; after; after = after->getPrevNode()) {
      if (conflicts(after, op)) {
        // Fills prepare memory that chunks go to.
        if (op->getNumOperands() == 1 || !isa<rt::FillOp>(after))
          break;
        group.push_back(after);
        continue;
      }
      passed += isa<rt::CommandOpInterface>(after) ? 1 : 0;
      if (isa<rt::CollectiveStartOp>(op) && isComputeBound(after))
        beside = after;
    }
    if (passed == 0)
      return;
    if (beside)
      op->moveBefore(beside);
    else if (after)
      op->moveAfter(after);
    else
      op->moveBefore(&op->getBlock()->front());
    Operation *next = op;
    for (Operation *moved : group) {
      if (moved != op)
        moved->moveBefore(next);
      next = moved;
      for (Value memory : moved->getOperands())
        if (Operation *name = memory.getDefiningOp();
            !name->isBeforeInBlock(moved))
          moveWithOperands(name, moved);
    }
    ++numMoved;
  }

  /// Moves the operations that give memory a name before another one.
  static void moveWithOperands(Operation *name, Operation *before) {
    name->moveBefore(before);
    for (Value operand : name->getOperands())
      if (Operation *source = operand.getDefiningOp();
          !source->isBeforeInBlock(name))
        moveWithOperands(source, name);
  }

  /// Moves a command before the next one that has to come after it.
  void sink(Operation *op) {
    unsigned passed = 0;
    Operation *before = op->getNextNode();
    for (; before; before = before->getNextNode()) {
      if (conflicts(before, op))
        break;
      passed += isa<rt::CommandOpInterface>(before) ? 1 : 0;
    }
    if (passed == 0)
      return;
    if (before)
      op->moveBefore(before);
    else
      op->moveBefore(op->getBlock(), op->getBlock()->end());
    ++numMoved;
  }

  /// Starts collectives over sequences together where that delays none much:
  /// a group has the latency of one.
  void group(Block &block) {
    // How many launches that are bound by computing, and matmuls, come before.
    DenseMap<Operation *, std::pair<unsigned, unsigned>> before;
    DenseMap<Value, rt::CollectiveDoneOp> ends;
    std::pair<unsigned, unsigned> passed;
    for (Operation &op : block) {
      before[&op] = passed;
      passed.first += isComputeBound(&op) ? 1 : 0;
      passed.second += isa<rt::GemmOp>(op) ? 1 : 0;
    }
    // Later starts by what lies before them and before their ends. Matmuls
    // matter to those that nothing else hides.
    std::map<std::array<unsigned, 4>, rt::CollectiveStartOp> later;
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
      if (auto done = dyn_cast<rt::CollectiveDoneOp>(op))
        ends[done.getMemory()] = done;
      auto start = dyn_cast<rt::CollectiveStartOp>(op);
      if (!start || !start.isOfSequences())
        continue;
      auto [launches, matmuls] = before[start];
      unsigned end = before[ends[start.getMemory()]].first;
      rt::CollectiveStartOp &other =
          later[{unsigned(start.getKind()), launches, end,
                 launches == end ? matmuls : 0}];
      if (other && !conflictsBefore(start, other)) {
        start->moveBefore(other);
        start.setGrouped(true);
        ++numGrouped;
      }
      other = start;
    }
  }

  static bool conflictsBefore(rt::CollectiveStartOp start, Operation *end) {
    for (Operation *op = start->getNextNode(); op != end;
         op = op->getNextNode())
      if (conflicts(op, start))
        return true;
    return false;
  }
};
} // namespace
