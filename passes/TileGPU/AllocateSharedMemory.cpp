//===- AllocateSharedMemory.cpp - where buffers lie in shared memory ------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Remarks.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileGPU/ProducerPlan.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/Scratch.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"

namespace nsa {
#define GEN_PASS_DEF_TILEGPUALLOCATESHAREDMEMORY
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

namespace {
/// What kernels may use.
struct Limits {
  /// Stages of a loop that copies ahead, and whether it may have more.
  unsigned stages;
  bool isLeast;
  /// Whether a producer may copy, and the accumulator registers of a thread
  /// from which on a loop is worth it.
  bool producers;
  int64_t producerSums;
  /// Bytes of a block.
  int64_t bytes;
};

/// Offsets of everything that a kernel has in shared memory.
class Allocator {
public:
  Allocator(KernelOp kernel, const Limits &limits);

  void run();
  /// What a block takes.
  int64_t bytes() const { return pool.size() + scratch; }
  /// Whether it may take less with fewer stages.
  bool hasStages() const { return hasProducer() || limits.stages > 1; }
  bool hasProducer() const { return !producer.empty(); }
  /// Writes it on the kernel.
  void apply(OpBuilder &b);

private:
  bool isWorthProducer(scf::ForOp loop) const;
  void allocateProducer();
  void allocate(Block &block);
  void allocateBuffer(Value buffer);
  void allocateLoop(scf::ForOp loop);
  int64_t countStages(scf::ForOp loop, int64_t bytes) const;

  KernelOp kernel;
  Limits limits;
  int64_t threads;
  llvm::DenseSet<Value> written;
  ProducerPlan producer;
  SharedPool pool;
  int64_t scratch = 0, barriers = 0;
  /// Of buffers, and of loaded lines that loops copy ahead.
  llvm::MapVector<Value, int64_t> offsets;
  llvm::MapVector<scf::ForOp, PipelineAttr> pipelines;
  /// Parts of the pool by the operation after which they are free.
  llvm::DenseMap<Operation *, SmallVector<int64_t>> lastUses;
};
} // namespace

Allocator::Allocator(KernelOp kernel, const Limits &limits)
    : kernel(kernel), limits(limits), threads(getThreads(kernel)),
      written(getWrittenArguments(kernel)) {}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

/// The last operation in the block of `value` that uses it or a view of it, or
/// in which that is used.
static Operation *findLastUse(Value value) {
  Operation *last = value.getDefiningOp();
  for (Operation *user : value.getUsers()) {
    if (auto view = dyn_cast<LocalViewOp>(user))
      user = findLastUse(view.getTile());
    Operation *inBlock = value.getParentBlock()->findAncestorOpInBlock(*user);
    if (last->isBeforeInBlock(inBlock))
      last = inBlock;
  }
  return last;
}

/// The memory is free again after the last use of the buffer.
void Allocator::allocateBuffer(Value buffer) {
  if (offsets.contains(buffer))
    return;
  int64_t offset = pool.allocate(SharedShape(buffer).bytes());
  lastUses[findLastUse(buffer)].push_back(offset);
  offsets.try_emplace(buffer, offset);
}

void Allocator::allocate(Block &block) {
  for (Operation &op : block.without_terminator()) {
    scratch = std::max(scratch, getScratchBytes(&op));
    if (auto copy = dyn_cast<AsyncCopyOp>(op))
      allocateBuffer(copy.getBuffer());
    else if (auto store = dyn_cast<LocalStoreOp>(op))
      allocateBuffer(store.getBuffer());
    else if (auto loop = dyn_cast<scf::ForOp>(op))
      allocateLoop(loop);
    else if (isa<scf::IfOp>(op))
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          allocate(inner);
    for (int64_t offset : lastUses.lookup(&op))
      pool.release(offset);
    lastUses.erase(&op);
  }
}

//===----------------------------------------------------------------------===//
// Loops that copy ahead
//===----------------------------------------------------------------------===//

/// Stages of a loop, of `bytes` each. One copy ahead is too slow for
/// warpgroups, so they get more stages as long as no fewer blocks fit into a
/// multiprocessor: 512 threads with 128 registers share its memory, less what
/// is reserved for scratch.
int64_t Allocator::countStages(scf::ForOp loop, int64_t bytes) const {
  constexpr int64_t most = 4, all = 208 << 10, sharing = 512;
  if (!findFirstDot(loop) || limits.stages > 2 || !limits.isLeast)
    return limits.stages;
  int64_t blocks = std::max<int64_t>(sharing / threads, 1);
  if (auto wanted = kernel->getAttrOfType<IntegerAttr>(nsa::kMinBlocksAttr))
    blocks = wanted.getInt();
  int64_t stages = (all / blocks - pool.size()) / bytes;
  return std::clamp<int64_t>(stages, limits.stages, most);
}

/// The buffers of one stage are contiguous.
void Allocator::allocateLoop(scf::ForOp loop) {
  Prefetch prefetch;
  if (limits.stages > 1 && !producer.loops.contains(loop))
    prefetch = findPrefetch(loop, written);
  if (prefetch.empty())
    return allocate(*loop.getBody());
  int64_t bytes = 0;
  for (Value target : prefetch.targets()) {
    offsets.try_emplace(target, bytes);
    bytes += getPlaceBytes(target);
  }
  bytes = llvm::alignTo(bytes, SharedPool::alignment);
  int64_t stages = countStages(loop, bytes);
  int64_t offset = pool.allocate(stages * bytes);
  for (Value target : prefetch.targets())
    offsets[target] += offset;
  pipelines.insert({loop, PipelineAttr::get(loop.getContext(), stages, bytes,
                                            offset, /*producer=*/false)});
  allocate(*loop.getBody());
  pool.release(offset);
}

//===----------------------------------------------------------------------===//
// Producers
//===----------------------------------------------------------------------===//

bool Allocator::isWorthProducer(scf::ForOp loop) const {
  return !loop.getBody()->getOps<WarpIfOp>().empty() ||
         (findFirstDot(loop) && (kernel->hasAttr(nsa::kProducerAttr) ||
                                 countSums(loop) >= limits.producerSums));
}

/// Stages, tiles of the whole kernel and barriers are there as long as it runs.
void Allocator::allocateProducer() {
  int64_t ring = pool.allocate(producer.depth * producer.stageBytes);
  for (auto &[loop, copies] : producer.loops) {
    for (const TensorCopy &copy : copies)
      offsets.try_emplace(copy.access.target, ring + copy.offset);
    pipelines.insert(
        {cast<scf::ForOp>(loop),
         PipelineAttr::get(kernel.getContext(), producer.depth,
                           producer.stageBytes, ring, /*producer=*/true)});
  }
  for (const TensorCopy &copy : producer.stationary)
    offsets.try_emplace(copy.access.target,
                        pool.allocate(SharedShape(copy.access.target).bytes()));
  barriers =
      pool.allocate((2 * producer.depth + int64_t(producer.stationary.size())) *
                    kMBarrierBytes);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

void Allocator::run() {
  if (limits.producers && hasMmaTiles(kernel) &&
      threads % (32 * warpsOfGroup) == 0)
    producer = planProducer(kernel, written, [&](scf::ForOp loop) {
      return isWorthProducer(loop);
    });
  if (hasProducer() && !chooseStages(producer, kernel, threads, limits.bytes))
    producer = ProducerPlan();
  if (hasProducer())
    allocateProducer();
  allocate(kernel.getBody().front());
}

void Allocator::apply(OpBuilder &b) {
  for (auto [value, offset] : offsets)
    if (auto alloc = value.getDefiningOp<AllocOp>())
      alloc.setOffset(uint64_t(offset));
    else
      promoteLine(value.getDefiningOp<LoadOp>(), offset);
  for (auto [loop, pipeline] : pipelines)
    loop->setAttr(kPipelineAttr, pipeline);
  kernel->setAttr(kScratchAttr, b.getI64IntegerAttr(pool.size()));
  kernel->setAttr(nsa::kSharedBytesAttr, b.getI64IntegerAttr(bytes()));
  if (!hasProducer())
    return;
  kernel->setAttr(kProducerAttr,
                  ProducerAttr::get(b.getContext(), barriers, producer.blocks));
  remark::passed(kernel.getLoc(),
                 remark::RemarkOpts::name("Producer")
                     .category("tile-gpu-allocate-shared-memory")
                     .function(kernel.getSymName()))
      << remark::add(
             "warp-specialized {0} loop{1}: {2} stages x {3} B, {4} CTAs/SM",
             producer.loops.size(), producer.loops.size() == 1 ? "" : "s",
             producer.depth, producer.stageBytes, producer.blocks);
}

namespace {
struct AllocateSharedMemory
    : nsa::impl::TileGPUAllocateSharedMemoryBase<AllocateSharedMemory> {
  using TileGPUAllocateSharedMemoryBase::TileGPUAllocateSharedMemoryBase;

  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (failed(verifyHasThreads(kernel)))
      return signalPassFailure();
    OpBuilder b(kernel.getContext());
    Limits limits{stages, /*isLeast=*/true, wgmma && producers, producerSums,
                  int64_t(sharedLimit)};
    if (auto own = kernel->getAttrOfType<IntegerAttr>(nsa::kStagesAttr)) {
      limits.stages = unsigned(own.getInt());
      limits.isLeast = false;
      limits.producers &= limits.stages > 1;
    }
    while (true) {
      Allocator allocator(kernel, limits);
      allocator.run();
      if (wgmma && asksToGather(kernel) && !allocator.hasProducer())
        return refuse(kernel, "gathers no rows that a producer can load in two "
                              "stages of shared memory");
      if (allocator.bytes() <= limits.bytes)
        return allocator.apply(b);
      if (!allocator.hasStages())
        return refuse(kernel, "needs " + Twine(allocator.bytes()) +
                                  " bytes of shared memory, more than the " +
                                  Twine(uint64_t(sharedLimit)) +
                                  " that a block may have");
      // No room for the stages of other loops besides the producer's, or for so
      // many stages.
      if (!allocator.hasProducer())
        --limits.stages;
      limits.producers = false;
    }
  }

  void refuse(KernelOp kernel, const Twine &why) {
    kernel->setAttr(nsa::kRefusedAttr, UnitAttr::get(&getContext()));
    kernel.emitError("kernel @") << kernel.getSymName() << " " << why;
    signalPassFailure();
  }
};
} // namespace
