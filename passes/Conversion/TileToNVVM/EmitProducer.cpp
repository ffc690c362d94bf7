//===- EmitProducer.cpp - a warpgroup that copies for others --------------===//
//
// A pipeline of stages in shared memory lies between one thread, which has
// TMA tiles copied to the stages in turn (the producer), and the
// warpgroups that multiply what is there (the consumers). Each stage has two
// barriers in shared memory (mbarrier): "full" is passed when all bytes of a
// copy have arrived, "empty" when all warps have read them. The warpgroups do
// not wait for each other.
//
//===----------------------------------------------------------------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "nsa/Artifact/TensorMap.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// Registers are handed over by whole warpgroups, so the producer is one too,
/// though one thread does its work.
static constexpr int64_t producerThreads = 32 * warpsOfGroup;
/// Registers of a thread of the producer, of a multiprocessor, and the most of
/// a consumer and of any thread when the kernel starts.
static constexpr int64_t producerRegisters = 24, allRegisters = 65536,
                         mostRegisters = 240, mostAtLaunch = 255;

/// The cache policy of createpolicy.fractional.L2::evict_last for all bytes.
static constexpr int64_t evictLast = 0x14F0000000000000;

/// How many registers a thread has when the kernel starts, and how many one of
/// the consumers when the producer has given its own away.
static std::pair<int64_t, int64_t> shareRegisters(int64_t consumers,
                                                  int64_t blocks) {
  int64_t all = consumers + producerThreads;
  int64_t atLaunch =
      std::min(allRegisters / (blocks * all), mostAtLaunch) / 8 * 8;
  int64_t rest = atLaunch * all - producerRegisters * producerThreads;
  return {atLaunch, std::min(rest / consumers / 8 * 8, mostRegisters)};
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

static constexpr int64_t barrierBytes = 8;

/// The barrier of a stage. Those that say that stages are empty lie behind the
/// others.
Value KernelEmitter::stageBarrier(Value stage, bool isFull) {
  Value first =
      b.advance(sharedBase, pipelineState.barriers +
                                (isFull ? 0 : producer.depth) * barrierBytes);
  return b.advance(first, b.mul(stage, barrierBytes));
}

/// The barrier of a stationary tile, which is filled once.
Value KernelEmitter::stationaryBarrier(size_t number) {
  int64_t index = 2 * producer.depth + int64_t(number);
  return b.advance(sharedBase, pipelineState.barriers + index * barrierBytes);
}

/// Waits until a barrier's phase of this parity is over.
void KernelEmitter::waitPhase(Value barrier, Value parity) {
  // Nanoseconds that a thread may sleep before it asks again.
  constexpr int64_t patience = 10'000'000;
  NVVM::MBarrierTryWaitParityOp::create(b, barrier, parity, b.i32(patience));
}

void KernelEmitter::initializeRing() {
  // Of tiles that arrive, the producer; of stages that are free, each warp.
  auto initialize = [&](Value barrier, int64_t arrivals) {
    NVVM::MBarrierInitOp::create(b, barrier, b.i32(arrivals), Value());
  };
  b.ifThen(b.less(tid, 1), [&] {
    for (int64_t k = 0; k < producer.depth; ++k) {
      initialize(stageBarrier(b.i32(k), true), 1);
      initialize(stageBarrier(b.i32(k), false), warps);
    }
    for (size_t k = 0; k < producer.stationary.size(); ++k)
      initialize(stationaryBarrier(k), 1);
    NVVM::FenceMbarrierInitOp::create(b);
  });
  tile_gpu::BarrierOp::create(b, IntegerAttr());
}

/// The stage behind this one: its number and its phase bit.
void KernelEmitter::advanceRing() {
  Value isLast =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, pipelineState.stage,
                            b.i32(producer.depth - 1));
  Value turn = arith::ExtUIOp::create(b, b.getI32Type(), isLast);
  pipelineState.phase = arith::XOrIOp::create(b, pipelineState.phase, turn);
  pipelineState.stage =
      b.select(isLast, b.i32(0), b.add(pipelineState.stage, 1));
}

//===----------------------------------------------------------------------===//
// Producer
//===----------------------------------------------------------------------===//

/// Starts a copy into the pipeline, or if `stage` is null of a stationary tile.
void KernelEmitter::copyTiles(const ProducerPlan::Copy &copy, Value stage,
                              Value barrier) {
  SmallVector<Value> start = llvm::map_to_vector(
      copy.copy.start, [&](Value index) { return scalar(index); });
  auto inCluster = LLVM::LLVMPointerType::get(b.getContext(),
                                              unsigned(Space::SharedCluster));
  Value to = stage
                 ? b.advance(b.advance(sharedBase, stage), pipelineState.offset)
                 : sharedBase;
  to = b.advance(to, copy.offset);
  // What loops copy, other programs copy too: the cache is to keep it longer
  // than what goes through it once.
  Value hint;
  if (stage)
    hint = b.constant(b.getI64Type(), evictLast);
  for (int64_t k = 0; k < copy.copy.boxes; ++k) {
    SmallVector<Value> coordinates = start;
    coordinates[0] = b.add(start[0], k * copy.copy.boxElements);
    // A block is a cluster of its own. The form of the instruction that names
    // the block instead takes PTX 8.6.
    Value target = LLVM::AddrSpaceCastOp::create(
        b, inCluster, b.advance(to, k * copy.copy.boxBytes));
    NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
        b, target, pipelineState.maps[copy.map], coordinates, barrier,
        /*im2colOffsets=*/ValueRange(), /*multicastMask=*/Value(),
        /*l2CacheHint=*/hint, NVVM::TMALoadMode::TILE, /*isCTAOnly=*/false,
        NVVM::CTAGroupKindAttr(), /*predicate=*/Value());
  }
}

/// Says how many bytes are going to arrive.
static void announce(ThreadBuilder &b, Value full, int64_t bytes) {
  NVVM::MBarrierArriveExpectTxOp::create(b, /*res=*/Type(), full, b.i32(bytes),
                                         NVVM::MemScopeKind::CTA,
                                         /*relaxed=*/false, Value());
}

/// Copies a tile of the whole program.
void KernelEmitter::copyStationary(size_t number) {
  const ProducerPlan::Copy &copy = producer.stationary[number];
  Value full = stationaryBarrier(number);
  announce(b, full, copy.copy.bytes());
  copyTiles(copy, /*stage=*/{}, full);
}

/// The values of a loop and the pipeline's, which change in it.
SmallVector<Value> KernelEmitter::withRing(SmallVector<Value> values) const {
  values.append({pipelineState.stage, pipelineState.phase});
  return values;
}

ValueRange KernelEmitter::takePipeline(ValueRange values) {
  pipelineState.stage = values[values.size() - 2];
  pipelineState.phase = values.back();
  return values.drop_back(2);
}

void KernelEmitter::emitProducerLoop(scf::ForOp loop) {
  const auto *known = producer.loops.find(loop);
  auto body = [&](Value i, ValueRange carried) {
    scalars.map(loop.getInductionVar(), i);
    takePipeline(carried);
    if (known == producer.loops.end()) {
      emitProducerBlock(*loop.getBody());
      return withRing({});
    }
    // A stage that nobody has filled is empty: its first phase counts as over.
    waitPhase(stageBarrier(pipelineState.stage, false),
              arith::XOrIOp::create(b, pipelineState.phase, b.i32(1)));
    emitProducerBlock(*loop.getBody());
    int64_t bytes = 0;
    for (const ProducerPlan::Copy &copy : known->second)
      bytes += copy.copy.bytes();
    Value full = stageBarrier(pipelineState.stage, true);
    announce(b, full, bytes);
    Value stage = b.mul(pipelineState.stage, producer.stageBytes);
    for (const ProducerPlan::Copy &copy : known->second)
      copyTiles(copy, stage, full);
    advanceRing();
    return withRing({});
  };
  takePipeline(b.loop(scalar(loop.getLowerBound()),
                      scalar(loop.getUpperBound()), scalar(loop.getStep()),
                      withRing({}), body));
}

/// What the producer does of a block.
void KernelEmitter::emitProducerBlock(Block &block) {
  for (Operation &op : block.without_terminator()) {
    b.setLoc(op.getLoc());
    if (producer.loops.contains(&op) || producer.around.contains(&op))
      emitProducerLoop(cast<scf::ForOp>(op));
    else if (producer.operations.contains(&op))
      (void)emitOp(&op);
    for (auto [k, copy] : llvm::enumerate(producer.stationary))
      if (copy.access.op == &op)
        copyStationary(k);
  }
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

void KernelEmitter::planRoles() {
  auto roles =
      kernel->getAttrOfType<tile_gpu::ProducerAttr>(tile_gpu::kProducerAttr);
  if (!roles)
    return;
  producer = planProducer(kernel, written, [](scf::ForOp loop) {
    return loop->hasAttr(tile_gpu::kPipelineAttr);
  });
  auto pipeline =
      producer.loops.front().first->getAttrOfType<tile_gpu::PipelineAttr>(
          tile_gpu::kPipelineAttr);
  producer.depth = pipeline.getStages();
  producer.stageBytes = pipeline.getBytes();
  producer.blocks = roles.getBlocks();
  pipelineState.offset = pipeline.getOffset();
  pipelineState.barriers = roles.getBarriers();
  for (ProducerPlan::Copy &copy : producer.stationary)
    copy.offset = getOffset(copy.access.target);
}

/// The parameters of a kernel that describe tensors.
void KernelEmitter::addTensorMaps(LLVM::LLVMFuncOp func) {
  if (producer.empty())
    return;
  auto bytes = LLVM::LLVMArrayType::get(b.getI8Type(), tensorMapBytes);
  for (size_t k = 0; k < producer.maps.size(); ++k) {
    auto number = unsigned(kernel.getNumArguments() + k);
    func.setArgAttr(number, LLVM::LLVMDialect::getByValAttrName(),
                    TypeAttr::get(bytes));
    func.setArgAttr(number, LLVM::LLVMDialect::getAlignAttrName(),
                    b.getI64IntegerAttr(64));
    func.setArgAttr(number, NVVM::NVVMDialect::getGridConstantAttrName(),
                    b.getUnitAttr());
    pipelineState.maps.push_back(func.getArgument(number));
  }
  func->setAttr(kTensorMapsAttr, b.getArrayAttr(producer.maps));
}

int64_t KernelEmitter::getBlockThreads() const {
  return threads + (producer.empty() ? 0 : producerThreads);
}

/// One warpgroup more, which copies for the others.
LogicalResult KernelEmitter::emitRoles(LLVM::LLVMFuncOp func) {
  initializeRing();
  Value warp = b.broadcast(thread().warp);
  auto [atLaunch, ofConsumers] = shareRegisters(threads, producer.blocks);
  Value isConsumer = b.less(warp, warps), zero = b.i32(0);
  auto roles = scf::IfOp::create(b, isConsumer, /*withElseRegion=*/true);
  roles->setAttr(tile_gpu::kConsumersAttr,
                 b.getI32IntegerAttr(int32_t(threads)));
  bool handsOver = ofConsumers > atLaunch;
  if (handsOver)
    func->setAttr(kLaunchRegistersAttr, b.getI64IntegerAttr(atLaunch));
  OpBuilder::InsertionGuard guard(b);
  pipelineState.stage = pipelineState.phase = zero;
  b.setInsertionPointToStart(&roles.getElseRegion().front());
  if (handsOver)
    NVVM::SetMaxRegisterOp::create(b, producerRegisters,
                                   NVVM::SetMaxRegisterAction::decrease);
  Value copies =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, tid, b.i32(threads));
  b.ifThen(copies, [&] { emitProducerBlock(kernel.getBody().front()); });

  pipelineState.stage = pipelineState.phase = zero;
  b.setInsertionPointToStart(&roles.getThenRegion().front());
  if (handsOver)
    NVVM::SetMaxRegisterOp::create(b, ofConsumers,
                                   NVVM::SetMaxRegisterAction::increase);
  LogicalResult result = emitBlock(kernel.getBody().front());
  func->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                b.getI32IntegerAttr(int32_t(producer.blocks)));
  return result;
}
