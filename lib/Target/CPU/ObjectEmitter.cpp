//===- ObjectEmitter.cpp - LLVM IR to a relocatable object ----------------===//

#include "lib/Target/CPU/ObjectEmitter.h"
#include "lib/Target/CodeGen.h"
#include "lib/Target/KernelFiles.h"
#include "lib/Target/ObjectCache.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include <mutex>

using namespace llvm;

static constexpr StringLiteral targetTriple = "x86_64-unknown-linux-gnu";

// Symbols that every process that loads kernels provides.
static constexpr StringLiteral allowedSymbols[] = {"memcpy", "memmove",
                                                   "memset"};

static void initializeX86() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
  });
}

namespace {
/// Also notes the largest frame.
struct DiagnosticCollector : nsa::ErrorCollector {
  DiagnosticCollector(std::string &errors, uint64_t &stackBytes)
      : ErrorCollector(errors), stackBytes(stackBytes) {}

  bool handleDiagnostics(const DiagnosticInfo &info) override {
    if (info.getKind() != DK_StackSize)
      return ErrorCollector::handleDiagnostics(info);
    auto &stack = static_cast<const DiagnosticInfoStackSize &>(info);
    stackBytes = std::max(stackBytes, stack.getStackSize());
    return true;
  }

  uint64_t &stackBytes;
};
} // namespace

static Expected<std::unique_ptr<TargetMachine>>
createMachine(const nsa::CPUDescription &cpu) {
  initializeX86();
  Triple triple(targetTriple);
  std::string error;
  const Target *target = TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return createStringError("no code generator for " + targetTriple + ": " +
                             error);
  TargetOptions options;
  options.FunctionSections = true;
  options.DataSections = true;
  std::unique_ptr<TargetMachine> machine(target->createTargetMachine(
      triple, cpu.base, cpu.getFeatureString(), options, Reloc::PIC_,
      CodeModel::Small, CodeGenOptLevel::Default));
  if (!machine)
    return createStringError("no target machine for " + cpu.name);
  return machine;
}

/// Leaves `symbol` as the only function that others see, and tells the code
/// generator which processor the code is for.
static void prepareFunctions(Module &module, StringRef symbol,
                             const nsa::CPUDescription &cpu) {
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    if (function.getName() != symbol)
      function.setLinkage(GlobalValue::InternalLinkage);
    function.addFnAttr("target-cpu", cpu.base);
    function.addFnAttr("target-features", cpu.getFeatureString());
    function.addFnAttr("tune-cpu", cpu.tune);
    function.addFnAttr("prefer-vector-width", "512");
    // Reports the size of every frame.
    function.addFnAttr("warn-stack-size", "0");
    function.addFnAttr(Attribute::NoUnwind);
  }
  for (GlobalVariable &global : module.globals())
    if (!global.isDeclaration())
      global.setLinkage(GlobalValue::InternalLinkage);
}

/// Fails when the object needs a symbol that it neither defines nor may expect
/// to find where it is loaded.
static Error checkSymbols(object::ObjectFile &object) {
  for (const object::SymbolRef &symbol : object.symbols()) {
    Expected<uint32_t> flags = symbol.getFlags();
    if (!flags)
      return flags.takeError();
    if (!(*flags & object::SymbolRef::SF_Undefined))
      continue;
    Expected<StringRef> name = symbol.getName();
    if (!name)
      return name.takeError();
    if (!name->empty() && !is_contained(allowedSymbols, *name))
      return createStringError("undefined symbol '" + *name +
                               "'; only memcpy, memmove and memset exist where "
                               "kernels run");
  }
  return Error::success();
}

static uint64_t countCodeBytes(object::ObjectFile &object) {
  uint64_t bytes = 0;
  for (const object::SectionRef &section : object.sections()) {
    uint64_t flags = object::ELFSectionRef(section).getFlags();
    if ((flags & ELF::SHF_ALLOC) && !section.isVirtual())
      bytes += section.getSize();
  }
  return bytes;
}

static Error emitMachineCode(Module &module, TargetMachine &machine,
                             CodeGenFileType type,
                             SmallVectorImpl<char> &bytes) {
  raw_svector_ostream stream(bytes);
  legacy::PassManager passes;
  TargetLibraryInfoImpl libraries(machine.getTargetTriple());
  passes.add(new TargetLibraryInfoWrapperPass(libraries));
  if (machine.addPassesToEmitFile(passes, stream, /*DwoOut=*/nullptr, type))
    return createStringError("the target machine cannot emit this file");
  passes.run(module);
  return Error::success();
}

/// Prints the optimised module, and its assembly, which is made of a copy.
static Error printTexts(const Module &module, TargetMachine &machine,
                        StringRef symbol, nsa::KernelObject &result) {
  result.ir = nsa::printKernel(module, symbol);
  SmallString<0> assembly;
  std::unique_ptr<Module> copy = CloneModule(module);
  if (Error error = emitMachineCode(*copy, machine,
                                    CodeGenFileType::AssemblyFile, assembly))
    return error;
  result.assembly = assembly.str().str();
  return Error::success();
}

Expected<nsa::KernelObject> nsa::emitObject(Module &module, StringRef symbol,
                                            const CPUDescription &cpu,
                                            bool keepText) {
  KernelObject result;
  std::string errors;
  module.getContext().setDiagnosticHandler(
      std::make_unique<DiagnosticCollector>(errors, result.stackBytes));
  Expected<std::unique_ptr<TargetMachine>> machine = createMachine(cpu);
  if (!machine)
    return machine.takeError();
  module.setTargetTriple((*machine)->getTargetTriple());
  module.setDataLayout((*machine)->createDataLayout());
  prepareFunctions(module, symbol, cpu);
  auto generate = [&]() -> Expected<std::string> {
    // Bodies of loops are whole register tiles: copies of them would make the
    // compiler slower by 40 %, and training faster by 4 %.
    // Code generation of LLVM 22 forwards a stored <2 x i32> to an extending
    // load of its first element, if that is known not to be negative, with the
    // second element in the upper half of the i64.
    optimizeModule(module, **machine, /*unroll=*/false,
                   /*forwardStores=*/true);
    if (keepText)
      if (Error error = printTexts(module, **machine, symbol, result))
        return error;
    // The size of the frame is known when all is emitted.
    SmallVector<char, 0> bytes;
    if (Error error = emitMachineCode(module, **machine,
                                      CodeGenFileType::ObjectFile, bytes))
      return error;
    if (!errors.empty())
      return createStringError(errors);
    return std::to_string(result.stackBytes) + "\n" +
           std::string(bytes.begin(), bytes.end());
  };
  Expected<std::string> code =
      keepText ? generate()
               : generateOnce(module, cpu.name, generate,
                              [&](const std::string &warning) {
                                result.warning = warning;
                              });
  if (!code)
    return code.takeError();
  auto [stackBytes, bytes] = StringRef(*code).split('\n');
  if (stackBytes.getAsInteger(10, result.stackBytes))
    return createStringError("the code in the cache has no frame");
  result.bytes.assign(bytes.begin(), bytes.end());

  Expected<std::unique_ptr<object::ObjectFile>> object =
      object::ObjectFile::createObjectFile(MemoryBufferRef(
          StringRef(result.bytes.data(), result.bytes.size()), symbol));
  if (!object)
    return object.takeError();
  if (Error error = checkSymbols(**object))
    return error;
  result.codeBytes = countCodeBytes(**object);
  return result;
}
