//===- Binary.cpp - kernels of a module to machine code -------------------===//

#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"
#include "lib/Support/Hash.h"
#include "lib/Target/CPU/KernelCompiler.h"
#include "lib/Target/Passes.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Pass/PassManager.h"
#include "nsa/Artifact/Format.h"
#include "passes/Conversion/TileToCPU/Passes.h"

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

  FailureOr<CPUBinary> compile(ArrayRef<rt::KernelOp> kernels,
                               ModuleOp sources);

  std::shared_ptr<CPUBinary> result;
};
} // namespace

/// Puts the description of a kernel whose code does not exist yet in its place.
static rt::KernelOp replaceKernel(tile::KernelOp kernel) {
  OpBuilder builder(kernel);
  auto number = [&](StringRef name) {
    return kernel->getAttrOfType<IntegerAttr>(name);
  };
  return rt::KernelOp::create(
      builder, kernel.getLoc(), kernel.getSymNameAttr(),
      kernel.getFunctionTypeAttr(), kernel.getGridAttr(),
      kernel.getNumOutputsAttr(), builder.getI64IntegerAttr(0),
      builder.getI64IntegerAttr(0), number("flops"), number("bytes"),
      /*slow_paths=*/ArrayAttr());
}

/// Hands on what the lowering says about the functions.
static void noteSlowPaths(ArrayRef<rt::KernelOp> kernels,
                          ArrayRef<LLVM::LLVMFuncOp> functions) {
  for (auto [kernel, function] : llvm::zip_equal(kernels, functions))
    if (auto names = function->getAttrOfType<ArrayAttr>(kSlowPathsAttr)) {
      rt::KernelOp described = kernel;
      described.setSlowPathsAttr(names);
    }
}

static void describeBinary(ModuleOp module, const CPUBinary &binary) {
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  uint64_t hash = hashBytes(binary.image.data(), binary.image.size());
  rt::BinaryOp::create(builder, module.getLoc(), "kernels", artifact::elfFormat,
                       binary.cpu.name, binary.image.size(), toHex(hash));
}

/// Lowers the kernels in `sources` and compiles them, in the order of
/// `kernels`.
FailureOr<CPUBinary> BinaryPass::compile(ArrayRef<rt::KernelOp> kernels,
                                         ModuleOp sources) {
  llvm::Expected<CPUDescription> description = describeCPU(cpu);
  if (!description)
    return getOperation().emitError(llvm::toString(description.takeError()));
  OpPassManager lowering = getLowering(description->getVectorWidth());
  if (failed(runPipeline(lowering, sources)))
    return failure();
  SymbolTable symbols(sources);
  SmallVector<LLVM::LLVMFuncOp> functions;
  for (rt::KernelOp kernel : kernels) {
    auto function = symbols.lookup<LLVM::LLVMFuncOp>(kernel.getSymName());
    if (!function)
      return kernel.emitOpError("was not lowered to a function");
    functions.push_back(function);
  }
  noteSlowPaths(kernels, functions);
  return compileKernels(sources, functions, *description, threads);
}

void BinaryPass::runOnOperation() {
  ModuleOp module = getOperation();
  auto kernelRange = module.getOps<tile::KernelOp>();
  SmallVector<tile::KernelOp> sources(kernelRange.begin(), kernelRange.end());
  if (sources.empty())
    return markAllAnalysesPreserved();

  // The kernels move into a module of their own, which goes when they are
  // machine code.
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto nested = ModuleOp::create(builder, module.getLoc());
  SmallVector<rt::KernelOp> kernels;
  for (tile::KernelOp source : sources) {
    kernels.push_back(replaceKernel(source));
    source->moveBefore(nested.getBody(), nested.getBody()->end());
  }
  FailureOr<CPUBinary> binary = compile(kernels, nested);
  nested.erase();
  if (failed(binary))
    return signalPassFailure();

  for (auto [kernel, code] : llvm::zip_equal(kernels, binary->kernels)) {
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
