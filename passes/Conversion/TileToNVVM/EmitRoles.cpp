//===- EmitRoles.cpp - warpgroups of different roles ----------------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/RT/RTOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "nsa/Artifact/TensorMap.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

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

Value KernelEmitter::mbarrierAddress(Value barriers, Value index) {
  auto first = int64_t(barriers.getDefiningOp<MBarriersOp>().getOffset());
  if (std::optional<int64_t> known = getConstantIntValue(index))
    return b.advance(sharedBase, first + *known * kMBarrierBytes);
  return b.advance(b.advance(sharedBase, first),
                   b.mul(scalar(index), kMBarrierBytes));
}

void KernelEmitter::emitMBarrierInit(MBarrierInitOp op) {
  auto initialize = [&](Value barriers, int64_t k) {
    auto own = barriers.getDefiningOp<MBarriersOp>();
    Value arrivals = b.i32(int64_t(own.getArrivals()));
    NVVM::MBarrierInitOp::create(b, mbarrierAddress(barriers, b.i32(k)),
                                 arrivals, Value());
  };
  b.ifThen(b.less(tid, 1), [&] {
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

void KernelEmitter::emitMBarrierWait(MBarrierWaitOp op) {
  // Nanoseconds that a thread may sleep before it asks again.
  constexpr int64_t patience = 10'000'000;
  NVVM::MBarrierTryWaitParityOp::create(
      b, mbarrierAddress(op.getBarriers(), op.getIndex()),
      scalar(op.getParity()), b.i32(patience));
}

/// Says how many bytes are going to arrive.
void KernelEmitter::emitMBarrierExpect(MBarrierExpectOp op) {
  NVVM::MBarrierArriveExpectTxOp::create(
      b, /*res=*/Type(), mbarrierAddress(op.getBarriers(), op.getIndex()),
      b.i32(int64_t(op.getBytes())), NVVM::MemScopeKind::CTA,
      /*relaxed=*/false, Value());
}

void KernelEmitter::emitMBarrierArrive(MBarrierArriveOp op) {
  Value condition = op.getCondition() ? scalar(op.getCondition()) : Value();
  b.ifThen(condition, [&] {
    NVVM::SyncWarpOp::create(b, b.i32(-1));
    Value barrier = mbarrierAddress(op.getBarriers(), op.getIndex());
    b.ifThen(b.less(thread().lane, 1), [&] {
      NVVM::MBarrierArriveOp::create(b, TypeRange(b.getI64Type()), barrier,
                                     Value());
    });
  });
}

//===----------------------------------------------------------------------===//
// Loads
//===----------------------------------------------------------------------===//

/// The parameters of a kernel that describe tensors.
void KernelEmitter::addTensorMaps(LLVM::LLVMFuncOp func) {
  auto maps = kernel->getAttrOfType<ArrayAttr>(kTensorMapsAttr);
  if (!maps)
    return;
  auto bytes = LLVM::LLVMArrayType::get(b.getI8Type(), tensorMapBytes);
  for (size_t k = 0; k < maps.size(); ++k) {
    auto number = unsigned(kernel.getNumArguments() + k);
    func.setArgAttr(number, LLVM::LLVMDialect::getByValAttrName(),
                    TypeAttr::get(bytes));
    func.setArgAttr(number, LLVM::LLVMDialect::getAlignAttrName(),
                    b.getI64IntegerAttr(64));
    func.setArgAttr(number, NVVM::NVVMDialect::getGridConstantAttrName(),
                    b.getUnitAttr());
  }
  func->setAttr(kTensorMapsAttr, maps);
}

/// As many boxes as the buffer's columns take.
void KernelEmitter::emitTmaLoad(TmaLoadOp op) {
  auto func =
      b.getInsertionBlock()->getParent()->getParentOfType<LLVM::LLVMFuncOp>();
  Value map =
      func.getArgument(unsigned(kernel.getNumArguments() + op.getMap()));
  auto maps = kernel->getAttrOfType<ArrayAttr>(kTensorMapsAttr);
  auto box = cast<rt::TensorMapAttr>(maps[op.getMap()]).getBox();
  MemDescType type = op.getBuffer().getType();
  int64_t elements = type.getShape()[0] * type.getShape()[1];
  int64_t boxElements = 1;
  for (int64_t extent : box.asArrayRef())
    boxElements *= extent;
  Value barrier = mbarrierAddress(op.getBarriers(), op.getIndex());
  SmallVector<Value> start = llvm::map_to_vector(
      op.getStart(), [&](Value index) { return scalar(index); });
  auto inCluster = LLVM::LLVMPointerType::get(b.getContext(),
                                              unsigned(Space::SharedCluster));
  Value to = sharedBase;
  if (op.getStage())
    to = b.advance(to, scalar(op.getStage()));
  to = b.advance(to, getOffset(op.getBuffer()));
  Value hint;
  if (op.getEvictLast())
    hint = b.constant(b.getI64Type(), evictLast);
  for (int64_t k = 0; k < elements / boxElements; ++k) {
    SmallVector<Value> coordinates = start;
    coordinates[0] = b.add(start[0], k * box.asArrayRef()[0]);
    // A block is a cluster of its own. The form of the instruction that names
    // the block instead takes PTX 8.6.
    Value target = LLVM::AddrSpaceCastOp::create(
        b, inCluster,
        b.advance(to, k * boxElements * elementBytes(type.getElementType())));
    NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
        b, target, map, coordinates, barrier,
        /*im2colOffsets=*/ValueRange(), /*multicastMask=*/Value(),
        /*l2CacheHint=*/hint, NVVM::TMALoadMode::TILE, /*isCTAOnly=*/false,
        NVVM::CTAGroupKindAttr(), /*predicate=*/Value());
  }
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

LogicalResult KernelEmitter::emitRoles(WarpSpecializeOp op) {
  auto func =
      b.getInsertionBlock()->getParent()->getParentOfType<LLVM::LLVMFuncOp>();
  Value warp = b.broadcast(thread().warp);
  Value isConsumer = b.less(warp, warps);
  auto roles = scf::IfOp::create(b, isConsumer, /*withElseRegion=*/true);
  roles->setAttr(kConsumersAttr, b.getI32IntegerAttr(int32_t(threads)));
  if (op.getLaunchRegistersAttr())
    func->setAttr(kLaunchRegistersAttr, op.getLaunchRegistersAttr());
  func->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                b.getI32IntegerAttr(int32_t(op.getBlocks())));
  auto takeRegisters = [&](unsigned role, NVVM::SetMaxRegisterAction action) {
    if (std::optional<ArrayRef<int64_t>> registers = op.getRegisters())
      NVVM::SetMaxRegisterOp::create(b, (*registers)[role], action);
  };
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&roles.getElseRegion().front());
  takeRegisters(0, NVVM::SetMaxRegisterAction::decrease);
  Value copies =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, tid, b.i32(threads));
  LogicalResult result = success();
  b.ifThen(copies, [&] { result = emitBlock(op.getProducer().front()); });
  if (failed(result))
    return failure();
  b.setInsertionPointToStart(&roles.getThenRegion().front());
  takeRegisters(1, NVVM::SetMaxRegisterAction::increase);
  return emitBlock(op.getConsumer().front());
}
