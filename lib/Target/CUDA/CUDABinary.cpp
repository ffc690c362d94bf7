//===- CUDABinary.cpp - kernels to code for a GPU -------------------------===//

#include "lib/Target/CUDA/CUDABinary.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/PerformanceLints.h"
#include "dialects/RT/RTOps.h"
#include "lib/Support/Hash.h"
#include "lib/Target/CPU/CrashGuard.h"
#include "lib/Target/CUDA/ArgumentAlignment.h"
#include "lib/Target/CUDA/PTXEmitter.h"
#include "lib/Target/KernelFiles.h"
#include "lib/Target/OutlinedKernels.h"
#include "lib/Target/Passes.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "nsa/Artifact/Format.h"

#define DEBUG_TYPE "nsa-serialize-kernels"

namespace nsa {
#define GEN_PASS_DEF_SERIALIZEKERNELS
#include "lib/Target/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

void nsa::registerCUDATranslations(DialectRegistry &registry) {
  registry.insert<LLVM::LLVMDialect, NVVM::NVVMDialect>();
  registerBuiltinDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

/// Lets kernels that spill have all registers of a thread, where a
/// multiprocessor has as many for a block. Whether there is one that could not
/// have them before.
static bool
liftRegisterLimits(std::string &ptx,
                   const llvm::StringMap<KernelResources> &kernels) {
  const std::string directive = ".maxnreg ", size = ".reqntid ", most = "255";
  bool isLifted = false;
  for (const auto &kernel : kernels) {
    if (kernel.second.spillStores + kernel.second.spillLoads == 0)
      continue;
    size_t entry = ptx.find((".entry " + kernel.first() + "(").str());
    size_t limit = ptx.find(directive, entry);
    if (entry == std::string::npos || limit == std::string::npos ||
        limit > ptx.find('{', entry))
      continue;
    limit += directive.size();
    size_t threads = ptx.find(size, entry);
    if (threads < ptx.find('{', entry) &&
        std::strtoul(&ptx[threads + size.size()], nullptr, 10) * 256 > 65536)
      continue;
    size_t digits = ptx.find_first_not_of("0123456789", limit) - limit;
    if (ptx.compare(limit, digits, most) == 0)
      continue;
    ptx.replace(limit, digits, most);
    isLifted = true;
  }
  return isLifted;
}

/// The registers that kernels have to start with, if they depend on that.
static llvm::StringMap<uint64_t> getLaunchRegisters(gpu::GPUModuleOp module) {
  llvm::StringMap<uint64_t> expected;
  for (auto function : module.getOps<LLVM::LLVMFuncOp>())
    if (auto count = function->getAttrOfType<IntegerAttr>(kLaunchRegistersAttr))
      expected[function.getSymName()] = uint64_t(count.getInt());
  return expected;
}

/// Writes the text of each kernel that has one.
static LogicalResult
saveTexts(gpu::GPUModuleOp module, StringRef folder, StringRef extension,
          const std::map<std::string, std::string> &texts) {
  for (const auto &[kernel, text] : texts)
    if (llvm::Error error = saveKernelFile(folder, kernel, extension, text))
      return module.emitError(llvm::toString(std::move(error)));
  return success();
}

/// Writes the instructions of each kernel, if there is a cuobjdump to say them.
static LogicalResult saveSASS(gpu::GPUModuleOp module, StringRef ptxas,
                              ArrayRef<char> cubin, StringRef folder) {
  if (folder.empty())
    return success();
  llvm::Expected<std::string> listing = disassemble(ptxas, cubin);
  if (!listing)
    return module.emitError(llvm::toString(listing.takeError()));
  return saveTexts(module, folder, "sass", splitSASS(*listing));
}

/// The text of one kernel of `ptx` as a module of its own: LLVM declares shared
/// memory where the first one begins.
static std::string withSharedMemory(StringRef text, StringRef ptx) {
  StringRef shared = ptx.substr(ptx.find(".extern .shared"));
  shared = shared.take_front(shared.find('\n') + 1);
  if (text.contains(shared))
    return text.str();
  auto [head, body] = text.split("\t// .globl");
  return (head + shared + "\t// .globl" + body).str();
}

FailureOr<CUDABinary>
nsa::compileForCUDA(gpu::GPUModuleOp module, const CUDAChip &chip,
                    StringRef ptxas, unsigned threads,
                    llvm::StringMap<KernelResources> &resources,
                    StringRef saveTo) {
  CUDABinary binary;
  binary.chip = chip.name.str();
  llvm::LLVMContext context;
  if (!saveTo.empty()) {
    SmallVector<Operation *> kernels;
    for (auto kernel : module.getOps<LLVM::LLVMFuncOp>())
      if (!kernel.isExternal())
        kernels.push_back(kernel);
    if (failed(saveKernelIR(saveTo, kernels, "llvm.mlir")))
      return failure();
  }
  std::unique_ptr<llvm::Module> code =
      translateModuleToLLVMIR(module, context, "nsa-kernels");
  if (!code)
    return module.emitError("kernels cannot be translated to LLVM IR");
  std::string failure;
  std::map<std::string, std::string> texts;
  auto keepTexts = [&](const llvm::Module &optimized) {
    for (auto kernel : module.getOps<LLVM::LLVMFuncOp>())
      texts[kernel.getSymName().str()] =
          printKernel(optimized, kernel.getSymName());
  };
  auto warn = [&](const std::string &text) { module.emitWarning(text); };
  llvm::function_ref<void(const llvm::Module &)> onOptimized;
  if (!saveTo.empty())
    onOptimized = keepTexts;
  if (llvm::Error crash = runGuarded([&] {
        llvm::Expected<std::string> ptx =
            emitPTX(*code, chip, onOptimized, warn);
        if (ptx)
          binary.ptx = std::move(*ptx);
        else
          failure = llvm::toString(ptx.takeError());
      }))
    failure = llvm::toString(std::move(crash));
  if (!failure.empty())
    return module.emitError("kernels cannot be compiled to PTX: ") << failure;
  if (failed(saveTexts(module, saveTo, "ll", texts)))
    return mlir::failure();
  if (ptxas.empty()) {
    if (failed(saveTexts(module, saveTo, "ptx", splitPTX(binary.ptx))))
      return mlir::failure();
    return binary;
  }
  llvm::Expected<Assembly> assembly =
      assemble(ptxas, binary.ptx, chip, threads, warn);
  if (assembly && liftRegisterLimits(binary.ptx, assembly->kernels))
    assembly = assemble(ptxas, binary.ptx, chip, threads, warn);
  if (!assembly) {
    // It does not say which kernels it means.
    for (const auto &[kernel, text] : splitPTX(binary.ptx))
      if (llvm::Expected<Assembly> own = assemble(
              ptxas, withSharedMemory(text, binary.ptx), chip, threads, warn);
          !own) {
        llvm::consumeError(own.takeError());
        resources[kernel].hasFailed = true;
      }
    return module.emitError() << llvm::toString(assembly.takeError());
  }
  if (llvm::Error wrong =
          checkLaunchRegisters(*assembly, getLaunchRegisters(module)))
    return module.emitError() << llvm::toString(std::move(wrong));
  binary.cubin = std::move(assembly->cubin);
  resources = std::move(assembly->kernels);
  for (const std::string &warning : assembly->warnings)
    module.emitWarning(warning);
  if (failed(saveTexts(module, saveTo, "ptx", splitPTX(binary.ptx))) ||
      failed(saveSASS(module, ptxas, binary.cubin, saveTo)))
    return mlir::failure();
  return binary;
}

SmallVector<CUDABinary::Image, 2> CUDABinary::getImages() const {
  SmallVector<Image, 2> images;
  if (!cubin.empty())
    images.push_back({artifact::cubinFormat, cubin});
  // A cubin runs within its generation alone, PTX on all later ones, but for
  // that of an architecture with features of its own.
  if (cubin.empty() || !StringRef(chip).ends_with("a"))
    images.push_back({artifact::ptxFormat, ArrayRef(ptx.data(), ptx.size())});
  return images;
}

LogicalResult nsa::describeLaunches(OutlinedKernels &outlined) {
  FailureOr<SmallVector<LLVM::LLVMFuncOp>> functions = outlined.getFunctions();
  if (failed(functions))
    return failure();
  for (auto [described, function] :
       llvm::zip_equal(outlined.getKernels(), *functions)) {
    rt::KernelOp kernel = described;
    auto threads = function->getAttrOfType<DenseI32ArrayAttr>(
        NVVM::NVVMDialect::getReqntidAttrName());
    kernel.setThreads(threads[0]);
    kernel.setSharedBytes(
        function->getAttrOfType<IntegerAttr>(kSharedBytesAttr).getInt());
    if (auto maps = function->getAttrOfType<ArrayAttr>(kTensorMapsAttr))
      kernel.setTensorMapsAttr(maps);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
class SerializeKernels
    : public nsa::impl::SerializeKernelsBase<SerializeKernels> {
public:
  using SerializeKernelsBase::SerializeKernelsBase;
  SerializeKernels(const SerializeKernelsOptions &options,
                   std::shared_ptr<CUDABinary> result)
      : SerializeKernelsBase(options), result(std::move(result)) {}

  void getDependentDialects(DialectRegistry &registry) const override {
    SerializeKernelsBase::getDependentDialects(registry);
    registerCUDATranslations(registry);
  }

  void runOnOperation() override;

private:
  std::shared_ptr<CUDABinary> result;
};
} // namespace

/// Whether a kernel spills more than its schedule allows.
static bool spillsTooMuch(rt::KernelOp kernel,
                          const KernelResources &resources) {
  auto schedule = kernel->getAttrOfType<DictionaryAttr>(kScheduleAttr);
  auto allowed = schedule ? schedule.getAs<IntegerAttr>("spills") : nullptr;
  return resources.spillStores + resources.spillLoads >
         uint64_t(allowed ? allowed.getInt() : 0);
}

/// Adds performance lints of a kernel with dots.
static void notePerformanceLints(rt::KernelOp kernel,
                                 const KernelResources &resources) {
  SmallVector<StringRef> names;
  if (std::optional<ArrayAttr> known = kernel.getPerformanceLints())
    names = llvm::to_vector_of<StringRef>(known->getAsValueRange<StringAttr>());
  if (spillsTooMuch(kernel, resources))
    names.push_back(kSpillPath);
  else if (resources.spillStores + resources.spillLoads > 0)
    remark::missed(kernel.getLoc(), remark::RemarkOpts::name("Spill")
                                        .category(DEBUG_TYPE)
                                        .function(kernel.getSymName()))
        << remark::reason("spills {0} bytes of a thread's registers, which its "
                          "schedule accepts",
                          resources.spillStores + resources.spillLoads);
  if (resources.isSerialised)
    names.push_back(kSerialisedPath);
  if (!names.empty())
    kernel.setPerformanceLintsAttr(Builder(kernel).getStrArrayAttr(names));
}

/// Marks kernels of which another schedule may be better.
static void markRefused(OutlinedKernels &outlined,
                        const llvm::StringMap<KernelResources> &resources) {
  for (rt::KernelOp kernel : outlined.getKernels()) {
    KernelResources known = resources.lookup(kernel.getSymName());
    if (kernel->hasAttr(kScheduleAttr) &&
        (known.hasFailed || known.isSerialised || spillsTooMuch(kernel, known)))
      kernel->setAttr(kRefusedAttr, UnitAttr::get(kernel.getContext()));
  }
}

/// Notes on the kernels what they cost.
static void describe(OutlinedKernels &outlined,
                     const llvm::StringMap<KernelResources> &resources) {
  SymbolTable functions(outlined.getSources());
  for (rt::KernelOp kernel : outlined.getKernels()) {
    auto known = resources.find(kernel.getSymName());
    if (known == resources.end())
      continue;
    kernel.setRegisters(known->second.registers);
    kernel.setSpillBytes(known->second.spillStores + known->second.spillLoads);
    kernel.setStackBytes(known->second.stackBytes);
    // Dots bound the speed of these.
    if (functions.lookup(kernel.getSymName())->hasAttr(kMultipliesAttr))
      notePerformanceLints(kernel, known->second);
  }
}

/// The GPU that kernels are for.
static FailureOr<const CUDAChip *> getChip(gpu::GPUModuleOp kernels) {
  ArrayAttr targets = kernels.getTargetsAttr();
  auto target = targets && targets.size() == 1
                    ? dyn_cast<NVVM::NVVMTargetAttr>(targets[0])
                    : NVVM::NVVMTargetAttr();
  if (!target)
    return kernels.emitOpError("has no #nvvm.target, or others with it");
  if (const CUDAChip *chip = findCUDAChip(target.getChip()))
    return chip;
  return kernels.emitOpError("is for an unknown chip '")
         << target.getChip() << "'";
}

void SerializeKernels::runOnOperation() {
  ModuleOp module = getOperation();
  auto sources = module.getOps<gpu::GPUModuleOp>();
  if (sources.empty())
    return markAllAnalysesPreserved();
  FailureOr<const CUDAChip *> found = getChip(*sources.begin());
  if (failed(found))
    return signalPassFailure();
  const CUDAChip *target = *found;
  if (target->architecture != target->name)
    module.emitRemark("there is no code of its own for ")
        << target->name << ": it has the PTX of " << target->architecture;
  OutlinedKernels outlined(*sources.begin());
  llvm::StringMap<KernelResources> resources;
  FailureOr<CUDABinary> binary = failure();
  if (succeeded(describeLaunches(outlined)))
    binary = compileForCUDA(cast<gpu::GPUModuleOp>(outlined.getSources()),
                            *target, ptxas, threads, resources, saveKernels);
  markRefused(outlined, resources);
  if (failed(binary))
    return signalPassFailure();
  describe(outlined, resources);

  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  for (const CUDABinary::Image &image : binary->getImages())
    rt::BinaryOp::create(
        builder, module.getLoc(), getUnusedSymbol(module, "kernels"),
        image.format, target->name, image.bytes.size(),
        toHex(hashBytes(image.bytes.data(), image.bytes.size())));
  numKernels += outlined.getKernels().size();
  if (result)
    *result = std::move(*binary);
}

std::unique_ptr<Pass>
nsa::createSerializeKernels(const SerializeKernelsOptions &options,
                            std::shared_ptr<CUDABinary> result) {
  return std::make_unique<SerializeKernels>(options, std::move(result));
}
