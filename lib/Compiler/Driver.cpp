//===- Driver.cpp - one compilation ---------------------------------------===//

#include "lib/Compiler/Driver.h"
#include "dialects/Interfaces/OpChecks.h"
#include "dialects/Interfaces/OptimizerOpInterface.h"
#include "dialects/NN/NNModuleOps.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSADialect.h"
#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"
#include "lib/Compiler/GPUPhases.h"
#include "lib/Compiler/Gradients.h"
#include "lib/Compiler/MemoryReport.h"
#include "lib/Compiler/Registration.h"
#include "lib/Compiler/Report.h"
#include "lib/Compiler/Source.h"
#include "lib/Compiler/TextLimits.h"
#include "lib/Support/Files.h"
#include "lib/Support/LineBreaks.h"
#include "lib/Support/Text.h"
#include "lib/Target/KernelFiles.h"
#include "lib/Target/Passes.h"
#include "mlir/Dialect/LLVMIR/Transforms/Passes.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/LocationSnapshot.h"
#include "nsa/Artifact/Format.h"
#include "nsa/Artifact/GemmWorkspace.h"
#include "nsa/Artifact/TrainingContract.h"
#include "nsa/Compiler/Options.h"
#include "passes/Pipelines/Pipelines.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatAdapters.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Regex.h"
#include <chrono>

using namespace mlir;
using namespace nsa;

static DialectRegistry makeRegistry() {
  DialectRegistry registry;
  registerDialects(registry);
  return registry;
}

nsa::Driver::Driver(const CompilerOptions &options, const DebugOptions &debug)
    : options(options), debug(debug), passes(debug.passManagers),
      context(makeRegistry(), MLIRContext::Threading::DISABLED),
      diagnostics(sourceManager, &context, messageStream) {
  context.printOpOnDiagnostic(false);
  if (options.threads > 1 && !passes.needsOneThread()) {
    threadPool = std::make_unique<llvm::DefaultThreadPool>(
        llvm::hardware_concurrency(options.threads));
    context.setThreadPool(*threadPool);
  }
}

/// A line of messages, not too long: a diagnostic is followed by the line of
/// its place, which may be the whole file.
static std::string shortenLine(StringRef line) {
  constexpr size_t mostOfMessage = 1000;
  bool isMessage = llvm::any_of(
      ArrayRef<StringRef>{" error: ", " warning: ", " remark: ", " note: "},
      [&](StringRef kind) { return line.contains(kind); });
  return shortened(line.str(), isMessage ? mostOfMessage : kMostQuoted);
}

std::string nsa::Driver::takeMessages() {
  SmallVector<StringRef> lines;
  StringRef(messages).rtrim().split(lines, '\n');
  return llvm::join(llvm::map_range(lines, shortenLine), "\n");
}

void nsa::Driver::passOnMessages() {
  if (debug.messages)
    *debug.messages = takeMessages();
}

LogicalResult nsa::Driver::timed(StringRef name,
                                 function_ref<LogicalResult()> step) {
  auto start = std::chrono::steady_clock::now();
  LogicalResult result = step();
  std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  auto known = llvm::find_if(
      seconds, [&](const auto &phase) { return phase.first == name; });
  if (known == seconds.end())
    seconds.emplace_back(name.str(), time.count());
  else
    known->second += time.count();
  return result;
}

//===----------------------------------------------------------------------===//
// Input
//===----------------------------------------------------------------------===//

LogicalResult nsa::Driver::checkOptions() {
  for (const OptionField &field : optionFields())
    if (Status status = field.check(options); !status) {
      messageStream << status.message();
      return failure();
    }
  chip = findCUDAChip(options.target);
  if (options.target != artifact::cpuTarget && !chip) {
    messageStream << "unsupported target " << quote(options.target)
                  << "; this compiler has: " << artifact::cpuTarget;
    for (const CUDAChip &known : getCUDAChips())
      messageStream << ", " << known.name;
    return failure();
  }
  llvm::Expected<CPUDescription> description = describeCPU(options.cpu);
  if (!description) {
    messageStream << llvm::toString(description.takeError());
    return failure();
  }
  cpu = std::move(*description);
  context.getOrLoadDialect<nn::NNDialect>();
  if (!OptimizerKind::find(&context, options.optimizer)) {
    messageStream << "unknown optimizer " << quote(options.optimizer)
                  << "; known are "
                  << llvm::join(OptimizerKind::list(&context), ", ");
    return failure();
  }
  if ((options.shard != "none") != (options.shardRanks != 1)) {
    messageStream << "--shard=" << options.shard
                  << " cannot be used with --shard-ranks=" << options.shardRanks
                  << ": both are needed";
    return failure();
  }
  if (options.shard != "none" && !options.fuse) {
    messageStream << "ranks share only updates that are fused: "
                     "--shard cannot be used with --no-fuse";
    return failure();
  }
  if (options.shard == "parameters" && options.context == 0 &&
      (options.forward || options.sampleContext != 0)) {
    messageStream << "--shard=parameters needs --no-forward: no rank has the "
                     "weights for samples";
    return failure();
  }
  if (options.contextParallel != 1 && options.forward && options.context == 0 &&
      options.sampleContext == 0) {
    messageStream << "--context-parallel needs --sample-context or "
                     "--no-forward: no rank has whole sequences for @forward";
    return failure();
  }
  if (options.replaySelection && options.contextParallel != 1) {
    messageStream << "--replay-selection is for whole sequences: it cannot be "
                     "used with --context-parallel";
    return failure();
  }
  if (options.lineInfo && !chip) {
    messageStream << "--line-info needs a GPU; the target is cpu";
    return failure();
  }
  if (options.context != 0 && options.sampleContext != 0) {
    messageStream << "--sample-context is of artefacts that train, --context "
                     "of those that generate: give one of them";
    return failure();
  }
  if (options.prefillChunk != 0 && options.context == 0) {
    messageStream << "--prefill-chunk has no effect without --context";
    return failure();
  }
  if (options.pages != 0 && options.prefillChunk == 0) {
    messageStream << "--pages needs --prefill-chunk";
    return failure();
  }
  if (!options.forward &&
      (options.context != 0 || options.sampleContext != 0)) {
    messageStream << "--no-forward has no effect: --"
                  << (options.context != 0 ? "context" : "sample-context")
                  << " makes other entries";
    return failure();
  }
  if (options.recomputeBudget > 0 && options.recompute == "none") {
    messageStream << "a recompute budget of " << options.recomputeBudget
                  << " MiB needs the policy cheap or block";
    return failure();
  }
  for (const std::string &path : options.allowSlowPaths)
    if (std::string error = checkPerformanceLintName(path); !error.empty()) {
      messageStream << error;
      return failure();
    }
  return success();
}

/// Makes the folders for IR and turns remarks on.
LogicalResult nsa::Driver::checkDebugOptions() {
  for (const std::string &folder : {debug.savePhases, debug.saveKernels}) {
    if (folder.empty())
      continue;
    if (Status status = createFolders(folder); !status) {
      messageStream << status.message();
      return failure();
    }
  }
  if (Status status = passes.read(); !status) {
    messageStream << status.message();
    return failure();
  }
  if (debug.remarks.empty())
    return success();
  std::string error;
  if (!llvm::Regex(debug.remarks).isValid(error)) {
    messageStream << quote(debug.remarks)
                  << " is no regular expression for remarks: " << error;
    return failure();
  }
  remark::RemarkCategories categories;
  for (auto *category : {&categories.passed, &categories.missed,
                         &categories.analysis, &categories.failed})
    *category = debug.remarks;
  return remark::enableOptimizationRemarks(
      context, /*streamer=*/nullptr,
      std::make_unique<remark::RemarkEmittingPolicyAll>(), categories,
      /*printAsEmitRemarks=*/true);
}

/// An empty file is an empty module to the parser.
LogicalResult nsa::Driver::checkNotEmpty() {
  bool hasCode = llvm::any_of(*module->getBody(), [](Operation &op) {
    auto function = dyn_cast<FunctionOpInterface>(op);
    return !function || !function.isExternal();
  });
  if (hasCode)
    return success();
  return module->emitError("the module has no function to compile");
}

/// The operations verify their own types.
LogicalResult nsa::Driver::checkTypes() {
  WalkResult result = module->walk([&](FunctionOpInterface function) {
    for (Type type : function.getArgumentTypes())
      if (failed(checkNumElements(function, type)))
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// Whether something in the module is differentiated, updated or averaged.
static bool isTrained(ModuleOp module) {
  if (!module.getOps<nn::ModelOp>().empty())
    return true;
  WalkResult result = module.walk([](Operation *op) {
    if (isa<OptimizerOpInterface, nn::AllReduceOp>(op))
      return WalkResult::interrupt();
    auto function = dyn_cast<func::FuncOp>(op);
    if (!function)
      return WalkResult::advance();
    bool trains =
        nn::isTrainable(function) ||
        function.getName() == training::accumulateEntry ||
        llvm::any_of(llvm::seq(function.getNumResults()),
                     [&](unsigned i) { return nn::isObjective(function, i); });
    return trains ? WalkResult::interrupt() : WalkResult::advance();
  });
  return result.wasInterrupted();
}

void nsa::Driver::warnOfUnusedOptions() {
  if (isTrained(*module))
    return;
  for (auto [name, isUsed] :
       {std::pair("--recompute", options.recompute != "none"),
        std::pair("--optimizer",
                  options.optimizer != training::defaultOptimizer),
        std::pair("--shard", options.shard != "none"),
        std::pair("--context-parallel", options.contextParallel != 1),
        std::pair("--reduce-precision", options.reducePrecision != "fp32")})
    if (isUsed)
      messageStream << "warning: " << name
                    << " has no effect: no function is trained\n";
}

/// The precision that was asked for, else that of the model, else fp32.
void nsa::Driver::resolvePrecision() {
  if (!options.precision.empty())
    return;
  options.precision = "fp32";
  if (auto own = (*module)->getAttrOfType<StringAttr>(nn::kPrecisionAttr))
    options.precision = own.str();
  for (auto model : module->getOps<nn::ModelOp>())
    if (std::optional<StringRef> own = model.getPrecision())
      options.precision = own->str();
}

LogicalResult nsa::Driver::parse(const std::string &source,
                                 const std::string &name) {
  if (failed(checkOptions()) || failed(checkDebugOptions()))
    return failure();
  return timed("parse", [&]() -> LogicalResult {
    sourceManager.AddNewSourceBuffer(
        llvm::MemoryBuffer::getMemBufferCopy(source, name), llvm::SMLoc());
    if (std::string problem = findUnparsable(source, name); !problem.empty()) {
      messageStream << problem;
      return failure();
    }
    module = parseModule(sourceManager, &context);
    if (!module || failed(checkNotEmpty()) || failed(checkTypes()) ||
        failed(markGradients(*module, options.gradients)))
      return failure();
    warnOfUnusedOptions();
    resolvePrecision();
    return success();
  });
}

//===----------------------------------------------------------------------===//
// Phases
//===----------------------------------------------------------------------===//

LogicalResult nsa::Driver::runPhase(Phase phase, unsigned number) {
  TimingScope time = passes.timePhase(getPhaseName(phase));
  PassManager manager(&context);
  PhaseOptions phaseOptions{options};
  phaseOptions.mmaRows = !chip ? 0 : chip->wgmma ? 64 : 16;
  phaseOptions.gemmWorkspace = chip ? gpuGemmWorkspace : 0;
  CheckPerformanceLintsOptions performanceLints;
  performanceLints.allow = {options.allowSlowPaths.begin(),
                            options.allowSlowPaths.end()};
  if (phase == Phase::Binary && chip) {
    SerializeKernelsOptions binaryOptions;
    binaryOptions.ptxas = options.ptxas;
    binaryOptions.threads = options.threads;
    binaryOptions.saveKernels = debug.saveKernels;
    if (options.lineInfo) {
      LLVM::DIScopeForLLVMFuncOpPassOptions scopes;
      scopes.emissionKind = LLVM::DIEmissionKind::DebugDirectivesOnly;
      manager.addPass(LLVM::createDIScopeForLLVMFuncOpPass(scopes));
    }
    manager.addPass(createSerializeKernels(binaryOptions, cudaBinary));
    manager.addPass(createCheckPerformanceLints(performanceLints));
    manager.addPass(createVerifyPhase({Phase::Binary}));
  } else if (phase == Phase::Binary) {
    BinaryOptions binaryOptions;
    binaryOptions.cpu = options.cpu;
    binaryOptions.threads = options.threads;
    binaryOptions.saveKernels = debug.saveKernels;
    manager.addPass(createBinary(binaryOptions, binary));
    manager.addPass(createCheckPerformanceLints(performanceLints));
    manager.addPass(createVerifyPhase({Phase::Binary}));
  } else if (phase == Phase::Layout || phase == Phase::NVVM) {
    buildGPUPhasePipeline(manager, phase, *chip);
  } else {
    buildPhasePipeline(manager, phase, phaseOptions);
  }
  if (Status status = passes.attach(manager, time, getPhaseName(phase), number);
      !status) {
    messageStream << status.message();
    return failure();
  }
  return manager.run(*module);
}

std::string nsa::Driver::getText() {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream);
  stream << "\n";
  return debug.columns ? breakLines(text, debug.columns) : text;
}

LogicalResult nsa::Driver::savePhase(Phase phase, unsigned number) {
  if (debug.savePhases.empty())
    return success();
  std::string text = getText();
  std::string path =
      llvm::formatv("{0}/{1}-{2}.mlir", debug.savePhases,
                    llvm::fmt_align(number, llvm::AlignStyle::Right, 2, '0'),
                    getPhaseName(phase));
  if (Status status = writeFileAtomically(path, text); !status) {
    messageStream << status.message();
    return failure();
  }
  return success();
}

/// Makes each operation of `kernel` one at its line of `file`, inlined into the
/// operation of the model that it is for. Returns what the file says.
static std::string locateInFile(tile::KernelOp kernel, const Twine &file) {
  SmallVector<Location> places;
  kernel.walk([&](Operation *op) { places.push_back(op->getLoc()); });
  std::string text;
  llvm::raw_string_ostream stream(text);
  generateLocationsFromIR(stream, file.str(), kernel, OpPrintingFlags());
  auto *place = places.begin();
  kernel.walk([&](Operation *op) {
    // Of several locations, the first: a fused one has no line.
    auto caller = (*place)->findInstanceOf<FileLineColLoc>();
    if (op == kernel || op->getLoc() == *place)
      op->setLoc(*place);
    else if (caller)
      op->setLoc(CallSiteLoc::get(op->getLoc(), caller));
    ++place;
  });
  return text + "\n";
}

LogicalResult nsa::Driver::saveKernels() {
  auto kernels = module->getOps<tile::KernelOp>();
  if (!options.lineInfo)
    return debug.saveKernels.empty()
               ? success()
               : saveKernelIR(debug.saveKernels,
                              llvm::to_vector_of<Operation *>(kernels),
                              "tile.mlir");
  for (tile::KernelOp kernel : kernels) {
    // Positions count lines that are not broken.
    std::string text = locateInFile(kernel, kernel.getSymName() + ".tile.mlir");
    if (llvm::Error error = saveKernelFile(
            debug.saveKernels, kernel.getSymName(), "tile.mlir", text))
      return kernel.emitError(llvm::toString(std::move(error)));
  }
  return success();
}

bool nsa::Driver::findsRefused(Phase phase, bool hasFailed) {
  if (!chip || phase < Phase::Kernel)
    return false;
  if (!refused)
    refused.emplace(*chip, options.ptxas);
  if (hasFailed || phase == Phase::Binary)
    return refused->addMarked(*module, phase == Phase::Binary);
  return phase == Phase::Kernel && refused->addKnown(*module);
}

LogicalResult nsa::Driver::runPhases(Phase last) {
  unsigned count = 0, countBefore = 0;
  OwningOpRef<ModuleOp> before;
  size_t saidBefore = 0;
  // What is refused of the kernels that have another schedule is known without
  // the code of others.
  bool isProbing = false;
  for (unsigned number = 0; number <= static_cast<unsigned>(last); ++number) {
    auto phase = static_cast<Phase>(number);
    if (!chip && (phase == Phase::Layout || phase == Phase::NVVM))
      continue;
    if (chip && phase == Phase::Kernel && !before) {
      before = module->clone();
      countBefore = count;
      saidBefore = messages.size();
    }
    ++count;
    if (isProbing && phase == Phase::NVVM)
      refused->keepUnknown(*module);
    LogicalResult result =
        timed(getPhaseName(phase), [&] { return runPhase(phase, count); });
    bool isRefused = findsRefused(phase, failed(result));
    if (isRefused ||
        (isProbing && (failed(result) || phase == Phase::Binary))) {
      isProbing = isRefused && phase != Phase::Kernel;
      module = before->clone();
      refused->writeTo(*module);
      messages.resize(saidBefore);
      count = countBefore;
      number = static_cast<unsigned>(Phase::Kernel) - 1;
      continue;
    }
    if (failed(result) || failed(savePhase(phase, count)))
      return failure();
    if (phase == Phase::Plan && failed(saveKernels()))
      return failure();
    if (phase == Phase::Gradient)
      layers.read(*module);
  }
  if (refused && last == Phase::Binary)
    if (Status status = refused->keep(*module); !status)
      module->emitWarning(status.message());
  return success();
}

llvm::StringRef nsa::Driver::getPTX() const { return cudaBinary->ptx; }

llvm::SmallVector<ArrayRef<char>> nsa::Driver::getImages() const {
  if (!chip)
    return {binary->image};
  SmallVector<ArrayRef<char>> images;
  for (const CUDABinary::Image &image : cudaBinary->getImages())
    images.push_back(image.bytes);
  return images;
}

//===----------------------------------------------------------------------===//
// Report
//===----------------------------------------------------------------------===//

CompileReport nsa::Driver::getReport() {
  CompileReport report;
  report.seconds = seconds;
  for (ArrayRef<char> image : getImages())
    report.binaryBytes += image.size();
  report.table = describeCommands(*module, layers);
  report.commands = report.table.size();
  for (Operation &op : *module->getBody())
    report.kernels += isa<rt::KernelOp, tile::KernelOp>(op);
  describeMemory(*module, report);
  return report;
}
