//===- Schedule.cpp - order the commands of entries -----------------------===//

#include "passes/Host/CommandOrder.h"
#include "passes/Host/Passes.h"
#include "passes/Support/Debug.h"

#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-schedule"

namespace nsa {
#define GEN_PASS_DEF_SCHEDULE
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

/// Moves the operations that `command` needs, and then itself, to the end of
/// the block, unless they were moved before.
static void moveToEnd(Operation *command, Block &block,
                      llvm::DenseSet<Operation *> &moved) {
  if (!command || !moved.insert(command).second)
    return;
  for (Value operand : command->getOperands())
    moveToEnd(operand.getDefiningOp(), block, moved);
  command->moveBefore(&block, block.end());
}

namespace {
struct SchedulePass : nsa::impl::ScheduleBase<SchedulePass> {
  using ScheduleBase::ScheduleBase;

  void runOnOperation() override {
    rt::EntryOp entry = getOperation();
    SmallVector<rt::CommandOpInterface> commands = rt::getCommands(entry);
    CommandGraph graph(commands);
    auto original = llvm::to_vector(llvm::seq<unsigned>(0, graph.size()));
    auto best = original;
    uint64_t originalPeak = graph.getPeak(original), peak = originalPeak;
    for (unsigned lookAhead : {4u, 16u, 64u, ~0u}) {
      SmallVector<unsigned> order = graph.listGreedily(lookAhead);
      uint64_t candidate = graph.getPeak(order);
      NSA_DEBUG() << "@" << entry.getSymName() << ": a look-ahead of "
                  << std::min(lookAhead, graph.size()) << " commands peaks at "
                  << candidate << " bytes, " << peak << " before";
      if (candidate < peak) {
        best = std::move(order);
        peak = candidate;
      }
    }
    if (std::optional<unsigned> command = graph.findMisorder(best)) {
      Operation *where = *command < commands.size()
                             ? commands[*command].getOperation()
                             : entry.getOperation();
      where->emitOpError("would read memory that was overwritten before its "
                         "last reader");
      return signalPassFailure();
    }
    remark::analysis(entry.getLoc(), remark::RemarkOpts::name("PeakLiveBytes")
                                         .category(DEBUG_TYPE)
                                         .function(entry.getSymName()))
        << remark::metric("Bytes", peak)
        << remark::metric("BytesBefore", originalPeak);
    if (best == original)
      return markAllAnalysesPreserved();
    apply(entry, commands, best);
  }

  void apply(rt::EntryOp entry, ArrayRef<rt::CommandOpInterface> commands,
             ArrayRef<unsigned> order) {
    llvm::DenseSet<Operation *> moved;
    for (auto [position, command] : llvm::enumerate(order)) {
      moveToEnd(commands[command], entry.getBody().front(), moved);
      numMoved += position != command;
    }
  }
};
} // namespace
