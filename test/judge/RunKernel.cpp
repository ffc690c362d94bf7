//===- RunKernel.cpp - runs a tile kernel on a processor or the emulator --===//
//
//   nsa-run-kernel MODULE TARGET FILE...
//
// Compiles the only kernel of a module, @kernel, for a processor
// ("x86-64-v3") or for GPUs, whose warpgroups multiply on "sm_90a", and runs
// its one program. A file holds the bytes of an argument, before and after.
// What the kernel reads or writes beside its arguments is an error.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tile/TileOps.h"
#include "lib/Support/Files.h"
#include "lib/Target/CPU/KernelCompiler.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/TileGPU/Passes.h"
#include "passes/TileToCPU/Passes.h"
#include "runtime/CPU/KernelLibrary.h"
#include "test/unit/Emulator/Emulator.h"

#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
using namespace nsa;

[[noreturn]] static void fail(const std::string &message) {
  llvm::errs() << "error: " << message << "\n";
  std::exit(1);
}

static void check(const Status &status) {
  if (!status)
    fail(status.message());
}

namespace {
/// An argument's memory: bytes before it must not change, and the page after it
/// cannot be read.
class Memory {
public:
  explicit Memory(const std::string &content) : count(content.size()) {
    size_t page = size_t(getpagesize()), own = llvm::alignTo(count, 64);
    size_t bytes = llvm::alignTo(own + 256, page);
    begin =
        static_cast<char *>(mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    end = begin + bytes;
    mprotect(end, page, PROT_NONE);
    std::fill(begin, end, fill);
    base = end - own;
    llvm::copy(content, base);
  }

  char *data() { return base; }
  size_t size() const { return count; }
  std::string content() const { return {base, count}; }
  bool isGuardIntact() const {
    auto isFill = [](char c) { return c == fill; };
    return std::all_of(begin, base, isFill) &&
           std::all_of(base + count, end, isFill);
  }

private:
  static constexpr char fill = 0x5a;

  size_t count;
  char *begin, *base, *end;
};
} // namespace

static void runOnCPU(ModuleOp module, const std::string &cpu,
                     std::vector<Memory> &memory) {
  CPUDescription description = llvm::cantFail(describeCPU(cpu));
  PassManager manager(module.getContext());
  buildTileToLLVMPipeline(manager, description.getVectorWidth());
  if (failed(manager.run(module)))
    fail("the kernel was not lowered");
  auto functions = module.getOps<LLVM::LLVMFuncOp>();
  FailureOr<CPUBinary> binary =
      compileKernels(module, llvm::to_vector(functions), description, 1);
  if (failed(binary))
    fail("the kernel was not compiled");
  Result<KernelLibrary> library = KernelLibrary::load(
      std::string_view(binary->image.data(), binary->image.size()));
  if (!library)
    fail(library.message());
  KernelFunction function = library->find("kernel");
  if (!function)
    fail("the library has no kernel");
  SmallVector<void *> pointers = llvm::map_to_vector(
      memory, [](Memory &argument) -> void * { return argument.data(); });
  function(pointers.data(), 0, 1);
}

static void runOnGPU(ModuleOp module, bool wgmma, size_t inputs,
                     std::vector<Memory> &memory) {
  PassManager manager(module.getContext());
  // Tiles are small here.
  buildTileToNVVMPipeline(manager, /*sharedLimit=*/232448, wgmma,
                          /*producerSums=*/0);
  if (failed(manager.run(module)))
    fail("the kernel was not lowered");
  std::string text;
  llvm::raw_string_ostream(text) << module;
  auto emulator = emulator::Emulator::parse(text);
  if (!emulator)
    fail(emulator.message());
  std::vector<emulator::Argument> arguments;
  arguments.reserve(memory.size());
  for (Memory &argument : memory)
    arguments.push_back({argument.data(), argument.size(),
                         /*isOutput=*/arguments.size() >= inputs,
                         /*isInput=*/true});
  check((*emulator)->launch("kernel", {}, arguments));
}

int main(int argc, char **argv) {
  if (argc < 4)
    fail("usage: nsa-run-kernel MODULE TARGET FILE...");
  StringRef target = argv[2];
  bool isGPU = target.starts_with("sm_"), wgmma = target == "sm_90a";
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, math::MathDialect, scf::SCFDialect,
                  tile::TileDialect>();
  OpPassManager lowering(ModuleOp::getOperationName());
  if (isGPU) {
    buildTileToNVVMPipeline(lowering, 0, wgmma);
  } else {
    registerKernelTranslations(registry);
    buildTileToLLVMPipeline(lowering);
  }
  lowering.getDependentDialects(registry);
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(argv[1], &context);
  auto kernel =
      module ? module->lookupSymbol<tile::KernelOp>("kernel") : nullptr;
  if (!kernel)
    fail("the module has no kernel");
  size_t inputs = kernel.getArgumentTypes().size() - kernel.getNumOutputs();

  std::vector<Memory> memory;
  for (int i = 3; i < argc; ++i) {
    Result<std::string> content = readFile(argv[i]);
    if (!content)
      fail(content.message());
    memory.emplace_back(*content);
  }
  if (isGPU)
    runOnGPU(*module, wgmma, inputs, memory);
  else
    runOnCPU(*module, target.str(), memory);
  for (auto [i, argument] : llvm::enumerate(memory)) {
    if (!argument.isGuardIntact())
      fail("the kernel has written beside argument " + std::to_string(i));
    check(writeFileAtomically(argv[3 + i], argument.content()));
  }
  return 0;
}
