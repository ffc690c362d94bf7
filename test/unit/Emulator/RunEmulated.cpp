//===- RunEmulated.cpp - kernels for a GPU on the emulator ----------------===//

#include "mlir/Pass/PassManager.h"
#include "passes/Conversion/TileToNVVM/Passes.h"
#include "test/unit/Emulator/Emulator.h"
#include "test/unit/TileToCPU/KernelTest.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::test;

#ifdef NSA_TEST_WGMMA
static constexpr bool wgmma = true;
#else
static constexpr bool wgmma = false;
#endif
static constexpr uint64_t sharedLimit = 232448;

void nsa::test::registerTargetDialects(DialectRegistry &registry) {
  OpPassManager lowering(ModuleOp::getOperationName());
  buildTileToNVVMPipeline(lowering, sharedLimit, wgmma);
  lowering.getDependentDialects(registry);
}

void nsa::test::runOnTarget(ModuleOp module, const KernelCase &kernelCase,
                            ArrayRef<KernelArgument> arguments) {
  PassManager manager(module.getContext());
  // Tiles are small here.
  buildTileToNVVMPipeline(manager, sharedLimit, wgmma, /*producerSums=*/0);
  ASSERT_TRUE(succeeded(manager.run(module)));
  std::string text;
  llvm::raw_string_ostream(text) << module;
  auto emulator = emulator::Emulator::parse(text);
  ASSERT_TRUE(bool(emulator)) << emulator.message();
  std::vector<emulator::Argument> memory;
  for (const KernelArgument &argument : arguments)
    memory.push_back({argument.data, argument.bytes, argument.isOutput,
                      /*isInput=*/true});
  emulator::Dim3 grid{uint32_t(kernelCase.grid[0]),
                      uint32_t(kernelCase.grid[1]),
                      uint32_t(kernelCase.grid[2])};
  Status status = (*emulator)->launch("kernel", grid, memory);
  ASSERT_TRUE(status.ok()) << status.message() << "\n" << text;
}
