//===- PTXEmitter.cpp - LLVM IR to PTX ------------------------------------===//

#include "lib/Target/CUDA/PTXEmitter.h"
#include "lib/Target/CodeGen.h"
#include "lib/Target/ObjectCache.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"
#include <mutex>

using namespace llvm;

static constexpr StringLiteral targetTriple = "nvptx64-nvidia-cuda";

static void initializeNVPTX() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

static Expected<std::unique_ptr<TargetMachine>>
createMachine(const nsa::CUDAChip &chip) {
  initializeNVPTX();
  Triple triple(targetTriple);
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return createStringError("no code generator for " + targetTriple + ": " +
                             error);
  std::unique_ptr<TargetMachine> machine(target->createTargetMachine(
      triple, chip.architecture, chip.ptxFeature, TargetOptions(), Reloc::PIC_,
      std::nullopt, CodeGenOptLevel::Aggressive));
  if (!machine)
    return createStringError("no target machine for " + chip.architecture);
  return machine;
}

/// There is no library to link with on a GPU.
static Error checkSymbols(const Module &module) {
  for (const Function &function : module)
    if (function.isDeclaration() && !function.isIntrinsic() &&
        !function.use_empty())
      return createStringError("undefined function '" + function.getName() +
                               "'");
  return Error::success();
}

Expected<std::string>
nsa::emitPTX(Module &module, const CUDAChip &chip,
             function_ref<void(const Module &)> onOptimized,
             function_ref<void(const std::string &)> warn) {
  std::string errors;
  module.getContext().setDiagnosticHandler(
      std::make_unique<ErrorCollector>(errors));
  Expected<std::unique_ptr<TargetMachine>> machine = createMachine(chip);
  if (!machine)
    return machine.takeError();
  module.setTargetTriple((*machine)->getTargetTriple());
  module.setDataLayout((*machine)->createDataLayout());
  auto generate = [&]() -> Expected<std::string> {
    optimizeModule(module, **machine, /*unroll=*/true);
    if (Error error = checkSymbols(module))
      return error;
    if (onOptimized)
      onOptimized(module);
    SmallString<0> text;
    raw_svector_ostream stream(text);
    legacy::PassManager passes;
    if ((*machine)->addPassesToEmitFile(passes, stream, /*DwoOut=*/nullptr,
                                        CodeGenFileType::AssemblyFile))
      return createStringError("the target machine cannot emit PTX");
    passes.run(module);
    if (!errors.empty())
      return createStringError(errors);
    return std::string(text);
  };
  if (onOptimized)
    return generate();
  return generateOnce(module, (chip.architecture + " " + chip.ptxFeature).str(),
                      generate, warn);
}
