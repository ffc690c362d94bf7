//===- EmitConsumer.cpp - warpgroups that multiply what was copied --------===//
//
// The loops of warpgroups for which another one copies (EmitProducer.cpp). The
// last product of an iteration is issued behind the first one of the next
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
// Places
//===----------------------------------------------------------------------===//

/// All threads of a warp have read what is in a place.
void KernelEmitter::releasePlace(Value place) {
  NVVM::SyncWarpOp::create(b, b.i32(-1));
  Value empty = ringBarrier(place, false);
  b.ifThen(b.less(thread().lane, 1), [&] {
    NVVM::MBarrierArriveOp::create(b, TypeRange(b.getI64Type()), empty,
                                   Value());
  });
}

/// Waits for a tile of the whole program.
void KernelEmitter::takeHeld(size_t number) {
  const ProducerPlan::Copy &copy = producer.held[number];
  LoadOp load = copy.load;
  awaitPhase(heldBarrier(number), b.i32(0));
  residents.try_emplace(
      load.getResult(),
      Resident{SharedShape(cast<TileType>(load.getType())), copy.offset, {}});
}

/// Lets the tiles that a loop copies lie in `place` of the ring.
void KernelEmitter::selectPlace(ArrayRef<ProducerPlan::Copy> copies,
                                Value place) {
  Value stage = b.mul(place, producer.stageBytes);
  for (const ProducerPlan::Copy &copy : copies) {
    Value tile = copy.load->getResult(0);
    int64_t offset = ring.offset + copy.offset;
    if (isShared(tile.getType()))
      residents.insert_or_assign(
          tile,
          Resident{SharedShape(cast<TileType>(tile.getType())), offset, stage});
    else
      residentLines[tile] = {offset, stage};
  }
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// Emits the body of a loop: its values and those of the late product, for the
/// next iteration.
FailureOr<SmallVector<Value>> KernelEmitter::emitIteration(ConsumerLoop &loop,
                                                           ValueRange carried,
                                                           Value place) {
  DotOp late = loop.late.product;
  if (late)
    carried = takeLate(loop.late, carried);
  unflatten(loop.op.getRegionIterArgs(), carried);
  selectPlace(loop.copies, place);
  if (late)
    behindProduct[findFirstProduct(loop.op)] = [&, place] {
      emitLateProduct(loop, place);
    };
  if (failed(emitBlock(*loop.op.getBody())))
    return failure();
  if (!late)
    return flatten(loop.op.getYieldedValues());
  registers[late.getResult()] = registersOf(late.getAcc());
  SmallVector<Value> yielded = flatten(loop.op.getYieldedValues());
  llvm::append_range(yielded, registersOf(late.getA()));
  yielded.push_back(place);
  return yielded;
}

LogicalResult KernelEmitter::emitConsumerLoop(scf::ForOp op) {
  ArrayRef<ProducerPlan::Copy> copies = producer.loops.find(op)->second;
  ConsumerLoop loop{op, copies, findLateProduct(op, copies)};
  bool isLate(loop.late.product);
  LogicalResult result = success();
  Value lower = scalar(op.getLowerBound()), upper = scalar(op.getUpperBound());
  auto body = [&](Value i, ValueRange carried) -> SmallVector<Value> {
    scalars.map(op.getInductionVar(), i);
    ValueRange own = takeRing(carried);
    Value place = ring.place, phase = ring.phase;
    awaitPhase(ringBarrier(place, true), phase);
    for (const ProducerPlan::Copy &copy : copies)
      markGlobal(copy.load);
    FailureOr<SmallVector<Value>> yielded = emitIteration(loop, own, place);
    if (failed(yielded)) {
      result = failure();
      return llvm::to_vector(carried);
    }
    if (isLate) {
      // The first iteration has no place before its own.
      Value isLater =
          arith::CmpIOp::create(b, arith::CmpIPredicate::ne, i, lower);
      b.ifThen(isLater, [&] { releasePlace(own.back()); });
    } else {
      releasePlace(place);
    }
    ring.place = place;
    ring.phase = phase;
    advanceRing();
    return withRing(std::move(*yielded));
  };
  SmallVector<Value> inits = flatten(op.getInitArgs());
  if (isLate) {
    leftOut.insert(loop.late.product);
    llvm::append_range(inits, startLate(loop.late));
  }
  SmallVector<Value> results =
      b.loop(lower, upper, scalar(op.getStep()), withRing(std::move(inits)),
             body, ThreadBuilder::Loop::Uniform);
  ValueRange own = takeRing(results);
  if (isLate)
    own = takeLate(loop.late, own);
  unflatten(op.getResults(), own);
  if (isLate)
    finishLate(loop, arith::CmpIOp::create(b, arith::CmpIPredicate::slt, lower,
                                           upper));
  return result;
}

//===----------------------------------------------------------------------===//
// Late products
//===----------------------------------------------------------------------===//

/// Whether all that uses `value` in the block of `op` stands behind that.
static bool isUsedBehind(Value value, Operation *op) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    Operation *inBlock = op->getBlock()->findAncestorOpInBlock(*user);
    return inBlock && op->isBeforeInBlock(inBlock);
  });
}

/// The last product of a loop's iteration can be made behind the first one of
/// the next iteration: while it runs, threads work on what that gives.
KernelEmitter::LateProduct
KernelEmitter::findLateProduct(scf::ForOp loop,
                               ArrayRef<ProducerPlan::Copy> copies) {
  DotOp first = findFirstProduct(loop), last;
  for (auto dot : loop.getBody()->getOps<DotOp>())
    last = dot;
  if (last == first || !isWgmma(last) || !isFragment(last.getA().getType()) ||
      last.getTransposeA() || !last->hasOneUse() ||
      !isa<scf::YieldOp>(*last->user_begin()) ||
      last.getAcc().getDefiningOp<SplatOp>() ||
      !llvm::any_of(copies, [&](const ProducerPlan::Copy &copy) {
        return copy.load == last.getB().getDefiningOp();
      }))
    return {};
  unsigned number = last->use_begin()->getOperandNumber();
  Value sum = loop.getRegionIterArg(number);
  if (last.getAcc() == sum || !isUsedBehind(sum, first))
    return {};
  return {last, sum, {}, {}};
}

/// What a loop carries of a product that is late: operand a, and the place of
/// operand b. First zeros, and some place that is filled.
SmallVector<Value> KernelEmitter::startLate(const LateProduct &late) {
  DotOp product = late.product;
  Fragment a(product.getA());
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(a.registerType()));
  SmallVector<Value> values(a.registers(), zero);
  values.push_back(ring.place);
  return values;
}

ValueRange KernelEmitter::takeLate(LateProduct &late, ValueRange values) {
  late.place = values.back();
  values = values.drop_back();
  int64_t count = Fragment(late.product.getA()).registers();
  late.a = SmallVector<Value>(values.take_back(count));
  return values.drop_back(count);
}

/// Makes the product of the iteration before; that of now lies in `place`.
void KernelEmitter::emitLateProduct(const ConsumerLoop &loop, Value place) {
  const LateProduct &late = loop.late;
  DotOp product = late.product;
  registers[product.getA()] = late.a;
  registers[product.getAcc()] = registers.lookup(late.sum);
  selectPlace(loop.copies, late.place);
  emitWarpgroupDot(product);
  registers[late.sum] = registers.lookup(product.getResult());
  selectPlace(loop.copies, place);
}

/// Makes the product of the last iteration, if there was one.
void KernelEmitter::finishLate(const ConsumerLoop &loop, Value hasIterations) {
  DotOp product = loop.late.product;
  scf::ForOp op = loop.op;
  Value result = op.getResult(product->use_begin()->getOperandNumber());
  SmallVector<Value> before = registers.lookup(result);
  auto branch = scf::IfOp::create(b, TypeRange(ValueRange(before)),
                                  hasIterations, /*addThenBlock=*/true,
                                  /*addElseBlock=*/true);
  branch->setAttr(tile_gpu::kUniformAttr, b.getStringAttr("block"));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, before);
  b.setInsertionPointToEnd(branch.thenBlock());
  registers[product.getA()] = loop.late.a;
  registers[product.getAcc()] = before;
  selectPlace(loop.copies, loop.late.place);
  emitWarpgroupDot(product);
  awaitProducts();
  releasePlace(loop.late.place);
  scf::YieldOp::create(b, registers.lookup(product.getResult()));
  leftOut.erase(product);
  registers[result] = llvm::to_vector_of<Value>(branch.getResults());
}
