//===- KernelEmitter.cpp - control flow and the frame of a kernel ---------===//

#include "passes/Conversion/TileToNVVM/KernelEmitter.h"
#include "dialects/Interfaces/PerformanceLints.h"
#include "dialects/TileGPU/TileGPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Conversion/TileToNVVM/Passes.h"
#include "passes/Conversion/TileToNVVM/Scratch.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

static bool isTile(Value value) { return isa<TileType>(value.getType()); }

KernelEmitter::KernelEmitter(KernelOp kernel)
    : kernel(kernel),
      threads(kernel->getAttrOfType<IntegerAttr>(nsa::tile_gpu::kThreadsAttr)
                  .getInt()),
      b(kernel.getLoc(), kernel.getContext()), bounds(kernel),
      warps(hasMmaTiles(kernel) ? threads / 32 : 0) {}

/// How many registers of a thread the assembler may use: left to itself it
/// spills some to run more blocks at once. All that a thread can have, or a few
/// less if a multiprocessor, with 65,536 of them, runs one more block then, or
/// one at all, or as many as the kernel asks for.
static int32_t getRegisterLimit(KernelOp kernel, int64_t threads) {
  constexpr int64_t most = 255, all = 65536, fewest = 216;
  if (auto minBlocks = kernel->getAttrOfType<IntegerAttr>(nsa::kMinBlocksAttr))
    return int32_t(
        std::min(most, all / (threads * minBlocks.getInt()) / 8 * 8));
  int64_t blocks = all / (threads * (most + 1)) + 1;
  int64_t limit = all / (threads * blocks) / 8 * 8;
  return int32_t(limit < fewest && blocks > 1 ? most : limit);
}

/// One parameter for each argument, one for each tensor map, and the extents of
/// the launch if the kernel takes them. How arguments are aligned lets the code
/// generator move neighbours together that no tile has side by side: the cosine
/// and the sine of an angle.
LLVM::LLVMFuncOp KernelEmitter::createFunction() {
  auto global =
      LLVM::LLVMPointerType::get(kernel.getContext(), unsigned(Space::Global));
  SmallVector<Type> parameters(kernel.getNumArguments(), global);
  if (auto maps = kernel->getAttrOfType<ArrayAttr>(nsa::kTensorMapsAttr))
    parameters.append(maps.size(),
                      LLVM::LLVMPointerType::get(kernel.getContext()));
  if (!bounds.getExtents().empty())
    parameters.append(nsa::kNumExtents, b.getI64Type());
  auto type = LLVM::LLVMFunctionType::get(
      LLVM::LLVMVoidType::get(kernel.getContext()), parameters);
  auto func = LLVM::LLVMFuncOp::create(b, kernel.getSymName(), type);
  Block *entry = func.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  for (auto [argument, parameter] :
       llvm::zip(kernel.getArguments(), entry->getArguments())) {
    scalars.map(argument, parameter);
    func.setArgAttr(argument.getArgNumber(),
                    LLVM::LLVMDialect::getAlignAttrName(),
                    b.getI64IntegerAttr(getAlignment(argument)));
  }
  addTensorMaps(func);
  return func;
}

LogicalResult KernelEmitter::emit(LLVM::GlobalOp sharedMemory) {
  b.setInsertionPoint(kernel);
  LLVM::LLVMFuncOp func = createFunction();
  tid = b.threadId();
  sharedBase = LLVM::AddressOfOp::create(b, sharedMemory);
  conversionBase = sharedBase;
  if (warps) {
    auto offset = kernel->getAttrOfType<IntegerAttr>(tile_gpu::kScratchAttr);
    conversionBase =
        b.address(sharedBase, b.i32(offset.getInt()), b.getI8Type());
    startEnd = conversionBase.getDefiningOp();
  }
  if (failed(emitBlock(kernel.getBody().front())))
    return failure();
  LLVM::ReturnOp::create(b, ValueRange());
  bool hasRoles =
      !kernel.getBody().front().getOps<tile_gpu::WarpSpecializeOp>().empty();
  func->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  func->setAttr(
      NVVM::NVVMDialect::getReqntidAttrName(),
      b.getDenseI32ArrayAttr(
          {int32_t(threads + (hasRoles ? kProducerThreads : 0)), 1, 1}));
  if (warps && !hasRoles)
    func->setAttr(NVVM::NVVMDialect::getMaxnregAttrName(),
                  b.getI32IntegerAttr(getRegisterLimit(kernel, threads)));
  func->setAttr(kSharedBytesAttr, kernel->getAttr(kSharedBytesAttr));
  addPerformanceLints(func, getPerformanceLints(kernel));
  return success();
}

//===----------------------------------------------------------------------===//
// Where elements are
//===----------------------------------------------------------------------===//

std::pair<Value, Value> KernelEmitter::place(const BlockedLayout &blocked,
                                             int64_t k) {
  Value row = b.i32(0), col = row;
  if (blocked.rows > 1)
    row = b.add(b.div(tid, blocked.threadsPerRow),
                k / blocked.perRow() * blocked.rowGroups());
  if (blocked.cols > 1) {
    Value member =
        blocked.rowGroups() == 1 ? tid : b.rem(tid, blocked.threadsPerRow);
    int64_t piece = k % blocked.perRow() / blocked.width;
    col = b.add(b.mul(member, blocked.width),
                piece * blocked.threadsPerRow * blocked.width +
                    k % blocked.width);
  }
  return {row, col};
}

std::pair<Value, Value> KernelEmitter::placeInside(const BlockedLayout &blocked,
                                                   int64_t k) {
  auto [row, col] = place(blocked, k);
  if (!blocked.hasRow(k))
    row = arith::MinSIOp::create(b, row, b.i32(blocked.rows - 1));
  if (!blocked.hasCol(k))
    col = arith::MinSIOp::create(b, col, b.i32(blocked.cols - 1));
  return {row, col};
}

Value KernelEmitter::hasRow(const BlockedLayout &blocked, int64_t k) {
  return blocked.hasRow(k) ? Value()
                           : b.less(place(blocked, k).first, blocked.rows);
}

Value KernelEmitter::hasCol(const BlockedLayout &blocked, int64_t k) {
  return blocked.hasCol(k) ? Value()
                           : b.less(place(blocked, k).second, blocked.cols);
}

Value KernelEmitter::isElement(const BlockedLayout &blocked, int64_t k) {
  return b.both(hasRow(blocked, k), hasCol(blocked, k));
}

Value KernelEmitter::isOwner(const BlockedLayout &blocked, int64_t k) {
  Value owner = isElement(blocked, k);
  if (blocked.rows == 1 && blocked.cols == 1)
    return b.both(owner, b.less(tid, 1));
  if (blocked.rows == 1 && blocked.rowGroups() > 1)
    return b.both(owner, b.less(tid, blocked.threadsPerRow));
  if (blocked.cols == 1 && blocked.threadsPerRow > 1)
    return b.both(owner, b.less(b.rem(tid, blocked.threadsPerRow), 1));
  return owner;
}

SmallVector<Value> KernelEmitter::registersOf(Value tile) {
  if (auto known = registers.find(tile); known != registers.end())
    return known->second;
  if (hasMmaLayout(tile.getType()))
    return pack(MmaLayout(cast<TileType>(tile.getType())), elementsOf(tile));
  BlockedLayout blocked = blockedLayoutOf(tile);
  if (auto splat = tile.getDefiningOp<SplatOp>())
    return SmallVector<Value>(blocked.registers(), scalar(splat.getValue()));
  assert(isVirtual(tile) && "tile without registers");
  SmallVector<Value> values;
  Source source{tile, {}, std::nullopt};
  for (int64_t k = 0; k < blocked.registers(); ++k) {
    auto [row, col] = place(blocked, k);
    values.push_back(element(source, k, row, col));
  }
  return values;
}

//===----------------------------------------------------------------------===//
// Layout conversion through shared memory
//===----------------------------------------------------------------------===//

void KernelEmitter::beginLayoutConversion() {
  tile_gpu::BarrierOp::create(b);
  sharedUsed = 0;
  stillShared.clear();
}

KernelEmitter::SharedTile KernelEmitter::allocate(int64_t rows, int64_t cols,
                                                  Type element) {
  SharedTile tile{b.address(conversionBase, b.i32(sharedUsed), b.getI8Type()),
                  getScratchPitch(rows, cols, element), element};
  sharedUsed += getScratchBytes(rows, cols, element);
  return tile;
}

KernelEmitter::SharedTile KernelEmitter::share(OpOperand &operand) {
  Value tile = operand.get();
  // In a loop, what others exchange behind the operation would lie there.
  auto known = stillShared.find(tile);
  if (known != stillShared.end() &&
      tile.getParentBlock() == operand.getOwner()->getBlock())
    return known->second;
  beginLayoutConversion();
  SharedTile shared = localStore(tile);
  endLocalStores();
  return shared;
}

KernelEmitter::SharedTile KernelEmitter::localStore(Value tile) {
  auto type = cast<TileType>(tile.getType());
  SharedTile shared =
      allocate(type.getRows(), type.getCols(), type.getElementType());
  BlockedLayout blocked = blockedLayoutOf(tile);
  for (auto [k, value] : llvm::enumerate(registersOf(tile))) {
    auto [row, col] = place(blocked, k);
    b.ifThen(isOwner(blocked, k), [&, row = row, col = col, value = value] {
      writeShared(value, shared, row, col);
    });
  }
  return shared;
}

Value KernelEmitter::readShared(const SharedTile &tile, Value row, Value col) {
  return b.load(tile.base, b.add(b.mul(row, tile.pitch), col), tile.element);
}

void KernelEmitter::writeShared(Value value, const SharedTile &tile, Value row,
                                Value col) {
  b.store(value, tile.base, b.add(b.mul(row, tile.pitch), col));
}

SmallVector<Value> KernelEmitter::broadcast(Value tile,
                                            const BlockedLayout &larger) {
  BlockedLayout own = blockedLayoutOf(tile);
  bool alongRows = own.rows == 1 && larger.rows > 1;
  bool alongCols = own.cols == 1 && larger.cols > 1;
  if (!hasElementsOf(own, larger))
    return {};
  SmallVector<Value> values = registersOf(tile), result;
  for (int64_t k = 0; k < larger.registers(); ++k) {
    int64_t row = alongRows ? 0 : k / larger.perRow();
    int64_t col = alongCols ? 0 : k % larger.perRow();
    result.push_back(values[row * own.perRow() + col]);
  }
  return result;
}

SmallVector<KernelEmitter::Source> KernelEmitter::prepare(ValueRange operands,
                                                          TileType shape) {
  SmallVector<Source> sources;
  SmallVector<unsigned> converted;
  BlockedLayout blocked = blockedLayoutOf(shape);
  for (auto [i, operand] : llvm::enumerate(operands)) {
    Source source{operand, {}, std::nullopt};
    if (isTile(operand) && !isVirtual(operand)) {
      source.registers = broadcast(operand, blocked);
      if (source.registers.empty())
        converted.push_back(i);
    }
    sources.push_back(std::move(source));
  }
  if (converted.empty())
    return sources;
  beginLayoutConversion();
  for (unsigned i : converted)
    sources[i].shared = localStore(sources[i].operand);
  endLocalStores();
  return sources;
}

Value KernelEmitter::element(const Source &source, int64_t k, Value row,
                             Value col) {
  if (!source.registers.empty())
    return source.registers[k];
  Value operand = source.operand;
  if (!isTile(operand))
    return scalar(operand);
  auto type = cast<TileType>(operand.getType());
  if (source.shared)
    return readShared(*source.shared, type.getRows() == 1 ? b.i32(0) : row,
                      type.getCols() == 1 ? b.i32(0) : col);
  Memo memo;
  return evaluate(operand, row, col, memo);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

LogicalResult KernelEmitter::emitBlock(Block &block) {
  for (Operation &op : block) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      break;
    b.setLoc(op.getLoc());
    if (failed(emitOp(&op)))
      return failure();
  }
  return success();
}

LogicalResult KernelEmitter::emitOp(Operation *op) {
  if (op->getNumResults() > 0 && isRematerialized(op->getResult(0).getType()))
    return success();
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](scf::ForOp loop) { return emitFor(loop); })
      .Case([&](scf::IfOp branch) { return emitIf(branch); })
      // Elements of these are computed where they are used.
      .Case<RangeOp, SplatOp>([](auto) { return success(); })
      .Case([&](ProgramIdOp id) {
        scalars.map(id.getId(), b.blockId(id.getAxis()));
        return success();
      })
      .Case([&](ExtentOp extent) {
        auto argument = nsa::Extent::argument(
            /*number=*/0, extent.getNumber(), extent.getContext());
        scalars.map(extent.getExtent(), b.size(argument, extent.getType()));
        return success();
      })
      .Case([&](ViewOp view) {
        scalars.map(view.getResult(), scalar(view.getRef()));
        return success();
      })
      .Case([&](LoadOp load) {
        if (hasMmaLayout(load.getType()))
          return emitMmaLoad(load), success();
        return emitLoad(load), success();
      })
      .Case<tile_gpu::AllocOp, tile_gpu::LocalViewOp, tile_gpu::MBarriersOp>(
          [](auto) { return success(); })
      .Case([&](tile_gpu::WarpSpecializeOp roles) { return emitRoles(roles); })
      .Case([&](tile_gpu::MBarrierInitOp init) {
        return emitMBarrierInit(init), success();
      })
      .Case([&](tile_gpu::MBarrierWaitOp wait) {
        return emitMBarrierWait(wait), success();
      })
      .Case([&](tile_gpu::MBarrierExpectOp expect) {
        return emitMBarrierExpect(expect), success();
      })
      .Case([&](tile_gpu::MBarrierArriveOp arrive) {
        return emitMBarrierArrive(arrive), success();
      })
      .Case([&](tile_gpu::TmaLoadOp load) {
        return emitTmaLoad(load), success();
      })
      .Case([&](tile_gpu::AsyncCopyOp copy) {
        return emitAsyncCopy(copy), success();
      })
      .Case([&](tile_gpu::LocalStoreOp store) {
        return emitLocalStore(store), success();
      })
      .Case([&](tile_gpu::LocalLoadOp load) {
        return readLine(load.getTile()), success();
      })
      .Case([&](tile_gpu::IterationOp op) {
        scalars.map(op.getResult(), scalar(op.getValue()));
        return success();
      })
      .Case([&](tile_gpu::CopyIfOp op) {
        b.ifThen(scalar(op.getCondition()), [&] {
          for (Operation &inner : op.getBody().front())
            (void)emitOp(&inner);
        });
        return success();
      })
      .Case<tile_gpu::AsyncCommitOp, tile_gpu::AsyncWaitOp, tile_gpu::BarrierOp,
            tile_gpu::FenceAsyncOp>(
          [&](auto sync) { return b.clone(*sync, scalars), success(); })
      .Case([&](tile_gpu::WgmmaWaitOp wait) {
        SmallVector<Value> sums = flatten(wait.getValues());
        unflatten(wait.getResults(),
                  tile_gpu::WgmmaWaitOp::create(b, TypeRange(ValueRange(sums)),
                                                wait.getPending(), sums)
                      .getResults());
        return success();
      })
      .Case([&](StoreOp store) {
        if (hasMmaLayout(store.getValue().getType()))
          return emitMmaStore(store), success();
        return emitStore(store), success();
      })
      .Case([&](MapOp map) {
        if (hasMmaLayout(map.getShapeType()))
          return emitMmaMap(map), success();
        return emitMap(map), success();
      })
      .Case([&](DotOp dot) {
        if (isWgmma(dot))
          return emitWarpgroupDot(dot), success();
        if (hasMmaLayout(dot.getType()))
          return emitMmaDot(dot), success();
        return emitDot(dot), success();
      })
      .Case([&](ReduceOp reduce) {
        if (hasMmaLayout(reduce.getType()))
          return emitMmaReduce(reduce), success();
        return emitReduce(reduce), success();
      })
      .Case([&](AnyOp any) { return emitAny(any), success(); })
      .Case([&](TransposeOp t) { return emitTranspose(t), success(); })
      .Case([&](TopNOp top) { return emitTopN(top), success(); })
      .Case([&](SortOp sort) { return emitSort(sort), success(); })
      .Case([&](ConvertOp convert) { return emitConvert(convert), success(); })
      .Default([&](Operation *other) -> LogicalResult {
        bool tiles = llvm::any_of(other->getOperands(), isTile) ||
                     llvm::any_of(other->getResults(), isTile);
        if (auto select = dyn_cast<arith::SelectOp>(other); select && tiles)
          return emitSelect(select), success();
        if (tiles ||
            !isa<arith::ArithDialect, math::MathDialect>(other->getDialect()))
          return other->emitOpError("has no lowering to CUDA");
        return emitScalarOp(other), success();
      });
}

void KernelEmitter::emitScalarOp(Operation *op) {
  Operation *copy = b.clone(*op, scalars);
  for (auto [from, to] : llvm::zip_equal(op->getResults(), copy->getResults()))
    scalars.map(from, to);
}

/// Canonicalisation makes these of branches that compute nothing.
void KernelEmitter::emitSelect(arith::SelectOp op) {
  Value condition = scalar(op.getCondition());
  SmallVector<Value> &result = registers[op.getResult()];
  for (auto [yes, no] : llvm::zip_equal(registersOf(op.getTrueValue()),
                                        registersOf(op.getFalseValue())))
    result.push_back(b.select(condition, yes, no));
}

SmallVector<Value> KernelEmitter::flatten(ValueRange values) {
  SmallVector<Value> flat;
  for (Value value : values) {
    if (isTile(value))
      llvm::append_range(flat, registersOf(value));
    else
      flat.push_back(scalar(value));
  }
  return flat;
}

SmallVector<Type> KernelEmitter::flattenTypes(TypeRange types) {
  SmallVector<Type> flat;
  for (Type type : types) {
    auto tile = dyn_cast<TileType>(type);
    if (tile && hasMmaLayout(tile))
      flat.append(MmaLayout(tile).registers(), MmaLayout(tile).registerType());
    else if (tile)
      flat.append(blockedLayoutOf(tile).registers(), tile.getElementType());
    else
      flat.push_back(type);
  }
  return flat;
}

void KernelEmitter::unflatten(ValueRange values, ValueRange flat) {
  for (Value value : values) {
    if (!isTile(value)) {
      scalars.map(value, flat.front());
      flat = flat.drop_front();
      continue;
    }
    auto type = cast<TileType>(value.getType());
    int64_t count = hasMmaLayout(type) ? MmaLayout(type).registers()
                                       : blockedLayoutOf(type).registers();
    registers[value] = SmallVector<Value>(flat.take_front(count));
    flat = flat.drop_front(count);
  }
}

LogicalResult KernelEmitter::emitFor(scf::ForOp op) {
  LogicalResult result = success();
  auto body = [&](Value i, ValueRange carried) -> SmallVector<Value> {
    scalars.map(op.getInductionVar(), i);
    unflatten(op.getRegionIterArgs(), carried);
    result = emitBlock(*op.getBody());
    return failed(result) ? SmallVector<Value>(carried)
                          : flatten(op.getYieldedValues());
  };
  unflatten(op.getResults(),
            b.loop(scalar(op.getLowerBound()), scalar(op.getUpperBound()),
                   scalar(op.getStep()), flatten(op.getInitArgs()), body));
  return result;
}

LogicalResult KernelEmitter::emitIf(scf::IfOp op) {
  bool hasElse = !op.getElseRegion().empty();
  auto branch = scf::IfOp::create(b, flattenTypes(op.getResultTypes()),
                                  scalar(op.getCondition()),
                                  /*addThenBlock=*/true, hasElse);
  for (auto [from, to] : llvm::zip(op->getRegions(), branch->getRegions())) {
    if (from.empty())
      continue;
    OpBuilder::InsertionGuard guard(b);
    to.front().clear();
    b.setInsertionPointToEnd(&to.front());
    if (failed(emitBlock(from.front())))
      return failure();
    scf::YieldOp::create(b,
                         flatten(from.front().getTerminator()->getOperands()));
  }
  unflatten(op.getResults(), branch.getResults());
  return success();
}
