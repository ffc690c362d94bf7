//===- EmitPipeline.cpp - loops that copy ahead ---------------------------===//
//
// A loop's tiles have several stages in shared memory. While an iteration
// computes on one, copies fill the others for those that follow.
//
//===----------------------------------------------------------------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Conversion/TileToNVVM/AccessWidth.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"
#include "passes/Conversion/TileToNVVM/Prefetch.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// Whether something in `op` reads tiles that stay in shared memory.
static bool readsSharedBuffers(Operation *op) {
  return op
      ->walk([](Operation *inner) {
        return llvm::any_of(inner->getOperandTypes(), isShared)
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Lines lie behind the tiles of a stage.
void KernelEmitter::beginPipeline(scf::ForOp loop, const Prefetch &prefetch) {
  auto plan =
      loop->getAttrOfType<tile_gpu::PipelineAttr>(tile_gpu::kPipelineAttr);
  int64_t lineStart = plan.getOffset();
  for (tile_gpu::AsyncCopyOp copy : prefetch.copies) {
    makeSharedBuffer(copy.getBuffer());
    lineStart += getPlaceBytes(copy.getBuffer());
  }
  for (LoadOp load : prefetch.lines) {
    stagedVectors[load.getResult()] = {lineStart, {}};
    lineStart += getPlaceBytes(load.getResult());
  }
  pipelines.push_back({prefetch.copies, prefetch.lines, plan.getOffset(),
                       plan.getBytes(), unsigned(plan.getStages())});
}

void KernelEmitter::endPipeline() {
  const Pipeline &pipeline = pipelines.back();
  tile_gpu::SharedAccessOp::create(b, tile_gpu::SharedAccessKind::Read,
                                   pipeline.depth * pipeline.bytes,
                                   pipeline.offset);
  pipelines.pop_back();
}

void KernelEmitter::selectStage(Value stage) {
  for (tile_gpu::AsyncCopyOp copy : pipelines.back().copies)
    sharedBuffers.find(copy.getBuffer())->second.stage = stage;
  for (LoadOp load : pipelines.back().lines)
    stagedVectors[load.getResult()].stage = stage;
}

Value KernelEmitter::stagedAddress(LoadOp load, Value bytes) {
  const StagedVector &line = stagedVectors.at(load.getResult());
  Value start = b.advance(b.advance(sharedBase, line.stage), bytes);
  return b.advance(start, line.offset);
}

/// Copies a line by 4 or 16 bytes, zeros for elements outside.
void KernelEmitter::copyLine(LoadOp load) {
  MmaLayout layout(load.getResult());
  bool isRow = layout.rows == 1;
  int64_t length = isRow ? layout.cols : layout.rows;
  int64_t padded = layout.lineLength();
  int64_t width =
      isRow ? getAccessWidth(load.getRef(), load.getIndices(), 4) : 1;
  if (width < 4 || length % 4 != 0)
    width = 1;
  auto copy = [&](Value, Value piece) {
    Memo memo;
    Value place = b.mul(piece, width);
    SmallVector<Value> coordinates;
    for (Value index : load.getIndices())
      coordinates.push_back(isRow ? evaluate(index, b.i32(0), place, memo)
                                  : evaluate(index, place, b.i32(0), memo));
    Address address = addressOf(load.getRef(), load.getIndices(), coordinates);
    if (length != padded)
      address.valid = b.both(address.valid, b.less(place, length));
    Value size;
    if (address.valid)
      size = b.select(address.valid, b.i32(4 * width), b.i32(0));
    NVVM::CpAsyncOp::create(
        b, stagedAddress(load, b.mul(piece, 4 * width)),
        b.address(scalar(load.getRef()), address.offset, layout.element),
        uint32_t(4 * width),
        width == 4 ? NVVM::LoadCacheModifierKind::CG
                   : NVVM::LoadCacheModifierKind::CA,
        size);
  };
  int64_t pieces = padded / width;
  forPieces(pieces, pieces, copy);
}

/// A line that was copied, as the threads hold it: a column now, a row where it
/// is used.
void KernelEmitter::readLine(LoadOp load) {
  MmaLayout layout(load.getResult());
  if (layout.rows == 1) {
    deferred.insert(load.getResult());
    return;
  }
  SmallVector<Value> values;
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    values.push_back(b.load(stagedAddress(load, b.mul(rowOf(layout, r), 4)),
                            b.i32(0), layout.element));
  registers[load.getResult()] = std::move(values);
}

/// Columns `2 * pair` and the next of a row that was copied.
Value KernelEmitter::loadLinePair(LoadOp load, int64_t pair) {
  Value first = stagedAddress(load, b.mul(thread().pair, 4));
  return b.loadVector(b.advance(first, 4 * 8 * pair), b.i32(0),
                      MmaLayout(load.getResult()).element, 2);
}

/// Copies the tiles of iteration `iteration` into `stage`.
void KernelEmitter::copyAhead(scf::ForOp loop, const Prefetch &prefetch,
                              Value iteration, Value stage) {
  scalars.map(loop.getInductionVar(), iteration);
  selectStage(stage);
  for (Operation *op : prefetch.addresses)
    (void)emitOp(op);
  for (tile_gpu::AsyncCopyOp copy : prefetch.copies)
    copyVectors(copy, sharedBuffers.at(copy.getBuffer()));
  for (LoadOp load : prefetch.lines)
    copyLine(load);
}

/// The copies of this iteration are there, and nobody reads what the one before
/// read.
void KernelEmitter::beginStage() {
  const Pipeline &pipeline = pipelines.back();
  for (tile_gpu::AsyncCopyOp copy : pipeline.copies)
    markGlobal(copy);
  for (LoadOp load : pipeline.lines)
    markGlobal(load);
  tile_gpu::AsyncWaitOp::create(b, int32_t(pipeline.depth - 2));
  for (tile_gpu::AsyncCopyOp copy : pipeline.copies)
    markShared(copy.getBuffer(), tile_gpu::SharedAccessKind::Arrive);
  tile_gpu::BarrierOp::create(b, IntegerAttr());
}

static Value isLess(ThreadBuilder &b, Value x, Value y) {
  return b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::slt, x, y);
}

/// The stages before and behind `stage` in a pipeline whose last one is at
/// `last`.
static std::pair<Value, Value> neighbours(ThreadBuilder &b, Value stage,
                                          int64_t last, int64_t bytes) {
  if (last == bytes) {
    Value other = arith::SubIOp::create(b, b.i32(bytes), stage);
    return {other, other};
  }
  Value isFirst =
      b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::eq, stage, b.i32(0));
  Value isLast = b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::eq, stage,
                                               b.i32(last));
  return {b.select(isFirst, b.i32(last), b.add(stage, -bytes)),
          b.select(isLast, b.i32(0), b.add(stage, bytes))};
}

LogicalResult KernelEmitter::emitPipelinedFor(scf::ForOp op,
                                              const Prefetch &prefetch) {
  Value lower = scalar(op.getLowerBound()), upper = scalar(op.getUpperBound());
  Value step = scalar(op.getStep());
  beginPipeline(op, prefetch);
  int64_t depth = pipelines.back().depth, bytes = pipelines.back().bytes;
  auto markPlaces = [&](tile_gpu::SharedAccessKind kind) {
    tile_gpu::SharedAccessOp::create(b, kind, depth * bytes,
                                     pipelines.back().offset);
  };
  // What the loop reads of shared memory counts as read before it.
  if (readsSharedBuffers(op))
    markPlaces(tile_gpu::SharedAccessKind::Read);
  markPlaces(tile_gpu::SharedAccessKind::Copy);
  for (int64_t k = 0; k + 1 < depth; ++k) {
    Value first = b.add(lower, b.mul(step, k));
    b.ifThen(isLess(b, first, upper),
             [&] { copyAhead(op, prefetch, first, b.i32(k * bytes)); });
    tile_gpu::AsyncCommitOp::create(b, IntegerAttr(), IntegerAttr());
  }

  SmallVector<Value> inits = flatten(op.getInitArgs());
  inits.push_back(b.i32(0));
  LogicalResult result = success();
  SmallVector<Value> results = b.loop(
      lower, upper, step, inits,
      [&](Value i, ValueRange carried) -> SmallVector<Value> {
        Value stage = carried.back();
        auto [before, after] = neighbours(b, stage, (depth - 1) * bytes, bytes);
        beginStage();
        Value ahead = b.add(i, b.mul(step, depth - 1));
        auto copyNext = [&, before = before] {
          b.ifThen(isLess(b, ahead, upper),
                   [&] { copyAhead(op, prefetch, ahead, before); });
          tile_gpu::AsyncCommitOp::create(b, IntegerAttr(), IntegerAttr());
          scalars.map(op.getInductionVar(), i);
          selectStage(stage);
        };
        if (DotOp first = findFirstDot(op)) {
          // Copies are issued while it multiplies.
          scalars.map(op.getInductionVar(), i);
          selectStage(stage);
          afterDot[first] = [&] {
            IRMapping own = scalars;
            copyNext();
            scalars = std::move(own);
          };
        } else {
          copyNext();
        }
        unflatten(op.getRegionIterArgs(), carried.drop_back());
        result = emitBlock(*op.getBody());
        if (failed(result))
          return carried;
        SmallVector<Value> yielded = flatten(op.getYieldedValues());
        yielded.push_back(after);
        return yielded;
      },
      ThreadBuilder::Loop::Uniform);
  endPipeline();
  unflatten(op.getResults(), ValueRange(results).drop_back());
  return result;
}
