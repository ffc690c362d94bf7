//===- ControlFlowToLLVM.cpp - branches of a gpu.module -------------------===//

#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "passes/TileGPU/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_NSACONTROLFLOWTOLLVM
#include "passes/TileGPU/Passes.h.inc"
} // namespace nsa

using namespace mlir;

namespace {
struct ControlFlowToLLVM
    : nsa::impl::NSAControlFlowToLLVMBase<ControlFlowToLLVM> {
  void runOnOperation() override {
    LLVMTypeConverter types(&getContext());
    RewritePatternSet patterns(&getContext());
    cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
    LLVMConversionTarget target(getContext());
    target.addIllegalDialect<cf::ControlFlowDialect>();
    if (failed(applyPartialConversion(getOperation(), target,
                                      std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
