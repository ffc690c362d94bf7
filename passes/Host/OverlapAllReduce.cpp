//===- OverlapAllReduce.cpp - run reductions beside backward --------------===//

#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"
#include "passes/Host/Passes.h"

#define DEBUG_TYPE "nsa-overlap-all-reduce"

namespace nsa {
#define GEN_PASS_DEF_OVERLAPALLREDUCE
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

/// Whether a command touches memory that `memory` shows something of.
static bool touches(rt::CommandOpInterface command, Value memory) {
  SmallVector<Value> touched;
  command.getReads(touched);
  command.getWrites(touched);
  return llvm::any_of(touched, [&](Value value) {
    return rt::getMemoryRoot(value) == rt::getMemoryRoot(memory) ||
           rt::shareTensors(value, memory);
  });
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
    for (auto start : llvm::to_vector(block.getOps<rt::CollectiveStartOp>()))
      hoist(start, block);
    for (auto done : llvm::to_vector(block.getOps<rt::CollectiveDoneOp>()))
      sink(done, block);
  }

  /// Moves a start, and what names its memory, after the last command that
  /// touches the memory, or before the next launch that is bound by computing.
  void hoist(rt::CollectiveStartOp start, Block &block) {
    Value memory = start.getMemory();
    unsigned passed = 0;
    Operation *after = start->getPrevNode(), *beside = nullptr;
    for (; after; after = after->getPrevNode()) {
      auto command = dyn_cast<rt::CommandOpInterface>(after);
      if (command && touches(command, memory))
        break;
      passed += command ? 1 : 0;
      beside = isComputeBound(after) ? after : beside;
    }
    if (passed == 0)
      return;
    if (beside)
      start->moveBefore(beside);
    else if (after)
      start->moveAfter(after);
    else
      start->moveBefore(&block.front());
    if (Operation *name = memory.getDefiningOp(); !name->isBeforeInBlock(start))
      moveWithOperands(name, start);
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

  /// Moves an end before the next command that touches the memory.
  void sink(rt::CollectiveDoneOp done, Block &block) {
    unsigned passed = 0;
    Operation *before = done->getNextNode();
    for (; before; before = before->getNextNode()) {
      auto command = dyn_cast<rt::CommandOpInterface>(before);
      if (command && touches(command, done.getMemory()))
        break;
      passed += command ? 1 : 0;
    }
    if (passed == 0)
      return;
    if (before)
      done->moveBefore(before);
    else
      done->moveBefore(&block, block.end());
    ++numMoved;
  }
};
} // namespace
