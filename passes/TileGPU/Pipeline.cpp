//===- Pipeline.cpp - tile kernels to the LLVM and NVVM dialects ----------===//

#include "dialects/Tile/TileOps.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileToCPU/Passes.h"

using namespace mlir;

void nsa::buildTileLayoutPipeline(OpPassManager &manager, bool wgmma) {
  auto &kernels = manager.nest<tile::KernelOp>();
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createLoopInvariantCodeMotionPass());
  kernels.addPass(createTileSimplify());
  NSAAssignLayoutsOptions layouts;
  layouts.wgmma = wgmma;
  manager.addPass(createNSAAssignLayouts(layouts));
  TileGPUAssignLayoutsOptions blocked;
  blocked.wgmma = wgmma;
  manager.addPass(createTileGPUAssignLayouts(blocked));
  manager.nest<tile::KernelOp>().addPass(createTileGPUPromoteToShared());
}

void nsa::buildLayoutToNVVMPipeline(OpPassManager &manager,
                                    uint64_t sharedLimit, bool wgmma,
                                    unsigned producerSums) {
  TileGPUAllocateSharedMemoryOptions memory;
  memory.sharedLimit = sharedLimit;
  memory.wgmma = wgmma;
  memory.producerSums = producerSums;
  manager.nest<tile::KernelOp>().addPass(
      createTileGPUAllocateSharedMemory(memory));
  manager.nest<tile::KernelOp>().addPass(createTileGPUPipeline());
  manager.nest<tile::KernelOp>().addPass(createTileGPUWarpSpecialize());
  manager.nest<tile::KernelOp>().addPass(createTileGPUInsertBarriers());
  manager.nest<tile::KernelOp>().addPass(createTileGPUVerifySynchronization());
  NSATileToNVVMOptions options;
  options.wgmma = wgmma;
  manager.addPass(createNSATileToNVVM(options));
  auto &functions = manager.nest<LLVM::LLVMFuncOp>();
  functions.addPass(createConvertTileGPUToNVVM());
  // Lowered kernels carry hundreds of scalars through their loops, and these
  // patterns compare every two of them; the lowering leaves none to remove.
  manager.addPass(createCanonicalizerPass(
      GreedyRewriteConfig(),
      {"(anonymous namespace)::RemoveDuplicateSuccessorInputUses",
       "(anonymous namespace)::MakeRegionBranchOpSuccessorInputsDead"}));
  manager.addPass(createNSAExpandMath());
  manager.addPass(arith::createArithExpandOpsPass());
  manager.addPass(createCSEPass());
  manager.addPass(createSCFToControlFlowPass());
  // Before control flow: code generation depends on the order of uses.
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createNSAControlFlowToLLVM());
  manager.addPass(createConvertNVVMToLLVMPass());
}

void nsa::buildTileToNVVMPipeline(OpPassManager &manager, uint64_t sharedLimit,
                                  bool wgmma, unsigned producerSums) {
  buildTileLayoutPipeline(manager, wgmma);
  buildLayoutToNVVMPipeline(manager, sharedLimit, wgmma, producerSums);
}

namespace {
struct TileToNVVMOptions : PassPipelineOptions<TileToNVVMOptions> {
  Option<uint64_t> sharedLimit{
      *this, "shared-limit",
      llvm::cl::desc("bytes of shared memory that a block may have"),
      llvm::cl::init(232448)};
  Option<bool> wgmma{*this, "wgmma",
                     llvm::cl::desc("warpgroups multiply where they can"),
                     llvm::cl::init(false)};
  Option<unsigned> producerSums{
      *this, "producer-sums",
      llvm::cl::desc("sums of a thread from which on a warpgroup copies for "
                     "those that multiply"),
      llvm::cl::init(nsa::kProducerSums)};
};
} // namespace

/// The upstream passes that a printed pipeline names.
static void registerUpstreamPasses() {
  registerLoopInvariantCodeMotion();
  registerPass([] { return arith::createArithExpandOpsPass(); });
  registerPass([] { return createSCFToControlFlowPass(); });
  registerPass([] { return createArithToLLVMConversionPass(); });
  registerPass([] { return createConvertMathToLLVMPass(); });
  registerPass([] { return createConvertNVVMToLLVMPass(); });
}

void nsa::registerTileToNVVMPipeline() {
  registerUpstreamPasses();
  PassPipelineRegistration<TileToNVVMOptions>(
      "nsa-tile-to-nvvm-llvm",
      "Lower tile kernels to the LLVM and NVVM dialects",
      [](OpPassManager &manager, const TileToNVVMOptions &options) {
        buildTileToNVVMPipeline(manager, options.sharedLimit, options.wgmma,
                                options.producerSums);
      });
}
