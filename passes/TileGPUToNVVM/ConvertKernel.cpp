//===- ConvertKernel.cpp - one tile kernel to threads of a block ----------===//
//
// Tiles are converted first, where loops and branches still carry them: what is
// known about coordinates holds as long as these are there. Then the kernel
// becomes a function, and its control flow carries registers.
//
//===----------------------------------------------------------------------===//

#include "passes/TileGPUToNVVM/ConvertKernel.h"
#include "dialects/Interfaces/PerformanceLints.h"
#include "dialects/TileGPU/TileGPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Patterns.h"
#include "nsa/Artifact/TensorMap.h"
#include "passes/TileGPU/GlobalAccesses.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/Patterns.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

static void addTileConversions(TypeConverter &types) {
  types.addConversion([](Type type) { return type; });
  types.addConversion([](MemRefType type) -> Type {
    return LLVM::LLVMPointerType::get(type.getContext(),
                                      unsigned(Space::Global));
  });
  // Users find where the buffer is.
  types.addConversion(
      [](tile_gpu::MemDescType, SmallVectorImpl<Type> &) -> LogicalResult {
        return success();
      });
  types.addConversion(
      [](TileType type, SmallVectorImpl<Type> &to) -> LogicalResult {
        if (hasMmaLayout(type) || tile_gpu::hasBlockedLayout(type))
          to.append(RegisterLayout(type).registers(),
                    RegisterLayout(type).registerType());
        return success();
      });
}

/// Casts between tiles and registers stay until control flow is converted; tile
/// operations are folded before.
static ConversionConfig getConfig() {
  ConversionConfig config;
  config.buildMaterializations = false;
  config.foldingMode = DialectConversionFoldingMode::Never;
  return config;
}

static LogicalResult convertTiles(KernelOp kernel, const TypeConverter &types) {
  TileBounds bounds(kernel);
  Block &body = kernel.getBody().front();
  ThreadBuilder b(kernel.getLoc(), &body, body.begin());
  // The prologue begins with these.
  b.threadId();
  b.sharedBase();
  b.scratchBase();
  ConversionTarget target(*kernel.getContext());
  target.markUnknownOpDynamicallyLegal([](Operation *op) {
    return isa<scf::SCFDialect>(op->getDialect()) || !hasTiles(op);
  });
  target.addIllegalDialect<TileDialect>();
  target.addLegalOp<KernelOp, ExtentOp, ReturnOp>();
  target.addIllegalOp<
      tile_gpu::AsyncCopyOp, tile_gpu::LocalStoreOp, tile_gpu::LocalViewOp,
      tile_gpu::LocalLoadOp, tile_gpu::IterationOp, tile_gpu::WarpIfOp,
      tile_gpu::YieldOp, tile_gpu::ToLanesOp, tile_gpu::FromLanesOp>();
  RewritePatternSet set(kernel.getContext());
  TilePatterns patterns{set, types, bounds};
  populateMemoryPatterns(patterns);
  populateCopyPatterns(patterns);
  populateLayoutPatterns(patterns);
  populateElementwisePatterns(patterns);
  populateReductionPatterns(patterns);
  populateDotPatterns(patterns);
  populateTopNPatterns(patterns);
  return applyPartialConversion(kernel, target, std::move(set), getConfig());
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

/// The register limit of a thread (maxnreg). Without one ptxas spills to run
/// more blocks at once. All that a thread can have, or a few
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

/// The parameters that describe tensors.
static void addTensorMaps(KernelOp kernel, LLVM::LLVMFuncOp func) {
  auto maps = kernel->getAttrOfType<ArrayAttr>(kTensorMapsAttr);
  if (!maps)
    return;
  Builder b(kernel.getContext());
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

/// One parameter for each argument, one for each tensor map, and the extents of
/// the launch if the kernel takes them. Alignment lets the code
/// generator vectorize accesses to neighbours that are in different tiles: the
/// cosine and the sine of an angle.
static LLVM::LLVMFuncOp createFunction(OpBuilder &b, KernelOp kernel) {
  MLIRContext *context = b.getContext();
  auto global = LLVM::LLVMPointerType::get(context, unsigned(Space::Global));
  SmallVector<Type> parameters(kernel.getNumArguments(), global);
  if (auto maps = kernel->getAttrOfType<ArrayAttr>(kTensorMapsAttr))
    parameters.append(maps.size(), LLVM::LLVMPointerType::get(context));
  if (!ExtentTable::of(kernel).empty())
    parameters.append(kNumExtents, b.getI64Type());
  auto type =
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), parameters);
  auto func =
      LLVM::LLVMFuncOp::create(b, kernel.getLoc(), kernel.getSymName(), type);
  for (BlockArgument argument : kernel.getArguments())
    func.setArgAttr(argument.getArgNumber(),
                    LLVM::LLVMDialect::getAlignAttrName(),
                    b.getI64IntegerAttr(getAlignment(argument)));
  addTensorMaps(kernel, func);
  return func;
}

static void setLaunchAttributes(KernelOp kernel, LLVM::LLVMFuncOp func) {
  Builder b(kernel.getContext());
  int64_t threads = getThreads(kernel);
  bool hasRoles = contains(kernel, llvm::IsaPred<tile_gpu::WarpSpecializeOp>);
  func->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  func->setAttr(
      NVVM::NVVMDialect::getReqntidAttrName(),
      b.getDenseI32ArrayAttr(
          {int32_t(threads + (hasRoles ? kProducerThreads : 0)), 1, 1}));
  if (hasMmaTiles(kernel) && !hasRoles)
    func->setAttr(NVVM::NVVMDialect::getMaxnregAttrName(),
                  b.getI32IntegerAttr(getRegisterLimit(kernel, threads)));
  func->setAttr(kSharedBytesAttr, kernel->getAttr(kSharedBytesAttr));
  addPerformanceLints(func, getPerformanceLints(kernel));
}

/// Moves the body of the kernel to the function.
static void moveBody(OpBuilder &b, KernelOp kernel, LLVM::LLVMFuncOp func) {
  Block *entry = func.addEntryBlock(b), *body = &kernel.getBody().front();
  b.setInsertionPointToStart(entry);
  for (BlockArgument argument : body->getArguments()) {
    auto cast = UnrealizedConversionCastOp::create(
        b, kernel.getLoc(), argument.getType(),
        entry->getArgument(argument.getArgNumber()));
    argument.replaceAllUsesWith(cast.getResult(0));
  }
  body->getTerminator()->erase();
  entry->getOperations().splice(entry->end(), body->getOperations());
  b.setInsertionPointToEnd(entry);
  LLVM::ReturnOp::create(b, kernel.getLoc(), ValueRange());
}

/// The registers that casts of tiles to registers and back pass through.
static void getRegisters(ValueRange values, SmallVectorImpl<Value> &registers) {
  for (Value value : values) {
    auto cast = value.getDefiningOp<UnrealizedConversionCastOp>();
    if (!cast) {
      registers.push_back(value);
      continue;
    }
    SmallVector<Value> all;
    getRegisters(cast.getInputs(), all);
    if (cast->getNumResults() == 1)
      llvm::append_range(registers, all);
    else
      registers.push_back(all[llvm::cast<OpResult>(value).getResultNumber()]);
  }
}

/// Unlike reconcile-unrealized-casts, also where a register of one tile was
/// mapped to another tile of one register.
static void removeCasts(LLVM::LLVMFuncOp func) {
  SmallVector<UnrealizedConversionCastOp> casts;
  func.walk([&](UnrealizedConversionCastOp cast) { casts.push_back(cast); });
  for (UnrealizedConversionCastOp cast : casts) {
    SmallVector<Value> registers;
    getRegisters(cast.getInputs(), registers);
    if (registers.size() == cast->getNumResults() &&
        TypeRange(ValueRange(registers)) == cast->getResultTypes())
      cast->replaceAllUsesWith(registers);
  }
  for (UnrealizedConversionCastOp cast : llvm::reverse(casts))
    if (cast->use_empty())
      cast->erase();
}

/// What is left: control flow, roles and the extents of the launch.
static LogicalResult convertFunction(LLVM::LLVMFuncOp func,
                                     const TypeConverter &types) {
  MLIRContext *context = func.getContext();
  ConversionTarget target(*context);
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  target.addIllegalOp<ExtentOp, tile_gpu::MBarrierInitOp,
                      tile_gpu::MBarrierWaitOp, tile_gpu::MBarrierExpectOp,
                      tile_gpu::MBarrierArriveOp, tile_gpu::TmaLoadOp,
                      tile_gpu::CopyIfOp, tile_gpu::WarpSpecializeOp>();
  RewritePatternSet patterns(context);
  scf::populateSCFStructuralTypeConversionsAndLegality(types, patterns, target);
  populateRolePatterns(patterns);
  if (failed(applyPartialConversion(func, target, std::move(patterns),
                                    getConfig())))
    return failure();
  func.walk([](Operation *op) {
    if (isa<tile_gpu::AllocOp, tile_gpu::MBarriersOp>(op))
      op->erase();
  });
  removeCasts(func);
  movePrologue(func);
  return success();
}

FailureOr<LLVM::LLVMFuncOp> nsa::cuda::convertKernel(KernelOp kernel) {
  TypeConverter types;
  addTileConversions(types);
  OpBuilder b(kernel);
  LLVM::LLVMFuncOp func = createFunction(b, kernel);
  setLaunchAttributes(kernel, func);
  if (failed(convertTiles(kernel, types)))
    return failure();
  moveBody(b, kernel, func);
  if (failed(convertFunction(func, types)))
    return failure();
  return func;
}
