//===- ConvertTileGPU.cpp - barriers and waits to NVVM --------------------===//

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/DialectConversion.h"
#include "passes/Conversion/TileToNVVM/Assembly.h"
#include "passes/Conversion/TileToNVVM/Passes.h"
#include "llvm/Support/FormatVariadic.h"

namespace nsa {
#define GEN_PASS_DEF_CONVERTTILEGPUTONVVM
#include "passes/Conversion/TileToNVVM/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile_gpu;

/// The barrier of some threads of the block; 0 is that of all.
static constexpr int32_t kPartialBarrier = 1;

/// A barrier of so many threads, or of all.
static NVVM::BarrierOp createBarrier(ImplicitLocOpBuilder &b,
                                     std::optional<uint32_t> threads,
                                     Value vote = {}) {
  auto number = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, b.getI32IntegerAttr(int32_t(value)));
  };
  auto reduction = vote ? NVVM::BarrierReductionAttr::get(
                              b.getContext(), NVVM::BarrierReduction::OR)
                        : NVVM::BarrierReductionAttr();
  return NVVM::BarrierOp::create(
      b, vote ? TypeRange(vote.getType()) : TypeRange(),
      threads ? number(kPartialBarrier) : Value(),
      threads ? number(*threads) : Value(), reduction, vote);
}

/// The threads that meet at a barrier, if not all.
static std::optional<uint32_t> getThreads(Operation *op) {
  for (; op; op = op->getParentOp())
    if (auto threads = op->getAttrOfType<IntegerAttr>(kConsumersAttr))
      return uint32_t(threads.getInt());
  return std::nullopt;
}

static LogicalResult convert(BarrierOp op, BarrierOp::Adaptor,
                             ConversionPatternRewriter &rewriter) {
  ImplicitLocOpBuilder b(op.getLoc(), rewriter);
  createBarrier(b, getThreads(op));
  rewriter.eraseOp(op);
  return success();
}

static LogicalResult convert(AnyThreadOp op, AnyThreadOp::Adaptor adaptor,
                             ConversionPatternRewriter &rewriter) {
  ImplicitLocOpBuilder b(op.getLoc(), rewriter);
  Value vote =
      arith::ExtUIOp::create(b, b.getI32Type(), adaptor.getCondition());
  Value votes = createBarrier(b, getThreads(op), vote).getRes();
  Value zero = arith::ConstantOp::create(b, b.getI32IntegerAttr(0));
  rewriter.replaceOpWithNewOp<arith::CmpIOp>(op, arith::CmpIPredicate::ne,
                                             votes, zero);
  return success();
}

static LogicalResult convert(AsyncCommitOp op, AsyncCommitOp::Adaptor,
                             ConversionPatternRewriter &rewriter) {
  rewriter.replaceOpWithNewOp<NVVM::CpAsyncCommitGroupOp>(op);
  return success();
}

static LogicalResult convert(AsyncWaitOp op, AsyncWaitOp::Adaptor,
                             ConversionPatternRewriter &rewriter) {
  rewriter.replaceOpWithNewOp<NVVM::CpAsyncWaitGroupOp>(op, op.getPending());
  return success();
}

static LogicalResult convert(FenceAsyncOp op, FenceAsyncOp::Adaptor,
                             ConversionPatternRewriter &rewriter) {
  rewriter.replaceOpWithNewOp<NVVM::FenceProxyOp>(
      op, NVVM::ProxyKind::async_shared,
      NVVM::SharedSpaceAttr::get(op.getContext(),
                                 NVVM::SharedSpace::shared_cta));
  return success();
}

static LogicalResult convert(WgmmaCommitOp op, WgmmaCommitOp::Adaptor adaptor,
                             ConversionPatternRewriter &rewriter) {
  NVVM::WgmmaGroupSyncAlignedOp::create(rewriter, op.getLoc());
  rewriter.replaceOp(op, adaptor.getValues());
  return success();
}

static LogicalResult convert(WgmmaWaitOp op, WgmmaWaitOp::Adaptor adaptor,
                             ConversionPatternRewriter &rewriter) {
  ImplicitLocOpBuilder b(op.getLoc(), rewriter);
  std::string text =
      llvm::formatv("wgmma.wait_group.sync.aligned {0};", op.getPending());
  rewriter.replaceOp(op, passThrough(b, text, adaptor.getValues()));
  return success();
}

namespace {
template <typename OpTy>
struct ConvertOp : OpConversionPattern<OpTy> {
  using OpConversionPattern<OpTy>::OpConversionPattern;

  LogicalResult
  matchAndRewrite(OpTy op, typename OpTy::Adaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    return convert(op, adaptor, rewriter);
  }
};

struct ConvertTileGPU : nsa::impl::ConvertTileGPUToNVVMBase<ConvertTileGPU> {
  void runOnOperation() override {
    ConversionTarget target(getContext());
    target.addIllegalDialect<TileGPUDialect>();
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    RewritePatternSet patterns(&getContext());
    patterns.add<ConvertOp<BarrierOp>, ConvertOp<AnyThreadOp>,
                 ConvertOp<AsyncCommitOp>, ConvertOp<AsyncWaitOp>,
                 ConvertOp<FenceAsyncOp>, ConvertOp<WgmmaCommitOp>,
                 ConvertOp<WgmmaWaitOp>>(&getContext());
    if (failed(applyPartialConversion(getOperation(), target,
                                      std::move(patterns))))
      return signalPassFailure();
    getOperation().walk(
        [](scf::IfOp roles) { roles->removeAttr(kConsumersAttr); });
  }
};
} // namespace
