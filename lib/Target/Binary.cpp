//===- Binary.cpp - kernels of a module to machine code -------------------===//

#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"
#include "lib/Support/Hash.h"
#include "lib/Target/CPU/KernelCompiler.h"
#include "lib/Target/OutlinedKernels.h"
#include "lib/Target/Passes.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Pass/PassManager.h"
#include "nsa/Artifact/Format.h"
#include "passes/TileToCPU/Passes.h"

#define DEBUG_TYPE "nsa-binary"

namespace nsa {
#define GEN_PASS_DEF_BINARY
#include "lib/Target/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
class BinaryPass : public nsa::impl::BinaryBase<BinaryPass> {
public:
  using BinaryBase::BinaryBase;
  BinaryPass(const BinaryOptions &options, std::shared_ptr<CPUBinary> result)
      : BinaryBase(options), result(std::move(result)) {}

  void getDependentDialects(DialectRegistry &registry) const override {
    BinaryBase::getDependentDialects(registry);
    registerKernelTranslations(registry);
    getLowering().getDependentDialects(registry);
  }

  void runOnOperation() override;

private:
  static OpPassManager getLowering(unsigned vectorWidth = 8) {
    OpPassManager lowering(ModuleOp::getOperationName());
    buildTileToLLVMPipeline(lowering, vectorWidth);
    return lowering;
  }

  FailureOr<CPUBinary> compile(OutlinedKernels &outlined);

  std::shared_ptr<CPUBinary> result;
};
} // namespace

static void describeBinary(ModuleOp module, const CPUBinary &binary) {
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  uint64_t hash = hashBytes(binary.image.data(), binary.image.size());
  rt::BinaryOp::create(builder, module.getLoc(),
                       getUnusedSymbol(module, "kernels"),
                       artifact::objectsFormat, binary.cpu.name,
                       binary.image.size(), toHex(hash));
}

/// Lowers the kernels and compiles them, in their order.
FailureOr<CPUBinary> BinaryPass::compile(OutlinedKernels &outlined) {
  llvm::Expected<CPUDescription> description = describeCPU(cpu);
  if (!description)
    return getOperation().emitError(llvm::toString(description.takeError()));
  OpPassManager lowering = getLowering(description->getVectorWidth());
  if (failed(runPipeline(lowering, outlined.getSources())))
    return failure();
  FailureOr<SmallVector<LLVM::LLVMFuncOp>> functions = outlined.getFunctions();
  if (failed(functions))
    return failure();
  return compileKernels(cast<ModuleOp>(outlined.getSources()), *functions,
                        *description, threads, saveKernels);
}

void BinaryPass::runOnOperation() {
  ModuleOp module = getOperation();
  if (module.getOps<tile::KernelOp>().empty())
    return markAllAnalysesPreserved();
  OutlinedKernels outlined(module);
  ArrayRef<rt::KernelOp> kernels = outlined.getKernels();
  FailureOr<CPUBinary> binary = compile(outlined);
  if (failed(binary))
    return signalPassFailure();

  for (auto [described, code] : llvm::zip_equal(kernels, binary->kernels)) {
    rt::KernelOp kernel = described;
    kernel.setCodeBytes(code.codeBytes);
    kernel.setStackBytes(code.stackBytes);
  }
  describeBinary(module, *binary);
  numKernels += kernels.size();
  remark::analysis(module.getLoc(),
                   remark::RemarkOpts::name("Code").category(DEBUG_TYPE))
      << remark::metric("Kernels", kernels.size())
      << remark::metric("Bytes", binary->image.size());
  if (result)
    *result = std::move(*binary);
}

std::unique_ptr<Pass> nsa::createBinary(const BinaryOptions &options,
                                        std::shared_ptr<CPUBinary> result) {
  return std::make_unique<BinaryPass>(options, std::move(result));
}
