//===- RolePatterns.cpp - roles of warpgroups, and copies ahead -----------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/RT/RTOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "nsa/Artifact/TensorMap.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/Patterns.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

/// The cache policy of createpolicy.fractional.L2::evict_last for all bytes.
static constexpr int64_t evictLast = 0x14F0000000000000;

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

static Value mbarrierAddress(ThreadBuilder &b, Value barriers, Value index) {
  auto own = barriers.getDefiningOp<MBarriersOp>();
  if (std::optional<int64_t> known = getConstantIntValue(index))
    return b.advance(b.sharedBase(), own.getAddress(*known));
  return b.advance(b.advance(b.sharedBase(), own.getAddress(0)),
                   b.mul(index, kMBarrierBytes));
}

static void lowerInit(MBarrierInitOp op, MBarrierInitOp::Adaptor adaptor,
                      ThreadBuilder &b) {
  auto initialize = [&](Value barriers, int64_t k) {
    auto own = barriers.getDefiningOp<MBarriersOp>();
    Value arrivals = b.i32(int64_t(own.getArrivals()));
    NVVM::MBarrierInitOp::create(b, mbarrierAddress(b, barriers, b.i32(k)),
                                 arrivals, Value());
  };
  b.ifThen(b.less(b.threadId(), 1), [&] {
    for (int64_t k = 0; k < op.getFull().getType().getCount(); ++k) {
      initialize(op.getFull(), k);
      initialize(op.getEmpty(), k);
    }
    if (op.getKept())
      for (int64_t k = 0; k < op.getKept().getType().getCount(); ++k)
        initialize(op.getKept(), k);
    NVVM::FenceMbarrierInitOp::create(b);
  });
  BarrierOp::create(b);
}

static void lowerWait(MBarrierWaitOp op, MBarrierWaitOp::Adaptor adaptor,
                      ThreadBuilder &b) {
  // Nanoseconds that a thread may sleep before it asks again.
  constexpr int64_t patience = 10'000'000;
  NVVM::MBarrierTryWaitParityOp::create(
      b, mbarrierAddress(b, op.getBarriers(), adaptor.getIndex()),
      adaptor.getParity(), b.i32(patience));
}

/// Says how many bytes are going to arrive.
static void lowerExpect(MBarrierExpectOp op, MBarrierExpectOp::Adaptor adaptor,
                        ThreadBuilder &b) {
  Value isFirst;
  if (op.getElect())
    isFirst = b.both(b.less(b.place().lane, 1), b.less(b.warpOfGroup(), 1));
  b.ifThen(isFirst, [&] {
    NVVM::MBarrierArriveExpectTxOp::create(
        b, /*res=*/Type(),
        mbarrierAddress(b, op.getBarriers(), adaptor.getIndex()),
        b.i32(int64_t(op.getBytes())), NVVM::MemScopeKind::CTA,
        /*relaxed=*/false, Value());
  });
}

static void lowerArrive(MBarrierArriveOp op, MBarrierArriveOp::Adaptor adaptor,
                        ThreadBuilder &b) {
  if (op.getCopies())
    return b.ifThen(b.less(b.warpOfGroup(), 1), [&] {
      NVVM::CpAsyncMBarrierArriveOp::create(
          b, mbarrierAddress(b, op.getBarriers(), adaptor.getIndex()),
          /*noinc=*/true);
    });
  Value condition = adaptor.getCondition();
  b.ifThen(condition, [&] {
    if (!op.getEach())
      NVVM::SyncWarpOp::create(b, b.i32(-1));
    Value barrier = mbarrierAddress(b, op.getBarriers(), adaptor.getIndex());
    b.ifThen(op.getEach() ? Value() : b.less(b.place().lane, 1), [&] {
      NVVM::MBarrierArriveOp::create(b, TypeRange(b.getI64Type()), barrier,
                                     Value());
    });
  });
}

//===----------------------------------------------------------------------===//
// Loads
//===----------------------------------------------------------------------===//

static Value getTensorMap(LLVM::LLVMFuncOp func, unsigned number) {
  for (unsigned k = 0; k < func.getNumArguments(); ++k)
    if (func.getArgAttr(k, NVVM::NVVMDialect::getGridConstantAttrName()))
      return func.getArgument(k + number);
  llvm_unreachable("a kernel without tensor maps");
}

/// As many boxes as the buffer's columns take; of those of a few rows, each
/// lane loads one for every swizzle atom column.
static void lowerTmaLoad(TmaLoadOp op, TmaLoadOp::Adaptor adaptor,
                         ThreadBuilder &b) {
  auto func =
      b.getInsertionBlock()->getParent()->getParentOfType<LLVM::LLVMFuncOp>();
  Value map = getTensorMap(func, unsigned(op.getMap()));
  auto maps = func->getAttrOfType<ArrayAttr>(kTensorMapsAttr);
  auto box = cast<rt::TensorMapAttr>(maps[op.getMap()]).getBox();
  MemDescType type = op.getBuffer().getType();
  int64_t elements = type.getShape()[0] * type.getShape()[1];
  int64_t boxElements = 1;
  for (int64_t extent : box.asArrayRef())
    boxElements *= extent;
  Value barrier = mbarrierAddress(b, op.getBarriers(), adaptor.getIndex());
  SmallVector<Value> start = llvm::to_vector(adaptor.getStart());
  auto inCluster = LLVM::LLVMPointerType::get(b.getContext(),
                                              unsigned(Space::SharedCluster));
  Value to = b.sharedBase();
  if (op.getStage())
    to = b.advance(to, adaptor.getStage());
  to = b.advance(to, getOffset(op.getBuffer()));
  Value hint, hasBox;
  if (op.getEvictLast())
    hint = b.constant(b.getI64Type(), evictLast);
  int64_t boxBytes = boxElements * elementBytes(type.getElementType());
  int64_t lanes =
      op.getRows() ? type.getShape()[0] / int64_t(*op.getRows()) : 1;
  if (op.getRows()) {
    to = b.advance(to, b.mul(b.place().lane, boxBytes));
    hasBox = b.less(b.place().lane, lanes);
  }
  auto load = [&](int64_t k) {
    SmallVector<Value> coordinates = start;
    coordinates[0] = b.add(start[0], k * box.asArrayRef()[0]);
    // A block is a cluster of its own. The form of the instruction that names
    // the block instead takes PTX 8.6.
    Value target = LLVM::AddrSpaceCastOp::create(
        b, inCluster, b.advance(to, k * lanes * boxBytes));
    NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
        b, target, map, coordinates, barrier,
        /*im2colOffsets=*/ValueRange(), /*multicastMask=*/Value(),
        /*l2CacheHint=*/hint, NVVM::TMALoadMode::TILE, /*isCTAOnly=*/false,
        NVVM::CTAGroupKindAttr(), /*predicate=*/Value());
  };
  std::optional<ArrayRef<int64_t>> warps = op.getWarps();
  for (int64_t k = 0; k < elements / boxElements / lanes; ++k) {
    Value condition = hasBox;
    if (warps)
      condition = b.both(b.equal(b.warpOfGroup(), (*warps)[k]), hasBox);
    b.ifThen(condition, [&] { load(k); });
  }
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

static void convertRoles(WarpSpecializeOp op, ThreadBuilder &b,
                         ConversionPatternRewriter &rewriter) {
  auto func = op->getParentOfType<LLVM::LLVMFuncOp>();
  auto all = func->getAttrOfType<DenseI32ArrayAttr>(
      NVVM::NVVMDialect::getReqntidAttrName());
  int64_t threads = all[0] - kProducerThreads;
  Value warp = b.broadcast(b.place().warp);
  auto roles = scf::IfOp::create(b, b.less(warp, threads / 32),
                                 /*withElseRegion=*/true);
  roles->setAttr(kConsumersAttr, b.getI32IntegerAttr(int32_t(threads)));
  rewriter.modifyOpInPlace(func, [&] {
    if (op.getLaunchRegistersAttr())
      func->setAttr(kLaunchRegistersAttr, op.getLaunchRegistersAttr());
    func->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                  b.getI32IntegerAttr(int32_t(op.getBlocks())));
  });
  auto takeRegisters = [&](unsigned role, NVVM::SetMaxRegisterAction action) {
    if (std::optional<ArrayRef<int64_t>> registers = op.getRegisters())
      NVVM::SetMaxRegisterOp::create(b, (*registers)[role], action);
  };
  auto moveTo = [&](Region &role, Block *block) {
    rewriter.inlineBlockBefore(&role.front(), block,
                               block->getTerminator()->getIterator());
  };
  b.setInsertionPointToStart(roles.elseBlock());
  takeRegisters(0, NVVM::SetMaxRegisterAction::decrease);
  Value isProducer = op.getWarps()
                         ? b.less(warp, threads / 32 + int64_t(*op.getWarps()))
                         : b.equal(b.threadId(), threads);
  auto one = scf::IfOp::create(b, isProducer, /*withElseRegion=*/false);
  moveTo(op.getProducer(), one.thenBlock());
  b.setInsertionPointToStart(roles.thenBlock());
  takeRegisters(1, NVVM::SetMaxRegisterAction::increase);
  moveTo(op.getConsumer(), roles.thenBlock());
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

namespace {
struct ConvertRoles : OpConversionPattern<WarpSpecializeOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult
  matchAndRewrite(WarpSpecializeOp op, OpAdaptor,
                  ConversionPatternRewriter &rewriter) const override {
    ThreadBuilder b(op.getLoc(), rewriter);
    convertRoles(op, b, rewriter);
    rewriter.eraseOp(op);
    return success();
  }
};

struct ConvertCopyIf : OpConversionPattern<CopyIfOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult
  matchAndRewrite(CopyIfOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    auto branch =
        scf::IfOp::create(rewriter, op.getLoc(), adaptor.getCondition(),
                          /*withElseRegion=*/false);
    Block *block = branch.thenBlock();
    rewriter.inlineBlockBefore(&op.getBody().front(), block,
                               block->getTerminator()->getIterator());
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

/// The last parameters are the extents of the launch.
static Value lowerExtent(ExtentOp op, ExtentOp::Adaptor, ThreadBuilder &b) {
  auto func = op->getParentOfType<LLVM::LLVMFuncOp>();
  Value extent = func.getArguments().take_back(kNumExtents)[op.getNumber()];
  if (op.getType() == extent.getType())
    return extent;
  return arith::TruncIOp::create(b, op.getType(), extent);
}

void nsa::cuda::populateRolePatterns(RewritePatternSet &patterns) {
  addThreadPatterns(patterns, lowerInit, lowerWait, lowerExpect, lowerArrive,
                    lowerTmaLoad, lowerExtent);
  patterns.add<ConvertCopyIf, ConvertRoles>(patterns.getContext());
}
