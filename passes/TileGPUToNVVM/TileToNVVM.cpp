//===- TileToNVVM.cpp - lower tile kernels to CUDA blocks -----------------===//

#include "dialects/Interfaces/LaunchOverlap.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/ConvertKernel.h"
#include "passes/TileGPUToNVVM/ThreadBuilder.h"

namespace nsa {
#define GEN_PASS_DEF_NSATILETONVVM
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

/// A buffer that is read is filled before, once, in the same block.
static LogicalResult verifyView(LocalViewOp view) {
  Value buffer = view.getBuffer();
  // Of several stages, loops copy ahead to one while they read another; what a
  // producer loads is waited for.
  if (view.getStage() ||
      llvm::any_of(buffer.getUsers(), llvm::IsaPred<TmaLoadOp>))
    return success();
  auto fills = llvm::make_filter_range(
      buffer.getUsers(), llvm::IsaPred<AsyncCopyOp, LocalStoreOp>);
  if (llvm::hasSingleElement(fills) &&
      (*fills.begin())->getBlock() == view->getBlock() &&
      (*fills.begin())->isBeforeInBlock(view))
    return success();
  return view.emitOpError(
      "reads no buffer of its kernel that its block has filled once");
}

/// Whether threads can run an operation.
static bool hasLowering(Operation *op) {
  if (isa<TileDialect, TileGPUDialect>(op->getDialect()) ||
      isa<scf::ForOp, scf::IfOp, scf::YieldOp, arith::SelectOp>(op))
    return true;
  return isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
         !hasTiles(op);
}

/// The layout of a line determines its copy.
static LogicalResult verifyCopy(AsyncCopyOp copy) {
  if (!copy.isLine() ||
      llvm::any_of(copy.getBuffer().getUsers(), llvm::IsaPred<LocalLoadOp>))
    return success();
  return copy.emitOpError("copies a line that nothing loads");
}

static LogicalResult verifyLoad(TmaLoadOp load) {
  auto kernel = load->getParentOfType<KernelOp>();
  auto maps = kernel->getAttrOfType<ArrayAttr>(nsa::kTensorMapsAttr);
  size_t count = maps ? maps.size() : 0;
  if (load.getMap() >= count)
    return load.emitOpError("loads by tensor map ")
           << load.getMap() << " of a kernel that has " << count;
  if (!load.getWarps())
    return success();
  auto map = cast<nsa::rt::TensorMapAttr>(maps[load.getMap()]);
  int64_t columns =
      load.getBuffer().getType().getShape()[1] / map.getBox().asArrayRef()[0];
  if (int64_t(load.getWarps()->size()) == columns)
    return success();
  return load.emitOpError("has warps for ")
         << load.getWarps()->size() << " of " << columns << " columns of boxes";
}

static LogicalResult verifyProduct(DotOp dot, bool hasWgmma) {
  if (!hasMmaLayout(dot.getType()))
    return success();
  if (!dot->getAttrOfType<MmaAttr>(kMmaAttr))
    return dot.emitOpError("has no ")
           << kMmaAttr << ", which tile-gpu-assign-layouts gives it";
  if (!isWgmma(dot))
    return success();
  if (!hasWgmma)
    return dot.emitOpError("has ") << dot->getAttrOfType<MmaAttr>(kMmaAttr)
                                   << ", but the target has version 2 only";
  if (std::string obstacle = findWgmmaObstacle(dot); !obstacle.empty())
    return dot.emitOpError("cannot have ")
           << dot->getAttrOfType<MmaAttr>(kMmaAttr) << ": " << obstacle;
  return success();
}

/// Tiles in shared memory are views of buffers, operations find where these and
/// mbarriers are, and loops that copy ahead are expanded.
static LogicalResult verifyOperation(Operation *op, bool hasWgmma) {
  if (!hasLowering(op))
    return op->emitOpError("has no lowering to CUDA");
  if (failed(verifyBufferOperands(op)))
    return failure();
  if (auto view = dyn_cast<LocalViewOp>(op))
    return verifyView(view);
  if (auto copy = dyn_cast<AsyncCopyOp>(op))
    return verifyCopy(copy);
  if (auto load = dyn_cast<TmaLoadOp>(op))
    return verifyLoad(load);
  if (auto dot = dyn_cast<DotOp>(op))
    return verifyProduct(dot, hasWgmma);
  if (op->hasAttr(kPipelineAttr))
    return op->emitError("has ")
           << kPipelineAttr
           << ", which tile-gpu-pipeline or tile-gpu-warp-specialize expands";
  for (Type type : op->getResultTypes())
    if (isShared(type))
      return op->emitOpError("makes ")
             << type
             << " without a buffer, which tile-gpu-promote-to-shared makes";
  return success();
}

static LogicalResult verifyKernel(KernelOp kernel, bool hasWgmma) {
  if (failed(verifyHasThreads(kernel)))
    return failure();
  WalkResult result = kernel.walk([&](Operation *op) -> WalkResult {
    return op == kernel ? success() : verifyOperation(op, hasWgmma);
  });
  return failure(result.wasInterrupted() || failed(verifyAllocated(kernel)));
}

/// Grids have 2^31 - 1 blocks along x, 65,535 along y and z. Those that follow
/// from the extents of a call are checked there.
static LogicalResult verifyGrid(KernelOp kernel) {
  for (unsigned axis : {1u, 2u})
    if (axis < kernel.getGrid().size() && kernel.getGrid()[axis] > 65535 &&
        nsa::getGridExtent(kernel, axis).isConstant())
      return kernel.emitError("kernel @")
             << kernel.getSymName() << " has " << kernel.getGrid()[axis]
             << " programs along axis " << axis
             << " of its grid, more than the 65535 that CUDA has";
  return success();
}

namespace {
struct TileToNVVM : nsa::impl::NSATileToNVVMBase<TileToNVVM> {
  using NSATileToNVVMBase::NSATileToNVVMBase;

  void runOnOperation() override {
    Operation *module = getOperation();
    SmallVector<KernelOp> kernels;
    module->walk([&](KernelOp kernel) { kernels.push_back(kernel); });
    if (kernels.empty())
      return;
    // The size comes from the launch; the alignment is what copies of whole
    // tiles need.
    auto builder = OpBuilder::atBlockBegin(kernels.front()->getBlock());
    auto bytes = LLVM::LLVMArrayType::get(builder.getI8Type(), 0);
    LLVM::GlobalOp::create(builder, module->getLoc(), bytes,
                           /*isConstant=*/false, LLVM::Linkage::External,
                           kSharedMemory, Attribute(),
                           /*alignment=*/1024, unsigned(Space::Shared));
    for (KernelOp kernel : kernels) {
      bool hasDots = contains(kernel, llvm::IsaPred<DotOp>);
      if (failed(verifyGrid(kernel)) || failed(verifyKernel(kernel, wgmma)))
        return signalPassFailure();
      FailureOr<LLVM::LLVMFuncOp> function = convertKernel(kernel);
      if (failed(function))
        return signalPassFailure();
      if (auto constants =
              kernel->getAttrOfType<DenseI64ArrayAttr>(nsa::kLaunchOverlapAttr);
          constants && wgmma)
        overlapLaunches(*function, constants.asArrayRef(),
                        kernel->hasAttr(nsa::kLateDependentsAttr));
      if (auto pairs =
              kernel->getAttrOfType<DenseI64ArrayAttr>(nsa::kPrefetchAttr);
          pairs && wgmma)
        prefetchArguments(*function, pairs.asArrayRef(), kernel.getGrid());
      if (hasDots)
        (*function)->setAttr(nsa::kMultipliesAttr, builder.getUnitAttr());
      kernel.erase();
    }
  }
};
} // namespace
