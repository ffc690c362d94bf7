//===- OutlinedKernels.cpp - kernels on their way to code -----------------===//

#include "lib/Target/OutlinedKernels.h"
#include "dialects/Interfaces/PerformanceLints.h"
#include "dialects/Tile/TileOps.h"
#include "lib/Target/CUDA/CUDAChip.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using namespace nsa;

std::string nsa::getUnusedSymbol(ModuleOp module, StringRef name) {
  if (!module.lookupSymbol(name))
    return name.str();
  unsigned count = 0;
  return SymbolTable::generateSymbolName<16>(
             name, [&](StringRef name) { return module.lookupSymbol(name); },
             count)
      .str()
      .str();
}

/// Puts the description of a kernel whose code does not exist yet in its place.
static rt::KernelOp replaceKernel(tile::KernelOp kernel) {
  OpBuilder builder(kernel);
  auto number = [&](StringRef name) {
    return kernel->getAttrOfType<IntegerAttr>(name);
  };
  auto replaced = rt::KernelOp::create(
      builder, kernel.getLoc(), kernel.getSymNameAttr(),
      kernel.getFunctionTypeAttr(), kernel.getGridAttr(),
      kernel.getNumOutputsAttr(), builder.getI64IntegerAttr(0),
      builder.getI64IntegerAttr(0), number("flops"), number("bytes"),
      /*performanceLints=*/ArrayAttr());
  for (StringRef name : {kSelectBlocksAttr, kExtentsAttr, kGridExtentsAttr,
                         kScheduleAttr, kLastScheduleAttr})
    if (Attribute attribute = kernel->getAttr(name))
      replaced->setAttr(name, attribute);
  return replaced;
}

static gpu::GPUModuleOp createGPUModule(OpBuilder &builder, ModuleOp module,
                                        const CUDAChip &chip) {
  Attribute target = NVVM::NVVMTargetAttr::get(
      module.getContext(), /*optLevel=*/2, "nvptx64-nvidia-cuda", chip.name);
  return gpu::GPUModuleOp::create(builder, module.getLoc(),
                                  getUnusedSymbol(module, "device"), target);
}

Operation *nsa::outlineKernels(ModuleOp module, const CUDAChip *chip) {
  auto found = llvm::to_vector(module.getOps<tile::KernelOp>());
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  Operation *outlined = nullptr;
  if (chip)
    outlined = createGPUModule(builder, module, *chip);
  else
    outlined = ModuleOp::create(builder, module.getLoc());
  Block &body = outlined->getRegion(0).front();
  for (tile::KernelOp kernel : found) {
    replaceKernel(kernel);
    kernel->moveBefore(&body, body.end());
  }
  return outlined;
}

OutlinedKernels::OutlinedKernels(ModuleOp module)
    : sources(outlineKernels(module)), kernels(module.getOps<rt::KernelOp>()) {}

OutlinedKernels::OutlinedKernels(gpu::GPUModuleOp sources)
    : sources(sources),
      kernels(sources->getParentOfType<ModuleOp>().getOps<rt::KernelOp>()) {}

FailureOr<SmallVector<LLVM::LLVMFuncOp>> OutlinedKernels::getFunctions() {
  SymbolTable symbols(sources);
  SmallVector<LLVM::LLVMFuncOp> functions;
  for (rt::KernelOp kernel : kernels) {
    auto function = symbols.lookup<LLVM::LLVMFuncOp>(kernel.getSymName());
    if (!function)
      return kernel.emitOpError("was not lowered to a function");
    functions.push_back(function);
    if (auto paths = function->getAttrOfType<ArrayAttr>(kPerformanceLintsAttr))
      kernel.setPerformanceLintsAttr(paths);
  }
  return functions;
}
