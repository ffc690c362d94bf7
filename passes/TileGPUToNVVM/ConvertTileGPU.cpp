//===- ConvertTileGPU.cpp - barriers and waits to NVVM --------------------===//

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileGPUToNVVM/Patterns.h"
#include "passes/TileGPUToNVVM/ThreadBuilder.h"
#include "llvm/Support/FormatVariadic.h"

namespace nsa {
#define GEN_PASS_DEF_CONVERTTILEGPUTONVVM
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile_gpu;

/// The barrier of some threads of the block; 0 is that of all.
static constexpr int32_t kPartialBarrier = 1;

/// A barrier of the threads that reach it: of the consumers only, where there
/// is a producer.
static NVVM::BarrierOp createBarrier(ThreadBuilder &b, Operation *op,
                                     Value vote = {}) {
  IntegerAttr threads;
  for (; op && !threads; op = op->getParentOp())
    threads = op->getAttrOfType<IntegerAttr>(kConsumersAttr);
  auto reduction = vote ? NVVM::BarrierReductionAttr::get(
                              b.getContext(), NVVM::BarrierReduction::OR)
                        : NVVM::BarrierReductionAttr();
  return NVVM::BarrierOp::create(
      b, vote ? TypeRange(vote.getType()) : TypeRange(),
      threads ? b.i32(kPartialBarrier) : Value(),
      threads ? b.i32(threads.getInt()) : Value(), reduction, vote);
}

static void lowerBarrier(BarrierOp op, BarrierOp::Adaptor, ThreadBuilder &b) {
  createBarrier(b, op);
}

static Value lowerAnyThread(AnyThreadOp op, AnyThreadOp::Adaptor adaptor,
                            ThreadBuilder &b) {
  Value vote =
      arith::ExtUIOp::create(b, b.getI32Type(), adaptor.getCondition());
  return b.differs(createBarrier(b, op, vote).getRes(), 0);
}

static void lowerCommit(AsyncCommitOp, AsyncCommitOp::Adaptor,
                        ThreadBuilder &b) {
  NVVM::CpAsyncCommitGroupOp::create(b);
}

static void lowerWait(AsyncWaitOp op, AsyncWaitOp::Adaptor, ThreadBuilder &b) {
  NVVM::CpAsyncWaitGroupOp::create(b, op.getPending());
}

static void lowerFence(FenceAsyncOp, FenceAsyncOp::Adaptor, ThreadBuilder &b) {
  NVVM::FenceProxyOp::create(
      b, NVVM::ProxyKind::async_shared,
      NVVM::SharedSpaceAttr::get(b.getContext(),
                                 NVVM::SharedSpace::shared_cta));
}

static ValueRange lowerWgmmaCommit(WgmmaCommitOp,
                                   WgmmaCommitOp::Adaptor adaptor,
                                   ThreadBuilder &b) {
  NVVM::WgmmaGroupSyncAlignedOp::create(b);
  return adaptor.getValues();
}

static SmallVector<Value>
lowerWgmmaWait(WgmmaWaitOp op, WgmmaWaitOp::Adaptor adaptor, ThreadBuilder &b) {
  std::string text =
      llvm::formatv("wgmma.wait_group.sync.aligned {0};", op.getPending());
  return passThrough(b, text, adaptor.getValues());
}

namespace {
struct ConvertTileGPU : nsa::impl::ConvertTileGPUToNVVMBase<ConvertTileGPU> {
  void runOnOperation() override {
    ConversionTarget target(getContext());
    target.addIllegalDialect<TileGPUDialect>();
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    RewritePatternSet patterns(&getContext());
    addThreadPatterns(patterns, lowerBarrier, lowerAnyThread, lowerCommit,
                      lowerWait, lowerFence, lowerWgmmaCommit, lowerWgmmaWait);
    if (failed(applyPartialConversion(getOperation(), target,
                                      std::move(patterns))))
      return signalPassFailure();
    getOperation().walk(
        [](scf::IfOp roles) { roles->removeAttr(kConsumersAttr); });
  }
};
} // namespace
