//===- PTXEmitter.cpp - LLVM IR to PTX ------------------------------------===//

#include "lib/Target/CUDA/PTXEmitter.h"
#include "lib/Target/CodeGen.h"
#include "lib/Target/ObjectCache.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/Path.h"
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

static bool hasLineInfo(const Module &module) {
  return !module.debug_compile_units().empty();
}

static Expected<std::unique_ptr<TargetMachine>>
createMachine(const nsa::CUDAChip &chip, const Module &module) {
  initializeNVPTX();
  Triple triple(targetTriple);
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return createStringError("no code generator for " + targetTriple + ": " +
                             error);
  // The first version that has inlined_at is 7.2.
  StringRef feature = chip.ptxFeature;
  if (hasLineInfo(module))
    feature = std::max<StringRef>(feature, "+ptx72");
  std::unique_ptr<TargetMachine> machine(target->createTargetMachine(
      triple, chip.architecture, feature, TargetOptions(), Reloc::PIC_,
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

/// Says where lines are inlined, which LLVM 22 leaves out of .loc, as ptxas
/// takes it: with the name of a function, and by a line that has been before.
/// What .loc refers to goes before the kernels, so that each can be
/// assembled alone. Labels go: nothing refers to them, but for ptxas blocks end
/// there, which changes the machine code.
static std::string finishLineInfo(StringRef ptx, const Module &module) {
  size_t end = std::min(ptx.find("\t.section\t.debug"), ptx.size());
  StringRef tables = ptx.substr(end);
  StringMap<StringRef> files;
  for (StringRef line : split(tables, '\n'))
    if (line.consume_front("\t.file\t"))
      files[line.split(' ').second.trim('"')] = line.split(' ').first;
  auto write = [&](const DILocation *loc) {
    SmallString<128> path(loc->getDirectory());
    sys::path::append(path, loc->getFilename());
    return ("\t.loc\t" + files.lookup(path) + " " + Twine(loc->getLine()) +
            " " + Twine(loc->getColumn()))
        .str();
  };
  StringMap<std::string> callers;
  for (const Function &function : module)
    for (const Instruction &op : instructions(function))
      if (const DILocation *loc = op.getDebugLoc(); loc && loc->getInlinedAt())
        callers[write(loc)] = write(loc->getInlinedAt());
  std::string text;
  raw_string_ostream stream(text);
  StringSet<> said;
  for (StringRef line : split(ptx.take_front(end).drop_back(), '\n')) {
    if (line.starts_with("$L__tmp") || line.starts_with("$L__func_"))
      continue;
    if (line.starts_with("\t// .globl"))
      said.clear();
    std::string caller = callers.lookup(line);
    if (!caller.empty() && said.insert(caller).second)
      stream << caller << "\n";
    stream << line;
    if (StringRef place = caller; place.consume_front("\t.loc\t"))
      stream << ", function_name $L__tile, inlined_at " << place;
    stream << "\n";
    if (line.starts_with(".address_size"))
      stream << tables << "\t.section\t.debug_str\t{ $L__tile: .b8 "
             << "116, 105, 108, 101, 0 }\n";
  }
  return text;
}

Expected<std::string>
nsa::emitPTX(Module &module, const CUDAChip &chip,
             function_ref<void(const Module &)> onOptimized,
             function_ref<void(const std::string &)> warn) {
  std::string errors;
  module.getContext().setDiagnosticHandler(
      std::make_unique<ErrorCollector>(errors));
  Expected<std::unique_ptr<TargetMachine>> machine =
      createMachine(chip, module);
  if (!machine)
    return machine.takeError();
  module.setTargetTriple((*machine)->getTargetTriple());
  module.setDataLayout((*machine)->createDataLayout());
  auto generate = [&]() -> Expected<std::string> {
    optimizeModule(module, **machine, /*unroll=*/true,
                   /*forwardStores=*/false);
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
    return hasLineInfo(module) ? finishLineInfo(text, module)
                               : std::string(text);
  };
  if (onOptimized)
    return generate();
  return generateOnce(module, (chip.architecture + " " + chip.ptxFeature).str(),
                      generate, warn);
}
