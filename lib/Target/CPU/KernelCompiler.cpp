//===- KernelCompiler.cpp - kernels to an archive of objects --------------===//

#include "lib/Target/CPU/KernelCompiler.h"
#include "lib/Target/CPU/CrashGuard.h"
#include "lib/Target/CPU/ObjectEmitter.h"
#include "lib/Target/KernelFiles.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Support/ThreadPool.h"

using namespace mlir;

namespace {
/// A kernel on its way to an object. The context outlives the module.
struct KernelJob {
  LLVM::LLVMFuncOp kernel;
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
  nsa::KernelObject object;
  /// Why there is no object; empty on success.
  std::string error;
};
} // namespace

void nsa::registerKernelTranslations(DialectRegistry &registry) {
  registry.insert<LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

/// The symbols of `module` that `root` needs, itself first.
static FailureOr<llvm::SetVector<Operation *>>
collectReferenced(LLVM::LLVMFuncOp root, SymbolTable &symbols) {
  llvm::SetVector<Operation *> needed;
  needed.insert(root);
  for (unsigned i = 0; i < needed.size(); ++i) {
    std::optional<SymbolTable::UseRange> uses =
        SymbolTable::getSymbolUses(needed[i]);
    if (!uses)
      return root.emitError("has symbol uses that cannot be determined");
    for (SymbolTable::SymbolUse use : *uses) {
      Operation *target =
          symbols.lookup(use.getSymbolRef().getRootReference().getValue());
      if (!target)
        return use.getUser()->emitError("refers to ")
               << use.getSymbolRef() << ", which does not exist";
      needed.insert(target);
    }
  }
  return needed;
}

/// Translates the kernel, with what it needs, to an LLVM module of its own.
static LogicalResult translate(KernelJob &job, SymbolTable &symbols) {
  FailureOr<llvm::SetVector<Operation *>> needed =
      collectReferenced(job.kernel, symbols);
  if (failed(needed))
    return failure();
  OwningOpRef<ModuleOp> unit = ModuleOp::create(job.kernel.getLoc());
  for (Operation *op : *needed)
    unit->push_back(op->clone());
  job.context = std::make_unique<llvm::LLVMContext>();
  job.module =
      translateModuleToLLVMIR(*unit, *job.context, job.kernel.getSymName());
  if (!job.module)
    return job.kernel.emitError("kernel cannot be translated to LLVM IR");
  return success();
}

/// Without instructions for it, LLVM would call a function that is not there.
static LogicalResult checkConversions(LLVM::LLVMFuncOp kernel,
                                      const nsa::CPUDescription &cpu) {
  if (llvm::is_contained(cpu.features, "f16c"))
    return success();
  auto result = kernel.walk([](Operation *op) {
    bool isHalf = isa<LLVM::FPExtOp, LLVM::FPTruncOp>(op) &&
                  (getElementTypeOrSelf(op->getOperand(0)).isF16() ||
                   getElementTypeOrSelf(op->getResult(0)).isF16());
    return isHalf ? WalkResult::interrupt() : WalkResult::advance();
  });
  if (!result.wasInterrupted())
    return success();
  return kernel.emitError("kernel '")
         << kernel.getSymName() << "' converts f16, for which processor '"
         << cpu.name << "' has no instructions; use x86-64-v3 or bf16";
}

static void emit(KernelJob &job, const nsa::CPUDescription &cpu,
                 bool keepText) {
  llvm::Error crash = nsa::runGuarded([&] {
    llvm::Expected<nsa::KernelObject> object =
        nsa::emitObject(*job.module, job.kernel.getSymName(), cpu, keepText);
    if (object)
      job.object = std::move(*object);
    else
      job.error = llvm::toString(object.takeError());
  });
  if (crash) {
    // After a crash these are in no state to be destroyed.
    [[maybe_unused]] llvm::Module *module = job.module.release();
    [[maybe_unused]] llvm::LLVMContext *context = job.context.release();
    job.error = llvm::toString(std::move(crash));
    return;
  }
  job.module.reset();
  job.context.reset();
}

/// Emits every job. Which thread takes which job does not matter to the result.
static void emitAll(std::vector<KernelJob> &jobs,
                    const nsa::CPUDescription &cpu, unsigned threads,
                    bool keepText) {
  if (threads <= 1 || jobs.size() <= 1) {
    for (KernelJob &job : jobs)
      emit(job, cpu, keepText);
    return;
  }
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(threads));
  for (KernelJob &job : jobs)
    pool.async([&job, &cpu, keepText] { emit(job, cpu, keepText); });
  pool.wait();
}

/// Writes what the jobs have printed, and the kernels in the LLVM dialect.
static LogicalResult saveTexts(ArrayRef<KernelJob> jobs, StringRef folder) {
  if (folder.empty())
    return success();
  for (const KernelJob &job : jobs) {
    LLVM::LLVMFuncOp kernel = job.kernel;
    if (failed(nsa::saveKernelIR(folder, kernel.getOperation(), "llvm.mlir")))
      return failure();
    for (auto [extension, text] : {std::pair("ll", &job.object.ir),
                                   std::pair("s", &job.object.assembly)})
      if (llvm::Error error = nsa::saveKernelFile(folder, kernel.getSymName(),
                                                  extension, *text))
        return kernel.emitError(llvm::toString(std::move(error)));
  }
  return success();
}

FailureOr<nsa::CPUBinary>
nsa::compileKernels(ModuleOp module, ArrayRef<LLVM::LLVMFuncOp> kernels,
                    const CPUDescription &cpu, unsigned threads,
                    StringRef saveTo) {
  SymbolTable symbols(module);
  std::vector<KernelJob> jobs(kernels.size());
  for (auto [job, kernel] : llvm::zip_equal(jobs, kernels)) {
    job.kernel = kernel;
    if (failed(checkConversions(kernel, cpu)) ||
        failed(translate(job, symbols)))
      return failure();
  }
  emitAll(jobs, cpu, threads, /*keepText=*/!saveTo.empty());
  if (failed(saveTexts(jobs, saveTo)))
    return failure();

  CPUBinary binary;
  binary.cpu = cpu;
  std::vector<llvm::NewArchiveMember> objects;
  binary.kernels.reserve(jobs.size());
  // An error about the machine repeats for every kernel: report it once.
  llvm::StringSet<> errors;
  for (KernelJob &job : jobs) {
    if (!job.error.empty() && errors.insert(job.error).second)
      job.kernel.emitError("kernel '")
          << job.kernel.getSymName()
          << "' cannot be compiled: " << StringRef(job.error).trim();
    if (!job.object.warning.empty())
      job.kernel.emitWarning(job.object.warning);
    binary.kernels.push_back({job.kernel.getSymName().str(),
                              job.object.codeBytes, job.object.stackBytes});
    const SmallVector<char, 0> &bytes = job.object.bytes;
    objects.emplace_back(llvm::MemoryBufferRef(
        StringRef(bytes.data(), bytes.size()), binary.kernels.back().symbol));
  }
  if (!errors.empty())
    return failure();
  llvm::raw_svector_ostream stream(binary.image);
  if (llvm::Error error = llvm::writeArchiveToStream(
          stream, objects, llvm::SymtabWritingMode::NormalSymtab,
          llvm::object::Archive::K_GNU, /*Deterministic=*/true, /*Thin=*/false))
    return module.emitError() << llvm::toString(std::move(error));
  return binary;
}
