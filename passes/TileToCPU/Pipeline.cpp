//===- Pipeline.cpp - tile kernels to the LLVM dialect --------------------===//

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "passes/TileToCPU/Passes.h"

using namespace mlir;

void nsa::buildTileToLLVMPipeline(OpPassManager &manager,
                                  unsigned vectorWidth) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addPass(createLoopInvariantCodeMotionPass());
  NSATileToCPUOptions options;
  options.vectorWidth = vectorWidth;
  manager.addPass(createNSATileToCPU(options));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createNSAExpandMath());
  manager.addPass(arith::createArithExpandOpsPass());
  manager.addPass(createCSEPass());
  manager.addPass(createSCFToControlFlowPass());
  manager.addPass(createConvertVectorToLLVMPass());
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createConvertControlFlowToLLVMPass());
  manager.addPass(createConvertFuncToLLVMPass());
  manager.addPass(createReconcileUnrealizedCastsPass());
}

namespace {
struct TileToLLVMOptions : PassPipelineOptions<TileToLLVMOptions> {
  Option<unsigned> vectorWidth{
      *this, "vector-width",
      llvm::cl::desc("elements of a vector register of f32"),
      llvm::cl::init(8)};
};
} // namespace

void nsa::registerTileToLLVMPipeline() {
  PassPipelineRegistration<TileToLLVMOptions>(
      "nsa-tile-to-llvm", "Lower tile kernels to the LLVM dialect",
      [](OpPassManager &manager, const TileToLLVMOptions &options) {
        buildTileToLLVMPipeline(manager, options.vectorWidth);
      });
}
