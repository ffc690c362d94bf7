//===- RunOnCPU.cpp - kernels as machine code of this processor -----------===//

#include "lib/Target/CPU/KernelCompiler.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Conversion/TileToCPU/Passes.h"
#include "test/unit/TileToCPU/KernelTest.h"
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
using namespace nsa;
using namespace nsa::test;

namespace {
using Function = void (*)(void *const *, int64_t, int64_t);

/// A shared object in memory.
class Library {
public:
  explicit Library(ArrayRef<char> image) {
    descriptor = memfd_create("kernel", 0);
    bool written = write(descriptor, image.data(), image.size()) ==
                   static_cast<ssize_t>(image.size());
    std::string path = "/proc/self/fd/" + std::to_string(descriptor);
    handle = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  }
  ~Library() {
    if (handle)
      dlclose(handle);
    close(descriptor);
  }
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;

  Function find(const char *symbol) const {
    return handle ? reinterpret_cast<Function>(dlsym(handle, symbol)) : nullptr;
  }

private:
  int descriptor;
  void *handle;
};
} // namespace

static FailureOr<CPUBinary> compile(ModuleOp module, const std::string &cpu) {
  CPUDescription description = cantFail(describeCPU(cpu));
  PassManager manager(module.getContext());
  buildTileToLLVMPipeline(manager, description.getVectorWidth());
  if (failed(manager.run(module)))
    return failure();
  auto functions = module.getOps<LLVM::LLVMFuncOp>();
  return compileKernels(module, llvm::to_vector(functions), description, 1);
}

void nsa::test::registerTargetDialects(DialectRegistry &registry) {
  registerKernelTranslations(registry);
  OpPassManager lowering(ModuleOp::getOperationName());
  buildTileToLLVMPipeline(lowering);
  lowering.getDependentDialects(registry);
}

void nsa::test::runOnTarget(ModuleOp module, const KernelCase &kernelCase,
                            ArrayRef<KernelArgument> arguments) {
  FailureOr<CPUBinary> binary = compile(module, kernelCase.cpu);
  ASSERT_TRUE(succeeded(binary));
  Library library(binary->image);
  Function function = library.find("kernel");
  ASSERT_TRUE(function);
  std::vector<void *> pointers;
  for (const KernelArgument &argument : arguments)
    pointers.push_back(argument.data);
  int64_t programs = 1;
  for (int32_t extent : kernelCase.grid)
    programs *= extent;
  // In two calls, as two threads would share the grid.
  function(pointers.data(), 0, programs / 2);
  function(pointers.data(), programs / 2, programs);
}
