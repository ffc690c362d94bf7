//===- PipelineLoops.cpp - loops that copy ahead --------------------------===//
//
// A loop's buffers have several stages. While an iteration computes on one,
// threads' copies fill the others for those that follow.
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/IRMapping.h"
#include "passes/TileGPU/GlobalAccesses.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileGPU/Prefetch.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/ThreadBuilder.h"

namespace nsa {
#define GEN_PASS_DEF_TILEGPUPIPELINE
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

namespace {
/// Expands one loop.
class LoopPipeliner {
public:
  LoopPipeliner(scf::ForOp loop, PipelineAttr plan,
                const llvm::DenseSet<Value> &written, bool usesWgmma)
      : loop(loop), plan(plan), prefetch(findPrefetch(loop, written)),
        usesWgmma(usesWgmma), b(loop.getLoc(), loop) {}

  void run();

private:
  void makePrologue();
  void makeBody(scf::ForOp staged);
  void copyAhead(scf::ForOp from, Value iteration, Value stage);

  scf::ForOp loop;
  PipelineAttr plan;
  Prefetch prefetch;
  bool usesWgmma;
  ThreadBuilder b;
};
} // namespace

/// Copies the tiles of an iteration of `from` into `stage`, if there is one.
void LoopPipeliner::copyAhead(scf::ForOp from, Value iteration, Value stage) {
  Value exists = b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::slt,
                                               iteration, from.getUpperBound());
  auto branch = CopyIfOp::create(b, exists);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&branch.getBody().emplaceBlock());
  IRMapping mapping;
  mapping.map(from.getInductionVar(),
              IterationOp::create(b, b.getI32Type(), iteration,
                                  from.getLowerBound(), from.getUpperBound())
                  .getResult());
  for (Operation *op : prefetch.addresses)
    b.clone(*op, mapping);
  for (AsyncCopyOp copy : prefetch.copies)
    cast<AsyncCopyOp>(b.clone(*copy, mapping)).getStageMutable().assign(stage);
}

/// All stages but one are on their way before the loop.
void LoopPipeliner::makePrologue() {
  // Others may still read what was there before.
  BarrierOp::create(b);
  for (int64_t k = 0; k + 1 < plan.getStages(); ++k) {
    copyAhead(loop, b.add(loop.getLowerBound(), b.mul(loop.getStep(), k)),
              b.i32(k * plan.getBytes()));
    AsyncCommitOp::create(b);
  }
}

/// The previous and the next stage of `stage` in a pipeline whose last one is
/// at `last`.
static std::pair<Value, Value> neighbours(ThreadBuilder &b, Value stage,
                                          int64_t last, int64_t bytes) {
  if (last == bytes) {
    Value other = arith::SubIOp::create(b, b.i32(bytes), stage);
    return {other, other};
  }
  Value isFirst =
      b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::eq, stage, b.i32(0));
  Value isLast = b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::eq, stage,
                                               b.i32(last));
  return {b.select(isFirst, b.i32(last), b.add(stage, -bytes)),
          b.select(isLast, b.i32(0), b.add(stage, bytes))};
}

/// Waits until the copies of this iteration are there and the stage before is
/// free. The copies of a later iteration are issued then, or during the first
/// dot of a warpgroup.
void LoopPipeliner::makeBody(scf::ForOp staged) {
  int64_t ahead = plan.getStages() - 1;
  Block *body = staged.getBody();
  Value stage = body->getArguments().back();
  b.setInsertionPointToStart(body);
  auto [before, after] =
      neighbours(b, stage, ahead * plan.getBytes(), plan.getBytes());
  AsyncWaitOp::create(b, int32_t(ahead - 1));
  if (usesWgmma)
    FenceAsyncOp::create(b);
  BarrierOp::create(b);
  Value iteration =
      b.add(staged.getInductionVar(), b.mul(staged.getStep(), ahead));
  if (DotOp first = findFirstDot(staged))
    b.setInsertionPointAfter(first);
  copyAhead(staged, iteration, before);
  AsyncCommitOp::create(b);
  for (AsyncCopyOp copy : prefetch.copies) {
    setStage(copy.getBuffer(), stage);
    copy.erase();
  }
  auto yield = cast<scf::YieldOp>(body->getTerminator());
  yield.getResultsMutable().append(after);
}

void LoopPipeliner::run() {
  for (AsyncCopyOp copy : prefetch.copies)
    copy.getBuffer().getDefiningOp()->moveBefore(loop);
  makePrologue();
  scf::ForOp staged = extendLoop(b, loop, b.i32(0));
  makeBody(staged);
  loop.erase();
}

namespace {
struct Pipeline : nsa::impl::TileGPUPipelineBase<Pipeline> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    llvm::DenseSet<Value> written = getWrittenArguments(kernel);
    SmallVector<std::pair<scf::ForOp, PipelineAttr>> loops;
    kernel.walk([&](scf::ForOp loop) {
      auto plan = loop->getAttrOfType<PipelineAttr>(kPipelineAttr);
      if (plan && !plan.getProducer())
        loops.emplace_back(loop, plan);
    });
    bool hasWgmma = usesWgmma(kernel);
    for (auto [loop, plan] : loops)
      LoopPipeliner(loop, plan, written, hasWgmma).run();
  }
};
} // namespace
