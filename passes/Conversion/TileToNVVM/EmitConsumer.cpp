//===- EmitConsumer.cpp - warpgroups that multiply what was copied --------===//
//
// The loops of warpgroups for which another one copies (EmitProducer.cpp). The
// last dot of an iteration is issued behind the first one of the next
// iteration, if nothing needs it before: while it runs, threads work on the
// result of the other one.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

/// All threads of a warp have read what is in a stage.
void KernelEmitter::consumerRelease(Value stage) {
  NVVM::SyncWarpOp::create(b, b.i32(-1));
  Value empty = stageBarrier(stage, false);
  b.ifThen(b.less(thread().lane, 1), [&] {
    NVVM::MBarrierArriveOp::create(b, TypeRange(b.getI64Type()), empty,
                                   Value());
  });
}

/// Waits for a tile of the whole program.
void KernelEmitter::takeStationary(size_t number) {
  const ProducerPlan::Copy &copy = producer.stationary[number];
  Value buffer = copy.access.target;
  waitPhase(stationaryBarrier(number), b.i32(0));
  sharedBuffers.try_emplace(buffer,
                            SharedBuffer{SharedShape(buffer), copy.offset, {}});
}

/// Lets the tiles that a loop copies lie in `stage` of the pipeline.
void KernelEmitter::selectStage(ArrayRef<ProducerPlan::Copy> copies,
                                Value stage) {
  Value stageOffset = b.mul(stage, producer.stageBytes);
  for (const ProducerPlan::Copy &copy : copies) {
    Value target = copy.access.target;
    int64_t offset = pipelineState.offset + copy.offset;
    if (isa<tile_gpu::MemDescType>(target.getType()))
      sharedBuffers.insert_or_assign(
          target, SharedBuffer{SharedShape(target), offset, stageOffset});
    else
      stagedVectors[target] = {offset, stageOffset};
  }
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// Emits the body of a loop: its values and those of the delayed dot, for the
/// next iteration.
FailureOr<SmallVector<Value>> KernelEmitter::emitIteration(ConsumerLoop &loop,
                                                           ValueRange carried,
                                                           Value stage) {
  DotOp late = loop.late.dot;
  if (late)
    carried = takeLate(loop.late, carried);
  unflatten(loop.op.getRegionIterArgs(), carried);
  selectStage(loop.copies, stage);
  if (late)
    afterDot[findFirstDot(loop.op)] = [&, stage] {
      emitDelayedDot(loop, stage);
    };
  if (failed(emitBlock(*loop.op.getBody())))
    return failure();
  if (!late)
    return flatten(loop.op.getYieldedValues());
  registers[late.getResult()] = registersOf(late.getAcc());
  SmallVector<Value> yielded = flatten(loop.op.getYieldedValues());
  llvm::append_range(yielded, registersOf(late.getA()));
  yielded.push_back(stage);
  return yielded;
}

LogicalResult KernelEmitter::emitConsumerLoop(scf::ForOp op) {
  ArrayRef<ProducerPlan::Copy> copies = producer.loops.find(op)->second;
  ConsumerLoop loop{op, copies, findLateProduct(op, copies)};
  bool isLate(loop.late.dot);
  LogicalResult result = success();
  Value lower = scalar(op.getLowerBound()), upper = scalar(op.getUpperBound());
  auto body = [&](Value i, ValueRange carried) -> SmallVector<Value> {
    scalars.map(op.getInductionVar(), i);
    ValueRange own = takePipeline(carried);
    Value stage = pipelineState.stage, phase = pipelineState.phase;
    waitPhase(stageBarrier(stage, true), phase);
    for (const ProducerPlan::Copy &copy : copies)
      markGlobal(copy.access.op);
    FailureOr<SmallVector<Value>> yielded = emitIteration(loop, own, stage);
    if (failed(yielded)) {
      result = failure();
      return llvm::to_vector(carried);
    }
    if (isLate) {
      // The first iteration has no stage before its own.
      Value isLater =
          arith::CmpIOp::create(b, arith::CmpIPredicate::ne, i, lower);
      b.ifThen(isLater, [&] { consumerRelease(own.back()); });
    } else {
      consumerRelease(stage);
    }
    pipelineState.stage = stage;
    pipelineState.phase = phase;
    advanceRing();
    return withRing(std::move(*yielded));
  };
  SmallVector<Value> inits = flatten(op.getInitArgs());
  if (isLate) {
    peeled.insert(loop.late.dot);
    llvm::append_range(inits, startLate(loop.late));
  }
  SmallVector<Value> results =
      b.loop(lower, upper, scalar(op.getStep()), withRing(std::move(inits)),
             body, ThreadBuilder::Loop::Uniform);
  ValueRange own = takePipeline(results);
  if (isLate)
    own = takeLate(loop.late, own);
  unflatten(op.getResults(), own);
  if (isLate)
    finishLate(loop, arith::CmpIOp::create(b, arith::CmpIPredicate::slt, lower,
                                           upper));
  return result;
}

//===----------------------------------------------------------------------===//
// Delayed dots
//===----------------------------------------------------------------------===//

/// Whether all that uses `value` in the block of `op` stands behind that.
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

/// The last dot of a loop's iteration can be made behind the first one of
/// the next iteration: while it runs, threads work on what that gives.
KernelEmitter::LateProduct
KernelEmitter::findLateProduct(scf::ForOp loop,
                               ArrayRef<ProducerPlan::Copy> copies) {
  DotOp first = findFirstDot(loop), last;
  for (auto dot : loop.getBody()->getOps<DotOp>())
    last = dot;
  if (last == first || !isWgmma(last) || !hasMmaLayout(last.getA().getType()) ||
      last.getTransposeA() || !last->hasOneUse() ||
      !isa<scf::YieldOp>(*last->user_begin()) ||
      last.getAcc().getDefiningOp<SplatOp>() ||
      !llvm::any_of(copies, [&](const ProducerPlan::Copy &copy) {
        return copy.access.target == getBuffer(last.getB());
      }))
    return {};
  unsigned number = last->use_begin()->getOperandNumber();
  Value sum = loop.getRegionIterArg(number);
  if (!isUsedBehind(sum, first) ||
      (last.getAcc() == sum && !hasSmallSums(loop)))
    return {};
  return {last, sum, {}, {}};
}

/// What a loop carries of a delayed dot: operand a, and the stage of
/// operand b. First zeros, and some stage that is filled.
SmallVector<Value> KernelEmitter::startLate(const LateProduct &late) {
  DotOp dot = late.dot;
  MmaLayout a(dot.getA());
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(a.registerType()));
  SmallVector<Value> values(a.registers(), zero);
  values.push_back(pipelineState.stage);
  return values;
}

ValueRange KernelEmitter::takeLate(LateProduct &late, ValueRange values) {
  late.stage = values.back();
  values = values.drop_back();
  int64_t count = MmaLayout(late.dot.getA()).registers();
  late.a = SmallVector<Value>(values.take_back(count));
  return values.drop_back(count);
}

/// Makes the dot of the iteration before; that of now lies in `stage`.
void KernelEmitter::emitDelayedDot(const ConsumerLoop &loop, Value stage) {
  const LateProduct &late = loop.late;
  DotOp dot = late.dot;
  registers[dot.getA()] = late.a;
  registers[dot.getAcc()] = registers.lookup(late.sum);
  selectStage(loop.copies, late.stage);
  emitWarpgroupDot(dot);
  registers[late.sum] = registers.lookup(dot.getResult());
  selectStage(loop.copies, stage);
}

/// Makes the dot of the last iteration, if there was one.
void KernelEmitter::finishLate(const ConsumerLoop &loop, Value hasIterations) {
  DotOp dot = loop.late.dot;
  scf::ForOp op = loop.op;
  Value result = op.getResult(dot->use_begin()->getOperandNumber());
  SmallVector<Value> before = registers.lookup(result);
  auto branch = scf::IfOp::create(b, TypeRange(ValueRange(before)),
                                  hasIterations, /*addThenBlock=*/true,
                                  /*addElseBlock=*/true);
  branch->setAttr(tile_gpu::kUniformAttr, b.getStringAttr("block"));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, before);
  b.setInsertionPointToEnd(branch.thenBlock());
  registers[dot.getA()] = loop.late.a;
  registers[dot.getAcc()] = before;
  selectStage(loop.copies, loop.late.stage);
  emitWarpgroupDot(dot);
  awaitWgmma();
  consumerRelease(loop.late.stage);
  scf::YieldOp::create(b, registers.lookup(dot.getResult()));
  peeled.erase(dot);
  registers[result] = llvm::to_vector_of<Value>(branch.getResults());
}
