//===- WarpSpecialize.cpp - a warpgroup that copies for others ------------===//
//
// A pipeline of stages in shared memory lies between one thread, which issues
// TMA loads to the stages in turn (the producer), and the warpgroups that
// multiply what is there (the consumers). Each stage has two mbarriers: "full"
// is passed when all bytes of its loads have arrived, "empty" when all warps
// have read them. The warpgroups do not wait for each other.
//
//===----------------------------------------------------------------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "mlir/IR/IRMapping.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileGPU/ProducerPlan.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/ThreadBuilder.h"

namespace nsa {
#define GEN_PASS_DEF_TILEGPUWARPSPECIALIZE
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

/// Registers of a thread of the producer and of one that gathers rows, of a
/// multiprocessor, and the most of a consumer and of any thread when the kernel
/// starts.
static constexpr int64_t producerRegisters = 24, gatherRegisters = 32,
                         allRegisters = 65536, mostRegisters = 240,
                         mostAtLaunch = 255;

/// Registers per thread at launch, and per consumer thread after setmaxnreg.
static std::pair<int64_t, int64_t>
shareRegisters(int64_t consumers, int64_t blocks, int64_t ofProducer) {
  int64_t all = consumers + kProducerThreads;
  int64_t atLaunch =
      std::min(allRegisters / (blocks * all), mostAtLaunch) / 8 * 8;
  int64_t rest = atLaunch * all - ofProducer * kProducerThreads;
  return {atLaunch, std::min(rest / consumers / 8 * 8, mostRegisters)};
}

/// Whether a producer copies for a loop.
static bool hasProducer(scf::ForOp loop) {
  auto pipeline = loop->getAttrOfType<PipelineAttr>(kPipelineAttr);
  return pipeline && pipeline.getProducer();
}

namespace {
/// The next stage in turn and its phase bit.
struct Turn {
  Value stage, phase;
};

/// A dot that is delayed by one iteration: the loop's value that it adds to.
struct DelayedDot {
  DotOp dot;
  BlockArgument sum;
};

/// Splits one kernel.
class Specializer {
public:
  explicit Specializer(KernelOp kernel);

  /// Fails if there is no loop to copy for.
  LogicalResult run();

private:
  void makeBarriers();
  // The producer.
  void produce(Block &block, IRMapping &mapping, Turn &turn);
  /// Rows of the groups that a loop gathers, 0 if it gathers none.
  int64_t getGroup(scf::ForOp loop) const {
    const auto *known = plan.loops.find(loop);
    return known == plan.loops.end() ? 0 : known->second.front().rows;
  }
  SmallVector<LoadOp> findLists(scf::ForOp loop);
  SmallVector<Value> readLists(scf::ForOp loop, IRMapping mapping,
                               Value iteration);
  void produceLoop(scf::ForOp loop, IRMapping &mapping, Turn &turn);
  void load(const TensorCopy &copy, IRMapping &mapping, Value barrier,
            Value index, Value stage, int64_t column = 0);
  // The consumers.
  void consume(Block &block, Turn &turn);
  void consumeLoop(scf::ForOp loop, Turn &turn);
  void consumeOuter(scf::ForOp loop, Turn &turn);
  void release(Value stage, Value condition);
  void advance(Turn &turn);
  Value getStageBytes(Value stage) { return b.mul(stage, plan.stageBytes); }

  KernelOp kernel;
  ProducerPlan plan;
  ProducerAttr roles;
  PipelineAttr pipeline;
  int64_t threads;
  ThreadBuilder b;
  Value full, empty, kept;
  /// Of the producer, if it gathers rows.
  int64_t warps = 0;
};
} // namespace

Specializer::Specializer(KernelOp kernel)
    : kernel(kernel),
      plan(planProducer(kernel, getWrittenArguments(kernel), hasProducer)),
      roles(kernel->getAttrOfType<ProducerAttr>(kProducerAttr)),
      threads(getThreads(kernel)), b(kernel.getLoc(), kernel.getContext()) {
  if (!plan.empty())
    pipeline =
        plan.loops.front().first->getAttrOfType<PipelineAttr>(kPipelineAttr);
  warps = plan.countWarps();
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// "Empty" lie after "full", and those of tiles that are loaded once after
/// them. Of tiles that arrive, the producer arrives, and with lines of gathered
/// rows each lane of its first warp; of stages that are free, each warp.
void Specializer::makeBarriers() {
  int64_t offset = roles.getBarriers();
  auto make = [&](int64_t count, int64_t arrivals) -> Value {
    auto type = MBarriersType::get(b.getContext(), count);
    Value barriers =
        MBarriersOp::create(b, type, uint64_t(arrivals), uint64_t(offset));
    offset += count * kMBarrierBytes;
    return barriers;
  };
  full = make(pipeline.getStages(), warps ? 1 + kWarp : 1);
  empty = make(pipeline.getStages(), warps ? threads : threads / kWarp);
  if (!plan.stationary.empty())
    kept = make(int64_t(plan.stationary.size()), 1);
  MBarrierInitOp::create(b, full, empty, kept);
}

void Specializer::advance(Turn &turn) {
  Value isLast = b.equal(turn.stage, pipeline.getStages() - 1);
  Value wraps = arith::ExtUIOp::create(b, b.getI32Type(), isLast);
  turn.phase = arith::XOrIOp::create(b, turn.phase, wraps);
  turn.stage = b.select(isLast, b.i32(0), b.add(turn.stage, 1));
}

//===----------------------------------------------------------------------===//
// The producer
//===----------------------------------------------------------------------===//

/// Issues the load of a tile, to one of several stages or to its only one.
/// Other programs load the tiles of loops too, so these get an evict_last hint.
/// Warps of a producer take columns of boxes in turns, the first one `column`.
void Specializer::load(const TensorCopy &copy, IRMapping &mapping,
                       Value barrier, Value index, Value stage,
                       int64_t column) {
  SmallVector<Value> start =
      llvm::map_to_vector(copy.start, [&](Value coordinate) -> Value {
        Value own = mapping.lookupOrDefault(coordinate);
        return copy.rows && isTile(own)
                   ? ToLanesOp::create(b, b.getI32Type(), own,
                                       uint64_t(copy.rows))
                   : own;
      });
  if (!copy.map) {
    auto line = cast<AsyncCopyOp>(copy.access.op);
    AsyncCopyOp::create(b, line.getRef(), start, line.getBuffer(), stage,
                        barrier, index, line.getWidth());
    return;
  }
  IntegerAttr rows;
  DenseI64ArrayAttr ofColumns;
  if (warps)
    // Of a tile that is not gathered, one lane loads all.
    rows = b.getI64IntegerAttr(
        copy.rows
            ? copy.rows
            : cast<MemDescType>(copy.access.target.getType()).getShape()[0]);
  if (warps > 1)
    ofColumns = b.getDenseI64ArrayAttr(
        llvm::map_to_vector(llvm::seq(column, column + copy.columns),
                            [&](int64_t k) { return k % warps; }));
  TmaLoadOp::create(b, uint64_t(copy.mapNumber), start, copy.access.target,
                    stage, barrier, index, /*evict_last=*/bool(stage), rows,
                    ofColumns);
}

/// The loads of a loop that say which rows to gather, as many as there are
/// groups.
SmallVector<LoadOp> Specializer::findLists(scf::ForOp loop) {
  SmallVector<LoadOp> lists;
  if (int64_t group = getGroup(loop))
    for (auto load : loop.getBody()->getOps<LoadOp>())
      if (plan.operations.contains(load) && isTile(load.getResult()) &&
          isSameInGroups(load.getResult(), group))
        lists.push_back(load);
  return lists;
}

/// What lanes have of the lists of an iteration.
SmallVector<Value> Specializer::readLists(scf::ForOp loop, IRMapping mapping,
                                          Value iteration) {
  SmallVector<LoadOp> lists = findLists(loop);
  if (lists.empty())
    return {};
  mapping.map(loop.getInductionVar(), iteration);
  for (Operation &op : *loop.getBody()) {
    if (plan.operations.contains(&op))
      b.clone(op, mapping);
    if (&op == lists.back())
      break;
  }
  return llvm::map_to_vector(lists, [&](LoadOp list) -> Value {
    return ToLanesOp::create(b, b.getI32Type(),
                             mapping.lookup(list.getResult()),
                             uint64_t(getGroup(loop)));
  });
}

void Specializer::produceLoop(scf::ForOp loop, IRMapping &mapping, Turn &turn) {
  auto bound = [&](Value value) { return mapping.lookupOrDefault(value); };
  SmallVector<Value> carried = {turn.stage, turn.phase};
  llvm::append_range(carried,
                     readLists(loop, mapping, bound(loop.getLowerBound())));
  auto own = scf::ForOp::create(b, bound(loop.getLowerBound()),
                                bound(loop.getUpperBound()),
                                bound(loop.getStep()), carried);
  mapping.map(loop.getInductionVar(), own.getInductionVar());
  turn = {own.getRegionIterArg(0), own.getRegionIterArg(1)};
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(own.getBody());
  const auto *known = plan.loops.find(loop);
  SmallVector<Value> lists;
  if (known == plan.loops.end()) {
    produce(*loop.getBody(), mapping, turn);
  } else {
    if (getGroup(loop))
      lists =
          readLists(loop, mapping, b.add(own.getInductionVar(), own.getStep()));
    for (auto [list, lanes] : llvm::zip_equal(
             findLists(loop), own.getRegionIterArgs().drop_front(2)))
      mapping.map(list.getResult(),
                  FromLanesOp::create(b, list.getType(), lanes,
                                      uint64_t(getGroup(loop))));
    // A stage that was never filled is empty: its first phase counts as over.
    MBarrierWaitOp::create(b, empty, turn.stage,
                           arith::XOrIOp::create(b, turn.phase, b.i32(1)));
    produce(*loop.getBody(), mapping, turn);
    int64_t bytes = 0;
    for (const TensorCopy &copy : known->second)
      bytes += copy.bytes;
    MBarrierExpectOp::create(b, full, turn.stage, uint64_t(bytes), warps != 0);
    Value stage = getStageBytes(turn.stage);
    int64_t column = 0;
    for (const TensorCopy &copy : known->second) {
      load(copy, mapping, full, turn.stage, stage, column);
      column += copy.columns;
    }
    if (warps)
      MBarrierArriveOp::create(b, full, turn.stage, Value(), /*copies=*/true);
    advance(turn);
  }
  carried = {turn.stage, turn.phase};
  llvm::append_range(carried, lists);
  scf::YieldOp::create(b, carried);
  turn = {own.getResult(0), own.getResult(1)};
}

/// Clones the producer's part of a block.
void Specializer::produce(Block &block, IRMapping &mapping, Turn &turn) {
  for (Operation &op : block) {
    b.setLoc(op.getLoc());
    if (plan.loops.contains(&op) || plan.around.contains(&op))
      produceLoop(cast<scf::ForOp>(op), mapping, turn);
    else if (plan.operations.contains(&op) &&
             !(op.getNumResults() == 1 && mapping.contains(op.getResult(0))))
      b.clone(op, mapping);
    for (auto [k, copy] : llvm::enumerate(plan.stationary))
      if (copy.access.op == &op) {
        Value index = b.i32(int64_t(k));
        MBarrierExpectOp::create(b, kept, index, uint64_t(copy.bytes),
                                 warps != 0);
        load(copy, mapping, kept, index, /*stage=*/{});
      }
  }
}

//===----------------------------------------------------------------------===//
// Delayed dots
//===----------------------------------------------------------------------===//

/// Whether all users of `value` in the block of `op` come after `op`.
static bool isUsedBehind(Value value, Operation *op) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    Operation *inBlock = op->getBlock()->findAncestorOpInBlock(*user);
    return inBlock && op->isBeforeInBlock(inBlock);
  });
}

/// Whether a loop has several sums that leave registers for an operand of one
/// more dot. Measured on an H100: where the only sum is delayed (the gradient
/// of queries, 128 wide), the second dot of the next iteration comes later by
/// as much.
static bool hasSmallSums(scf::ForOp loop) {
  constexpr int64_t most = 64;
  int64_t sums = llvm::count_if(loop.getRegionIterArgs(), [](Value sum) {
    return hasMmaLayout(sum.getType());
  });
  return sums > 1 && countSums(loop) <= most;
}

/// The last dot of a loop's iteration can be issued after the first one of the
/// next iteration, if nothing needs it before: it overlaps with the work on
/// the results of that one.
static DelayedDot findDelayedDot(scf::ForOp loop, ArrayRef<TensorCopy> copies) {
  DotOp first = findFirstDot(loop), last;
  for (auto dot : loop.getBody()->getOps<DotOp>())
    last = dot;
  if (last == first || !isWgmma(last) || !hasMmaLayout(last.getA().getType()) ||
      last.getTransposeA() || !last->hasOneUse() ||
      !isa<scf::YieldOp>(*last->user_begin()) ||
      last.getAcc().getDefiningOp<SplatOp>() ||
      !llvm::any_of(copies, [&](const TensorCopy &copy) {
        return copy.access.target == getBuffer(last.getB());
      }))
    return {};
  BlockArgument sum =
      loop.getRegionIterArg(last->use_begin()->getOperandNumber());
  if (!isUsedBehind(sum, first) ||
      (last.getAcc() == sum && !hasSmallSums(loop)))
    return {};
  return {last, sum};
}

/// The same dot of other operands, at a stage.
static Value makeDot(ThreadBuilder &b, DotOp dot, Value a, Value acc,
                     Value stageBytes) {
  auto view = dot.getB().getDefiningOp<LocalViewOp>();
  Value other =
      LocalViewOp::create(b, view.getType(), view.getBuffer(), stageBytes);
  IRMapping mapping;
  mapping.map(dot.getA(), a);
  mapping.map(dot.getB(), other);
  mapping.map(dot.getAcc(), acc);
  return b.clone(*dot, mapping)->getResult(0);
}

//===----------------------------------------------------------------------===//
// The consumers
//===----------------------------------------------------------------------===//

/// Where lanes of the producer copy to a stage, each thread releases it.
void Specializer::release(Value stage, Value condition) {
  MBarrierArriveOp::create(b, empty, stage, condition, /*copies=*/false,
                           /*each=*/warps != 0);
}

void Specializer::consumeLoop(scf::ForOp loop, Turn &turn) {
  SmallVector<TensorCopy> &copies = plan.loops.find(loop)->second;
  // Three blocks leave no registers for its operand.
  DelayedDot delayed;
  if (roles.getBlocks() < 3)
    delayed = findDelayedDot(loop, copies);
  unsigned sumNumber = delayed.dot ? delayed.sum.getArgNumber() - 1 : 0;
  SmallVector<Value> more;
  if (delayed.dot) {
    // At first zeros, and some stage that is filled.
    auto a = cast<TileType>(delayed.dot.getA().getType());
    Value zero =
        arith::ConstantOp::create(b, b.getZeroAttr(a.getElementType()));
    more = {SplatOp::create(b, a, zero), turn.stage};
  }
  more.append({turn.stage, turn.phase});
  size_t count = loop.getNumRegionIterArgs();
  scf::ForOp own = extendLoop(b, loop, more);
  ValueRange carried = own.getRegionIterArgs().drop_front(count);
  turn = {carried[carried.size() - 2], carried.back()};

  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(own.getBody());
  MBarrierWaitOp::create(b, full, turn.stage, turn.phase);
  Value ownBytes = getStageBytes(turn.stage);
  for (const TensorCopy &copy : copies)
    setStage(copy.access.target, ownBytes);
  auto yield = cast<scf::YieldOp>(own.getBody()->getTerminator());
  if (delayed.dot) {
    DotOp first = findFirstDot(own);
    BlockArgument sum = own.getRegionIterArg(sumNumber);
    b.setInsertionPointAfter(first);
    Value added =
        makeDot(b, delayed.dot, carried[0], sum, getStageBytes(carried[1]));
    sum.replaceAllUsesExcept(added, added.getDefiningOp());
    yield.setOperand(sumNumber, delayed.dot.getAcc());
  }
  b.setInsertionPoint(yield);
  Value isLater;
  if (delayed.dot)
    // The first iteration has no stage before its own.
    isLater = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                    own.getInductionVar(), own.getLowerBound());
  release(delayed.dot ? carried[1] : turn.stage, isLater);
  Value stage = turn.stage;
  advance(turn);
  SmallVector<Value> yielded(yield.getOperands());
  if (delayed.dot)
    yielded.append({delayed.dot.getA(), stage});
  yielded.append({turn.stage, turn.phase});
  yield->setOperands(yielded);
  for (const TensorCopy &copy : copies)
    copy.access.op->erase();

  b.setInsertionPointAfter(own);
  ValueRange results = own.getResults().drop_front(count);
  turn = {results[results.size() - 2], results.back()};
  if (delayed.dot) {
    // Makes the dot of the last iteration, if there was one.
    Value sum = own.getResult(sumNumber);
    Value any = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                      own.getLowerBound(), own.getUpperBound());
    auto branch = scf::IfOp::create(b, sum.getType(), any,
                                    /*withElseRegion=*/true);
    sum.replaceAllUsesExcept(branch.getResult(0), branch);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, sum);
    b.setInsertionPointToStart(branch.thenBlock());
    Value whole =
        makeDot(b, delayed.dot, results[0], sum, getStageBytes(results[1]));
    release(results[1], /*condition=*/{});
    scf::YieldOp::create(b, whole);
    delayed.dot.erase();
  }
  loop.erase();
}

/// A loop around others.
void Specializer::consumeOuter(scf::ForOp loop, Turn &turn) {
  scf::ForOp own = extendLoop(b, loop, {turn.stage, turn.phase});
  turn = {own.getRegionIterArgs().drop_back().back(),
          own.getRegionIterArgs().back()};
  consume(*own.getBody(), turn);
  own.getBody()->getTerminator()->insertOperands(
      unsigned(own.getNumRegionIterArgs()) - 2, {turn.stage, turn.phase});
  turn = {own.getResults().drop_back().back(), own.getResults().back()};
  loop.erase();
}

void Specializer::consume(Block &block, Turn &turn) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(&op);
    b.setLoc(op.getLoc());
    if (plan.loops.contains(&op))
      consumeLoop(cast<scf::ForOp>(op), turn);
    else if (plan.around.contains(&op))
      consumeOuter(cast<scf::ForOp>(op), turn);
    for (auto [k, copy] : llvm::enumerate(plan.stationary))
      if (copy.access.op == &op) {
        MBarrierWaitOp::create(b, kept, b.i32(int64_t(k)), b.i32(0));
        op.erase();
        break;
      }
  }
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Moves the buffers that both roles know to the start of the kernel.
static void moveBuffers(const ProducerPlan &plan, Block &start) {
  Operation *first = &start.front();
  auto move = [&](const TensorCopy &copy) {
    copy.access.target.getDefiningOp()->moveBefore(first);
  };
  llvm::for_each(plan.stationary, move);
  for (const auto &[loop, copies] : plan.loops)
    llvm::for_each(copies, move);
}

LogicalResult Specializer::run() {
  if (plan.empty())
    return failure();
  Block &block = getBlockOfRoles(kernel);
  moveBuffers(plan, block);
  int64_t ofProducer = warps ? gatherRegisters : producerRegisters;
  auto [atLaunch, ofConsumers] =
      shareRegisters(threads, roles.getBlocks(), ofProducer);
  b.setInsertionPoint(block.getTerminator());
  makeBarriers();
  auto roleOp = WarpSpecializeOp::create(b, uint64_t(roles.getBlocks()),
                                         /*launch_registers=*/IntegerAttr(),
                                         /*registers=*/DenseI64ArrayAttr(),
                                         /*warps=*/IntegerAttr());
  if (warps)
    roleOp.setWarps(uint64_t(warps));
  if (ofConsumers > atLaunch) {
    roleOp.setLaunchRegisters(uint64_t(atLaunch));
    roleOp.setRegisters(ArrayRef<int64_t>{ofProducer, ofConsumers});
  }
  Block &producer = roleOp.getProducer().emplaceBlock();
  Block &consumer = roleOp.getConsumer().emplaceBlock();
  // All but the buffers and the barriers.
  auto begin =
      llvm::find_if(block, [](Operation &op) { return !isa<AllocOp>(op); });
  consumer.getOperations().splice(consumer.end(), block.getOperations(), begin,
                                  full.getDefiningOp()->getIterator());
  Turn turn;
  IRMapping mapping;
  b.setInsertionPointToStart(&producer);
  turn.stage = turn.phase = b.i32(0);
  produce(consumer, mapping, turn);
  b.setInsertionPointToStart(&consumer);
  turn.stage = turn.phase = b.i32(0);
  consume(consumer, turn);
  kernel->removeAttr(kProducerAttr);
  kernel->setAttr(nsa::kTensorMapsAttr, b.getArrayAttr(plan.maps));
  return success();
}

namespace {
struct WarpSpecialize : nsa::impl::TileGPUWarpSpecializeBase<WarpSpecialize> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (!kernel->hasAttr(kProducerAttr))
      return;
    Specializer specializer(kernel);
    if (succeeded(specializer.run()))
      return;
    kernel.emitError("has ") << kProducerAttr << ", but no loop with "
                             << kPipelineAttr << " to copy for";
    signalPassFailure();
  }
};
} // namespace
