//===- EmitPipeline.cpp - loops that copy ahead ---------------------------===//
//
// A loop's tiles have two places in shared memory. While an iteration computes
// on one, copies fill the other for the next.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"
#include "passes/Conversion/TileToNVVM/Prefetch.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// The tiles of a loop lie together: `bytes` for each of two stages.
void KernelEmitter::beginPipeline(const Prefetch &prefetch) {
  int64_t bytes = 0;
  for (LoadOp load : prefetch.loads) {
    SharedShape shape(cast<TileType>(load.getType()));
    residents.try_emplace(load.getResult(), Resident{shape, bytes, {}});
    bytes += llvm::alignTo(shape.bytes(), SharedPool::alignment);
  }
  pipelines.push_back({prefetch.loads, pool.allocate(2 * bytes), bytes});
  for (LoadOp load : prefetch.loads)
    residents.find(load.getResult())->second.offset += pipelines.back().offset;
}

void KernelEmitter::endPipeline() {
  pool.release(pipelines.back().offset);
  pipelines.pop_back();
  residentsRead = true;
}

void KernelEmitter::selectStage(Value stage) {
  for (LoadOp load : pipelines.back().loads)
    residents.find(load.getResult())->second.stage = stage;
}

/// Copies the tiles of iteration `iteration` into `stage`.
void KernelEmitter::copyAhead(scf::ForOp loop, const Prefetch &prefetch,
                              Value iteration, Value stage) {
  scalars.map(loop.getInductionVar(), iteration);
  selectStage(stage);
  for (Operation *op : prefetch.addresses)
    (void)emitOp(op);
  for (LoadOp load : prefetch.loads)
    copyChunks(load, residents.at(load.getResult()), getCopyWidth(load));
}

/// All copies are there, and nobody reads the other stage any more.
void KernelEmitter::beginStage() {
  NVVM::CpAsyncWaitGroupOp::create(b, 0u);
  barrier();
}

static Value isLess(ThreadBuilder &b, Value x, Value y) {
  return b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::slt, x, y);
}

LogicalResult KernelEmitter::emitPipelinedFor(scf::ForOp op,
                                              const Prefetch &prefetch) {
  Value lower = scalar(op.getLowerBound()), upper = scalar(op.getUpperBound());
  Value step = scalar(op.getStep());
  beginWriting();
  beginPipeline(prefetch);
  Value stageBytes = b.i32(pipelines.back().bytes);
  b.ifThen(isLess(b, lower, upper),
           [&] { copyAhead(op, prefetch, lower, b.i32(0)); });
  NVVM::CpAsyncCommitGroupOp::create(b);

  SmallVector<Value> inits = flatten(op.getInitArgs());
  inits.push_back(b.i32(0));
  LogicalResult result = success();
  SmallVector<Value> results =
      b.loop(lower, upper, step, inits,
             [&](Value i, ValueRange carried) -> SmallVector<Value> {
               Value stage = carried.back();
               Value other = arith::SubIOp::create(b, stageBytes, stage);
               beginStage();
               Value next = b.add(i, step);
               b.ifThen(isLess(b, next, upper),
                        [&] { copyAhead(op, prefetch, next, other); });
               NVVM::CpAsyncCommitGroupOp::create(b);
               scalars.map(op.getInductionVar(), i);
               selectStage(stage);
               unflatten(op.getRegionIterArgs(), carried.drop_back());
               result = emitBlock(*op.getBody());
               if (failed(result))
                 return carried;
               settle();
               SmallVector<Value> next_ = flatten(op.getYieldedValues());
               next_.push_back(other);
               return next_;
             });
  endPipeline();
  unflatten(op.getResults(), ValueRange(results).drop_back());
  return result;
}

/// The condition of iteration `i`; false behind the last one.
FailureOr<Value> KernelEmitter::emitCondition(scf::ForOp op,
                                              const Prefetch &prefetch, Value i,
                                              Value exists) {
  auto check =
      scf::IfOp::create(b, b.getI1Type(), exists, /*addThenBlock=*/true,
                        /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(check.thenBlock());
  scalars.map(op.getInductionVar(), i);
  for (Operation *needed : prefetch.condition)
    if (failed(emitOp(needed)))
      return failure();
  scf::IfOp branch = prefetch.branch;
  scf::YieldOp::create(b, scalar(branch.getCondition()));
  b.setInsertionPointToEnd(check.elseBlock());
  scf::YieldOp::create(b, b.constant(b.getI1Type(), 0));
  return check.getResult(0);
}

/// An iteration that meets the condition begins its copies and computes the
/// last one that did, if any. One more iteration computes what is left.
LogicalResult KernelEmitter::emitPipelinedBranch(scf::ForOp op,
                                                 const Prefetch &prefetch) {
  Value lower = scalar(op.getLowerBound()), upper = scalar(op.getUpperBound());
  Value step = scalar(op.getStep());
  scf::IfOp branch = prefetch.branch;
  beginWriting();
  beginPipeline(prefetch);
  Value stageBytes = b.i32(pipelines.back().bytes);
  Value end = b.select(isLess(b, lower, upper), b.add(upper, step), lower);

  SmallVector<Value> inits = flatten(op.getInitArgs());
  size_t count = inits.size();
  // The iteration to compute, whether there is one, and its stage.
  inits.append({lower, b.constant(b.getI1Type(), 0), b.i32(0)});
  SmallVector<Type> types =
      llvm::map_to_vector(inits, [](Value value) { return value.getType(); });
  LogicalResult result = success();
  auto compute = [&](Value pending, ValueRange carried) {
    scalars.map(op.getInductionVar(), pending);
    unflatten(op.getRegionIterArgs(), carried);
    for (Operation *needed : prefetch.body)
      if (succeeded(result))
        result = emitOp(needed);
    if (succeeded(result))
      result = emitBlock(*branch.thenBlock());
    if (succeeded(result))
      settle();
    return succeeded(result) ? flatten(branch.thenYield().getOperands())
                             : SmallVector<Value>(carried);
  };
  auto iterate = [&](Value i, ValueRange carried) -> SmallVector<Value> {
    Value exists = isLess(b, i, upper);
    FailureOr<Value> condition = emitCondition(op, prefetch, i, exists);
    if (failed(condition)) {
      result = failure();
      return carried;
    }
    Value yes = b.constant(b.getI1Type(), 1);
    Value isLast = arith::XOrIOp::create(b, exists, yes);
    auto active =
        scf::IfOp::create(b, types, arith::OrIOp::create(b, *condition, isLast),
                          /*addThenBlock=*/true, /*addElseBlock=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(active.elseBlock());
    scf::YieldOp::create(b, carried);
    b.setInsertionPointToEnd(active.thenBlock());
    Value pending = carried[count], any = carried[count + 1];
    Value stage = carried[count + 2];
    Value other = arith::SubIOp::create(b, stageBytes, stage);
    beginStage();
    b.ifThen(*condition, [&] { copyAhead(op, prefetch, i, other); });
    NVVM::CpAsyncCommitGroupOp::create(b);
    ValueRange sums = carried.take_front(count);
    auto work = scf::IfOp::create(b, ArrayRef(types).take_front(count), any,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
    b.setInsertionPointToEnd(work.elseBlock());
    scf::YieldOp::create(b, sums);
    b.setInsertionPointToEnd(work.thenBlock());
    selectStage(stage);
    scf::YieldOp::create(b, compute(pending, sums));
    b.setInsertionPointToEnd(active.thenBlock());
    SmallVector<Value> next(work.getResults());
    next.append({i, *condition, other});
    scf::YieldOp::create(b, next);
    return SmallVector<Value>(active.getResults());
  };
  SmallVector<Value> results = b.loop(lower, end, step, inits, iterate);
  endPipeline();
  unflatten(op.getResults(), ValueRange(results).take_front(count));
  return result;
}
