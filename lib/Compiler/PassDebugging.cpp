//===- PassDebugging.cpp - what pass managers show ------------------------===//

#include "lib/Compiler/PassDebugging.h"
#include "lib/Compiler/Registration.h"
#include "lib/Support/Files.h"
#include "lib/Support/Text.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatAdapters.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace nsa;

/// Notes which passes run.
class nsa::PassDebugging::Recorder : public PassInstrumentation {
public:
  explicit Recorder(PassDebugging &owner) : owner(owner) {}

  void runBeforePass(Pass *pass, Operation *) override {
    std::lock_guard<std::mutex> lock(owner.mutex);
    owner.ran.insert(pass->getArgument());
  }

private:
  PassDebugging &owner;
};

nsa::PassDebugging::PassDebugging(const PassManagerOptions &options)
    : options(options) {
  timing.setEnabled(!options.timing.empty());
  timing.setDisplayMode(options.timing == "list"
                            ? DefaultTimingManager::DisplayMode::List
                            : DefaultTimingManager::DisplayMode::Tree);
  root = timing.getRootScope();
}

static bool printsAfter(const PassManagerOptions &options) {
  return !options.printAfter.empty() || options.printAfterAll ||
         options.printAfterFailure;
}

static bool printsBefore(const PassManagerOptions &options) {
  return !options.printBefore.empty() || options.printBeforeAll;
}

static bool prints(const PassManagerOptions &options) {
  return printsBefore(options) || printsAfter(options);
}

bool nsa::PassDebugging::needsOneThread() const {
  return prints(options) || options.reproduceLastPass;
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

/// Options without effect, or nothing.
static std::string findIneffective(const PassManagerOptions &options) {
  if (!options.timing.empty() && options.timing != "tree" &&
      options.timing != "list")
    return "unknown display of times " + quote(options.timing) +
           "; known are tree and list";
  if (options.printBeforeAll && !options.printBefore.empty())
    return "--mlir-print-ir-before has no effect with "
           "--mlir-print-ir-before-all";
  if (!options.printAfter.empty() &&
      (options.printAfterAll || options.printAfterFailure))
    return std::string("--mlir-print-ir-after has no effect with ") +
           (options.printAfterAll ? "--mlir-print-ir-after-all"
                                  : "--mlir-print-ir-after-failure");
  if (options.printAfterFailure &&
      (options.printAfterAll || options.printAfterChange))
    return std::string(options.printAfterAll ? "--mlir-print-ir-after-all"
                                             : "--mlir-print-ir-after-change") +
           " has no effect with --mlir-print-ir-after-failure";
  if (options.printAfterChange && !printsAfter(options))
    return "--mlir-print-ir-after-change has no effect without "
           "--mlir-print-ir-after or --mlir-print-ir-after-all";
  for (const auto &[given, name] :
       {std::pair(options.printModule, "--mlir-print-ir-module-scope"),
        {!options.printFolder.empty(), "--mlir-print-ir-tree-dir"}})
    if (given && !prints(options))
      return std::string(name) +
             " has no effect without an option that prints IR, such as "
             "--mlir-print-ir-after-all";
  if (options.reproduceLastPass && options.reproducer.empty())
    return "--mlir-pass-pipeline-local-reproducer has no effect without "
           "--mlir-pass-pipeline-crash-reproducer";
  return "";
}

Status nsa::PassDebugging::check() const {
  if (std::string problem = findIneffective(options); !problem.empty())
    return Error{problem};
  // The registry is one for the process.
  if (!options.printBefore.empty() || !options.printAfter.empty())
    registerPasses();
  for (const auto *names : {&options.printBefore, &options.printAfter})
    for (const std::string &name : *names)
      if (!PassInfo::lookup(name))
        return Error{"unknown pass " + quote(name) +
                     "; nsa-opt --list-passes shows all"};
  // MLIR would say so after the failure only.
  llvm::StringRef folder = llvm::sys::path::parent_path(options.reproducer);
  if (!folder.empty() && !llvm::sys::fs::is_directory(folder))
    return Error{"cannot write the reproducer " + quote(options.reproducer) +
                 ": " + quote(folder.str()) + " is no folder"};
  return {};
}

std::vector<std::string> nsa::PassDebugging::findUnused() {
  std::vector<std::string> warnings;
  std::lock_guard<std::mutex> lock(mutex);
  for (const auto &[names, option] :
       {std::pair(&options.printBefore, "--mlir-print-ir-before"),
        {&options.printAfter, "--mlir-print-ir-after"}})
    for (const std::string &name : *names)
      if (!ran.contains(name))
        warnings.push_back(std::string("warning: ") + option + "=" + name +
                           " printed nothing: the pass did not run");
  return warnings;
}

//===----------------------------------------------------------------------===//
// Instrumentation
//===----------------------------------------------------------------------===//

TimingScope nsa::PassDebugging::timePhase(llvm::StringRef phase) {
  return root.nest(phase);
}

/// Whether a pass is one of those that are named.
static std::function<bool(Pass *, Operation *)>
makeFilter(bool all, std::vector<std::string> names) {
  return [all, names = std::move(names)](Pass *pass, Operation *) {
    return all || llvm::is_contained(names, pass->getArgument());
  };
}

Status nsa::PassDebugging::attachPrinting(PassManager &manager,
                                          llvm::StringRef phase,
                                          unsigned number) {
  auto before = makeFilter(options.printBeforeAll, options.printBefore);
  auto after = makeFilter(options.printAfterAll || options.printAfterFailure,
                          options.printAfter);
  if (options.printFolder.empty()) {
    manager.enableIRPrinting(before, after, options.printModule,
                             options.printAfterChange,
                             options.printAfterFailure);
    return {};
  }
  std::string folder = llvm::formatv(
      "{0}/{1}-{2}", options.printFolder,
      llvm::fmt_align(number, llvm::AlignStyle::Right, 2, '0'), phase);
  NSA_RETURN_IF_ERROR(createFolders(folder));
  manager.enableIRPrintingToFileTree(before, after, options.printModule,
                                     options.printAfterChange,
                                     options.printAfterFailure, folder);
  return {};
}

Status nsa::PassDebugging::attach(PassManager &manager, TimingScope &scope,
                                  llvm::StringRef phase, unsigned number) {
  if (!options.reproducer.empty())
    manager.enableCrashReproducerGeneration(options.reproducer,
                                            options.reproduceLastPass);
  if (!options.printBefore.empty() || !options.printAfter.empty())
    manager.addInstrumentation(std::make_unique<Recorder>(*this));
  if (prints(options))
    NSA_RETURN_IF_ERROR(attachPrinting(manager, phase, number));
  // Last, so that the time of the others is not that of passes.
  manager.enableTiming(scope);
  return {};
}
