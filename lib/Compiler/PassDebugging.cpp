//===- PassDebugging.cpp - what pass managers show ------------------------===//

#include "lib/Compiler/PassDebugging.h"
#include "lib/Compiler/Registration.h"
#include "lib/Support/Files.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatAdapters.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace nsa;
namespace cl = llvm::cl;

static constexpr llvm::StringLiteral kFolder = "mlir-print-ir-tree-dir";

Status nsa::PassDebugging::read() {
  if (options.empty())
    return {};
  static std::mutex inUse;
  lock = std::unique_lock(inUse);
  static std::once_flag once;
  std::call_once(once, [] {
    // The options that name passes know those that are registered before.
    registerPasses();
    registerPassManagerCLOptions();
    registerDefaultTimingManagerCLOptions();
  });
  for (auto &[name, option] : cl::getRegisteredOptions())
    if (name.starts_with("mlir-"))
      option->reset();
  std::vector<const char *> arguments = {"mlir"};
  for (const std::string &option : options)
    arguments.push_back(option.c_str());
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  if (!cl::ParseCommandLineOptions(int(arguments.size()), arguments.data(), "",
                                   &stream)) {
    // Of values, LLVM says on the standard error what is wrong with them.
    if (problems.empty())
      return Error{"an option of MLIR's pass managers has a wrong value"};
    StringRef first = StringRef(problems).split("  Try:").first;
    first.consume_front("mlir: ");
    return Error{first.trim().str()};
  }
  applyDefaultTimingManagerCLOptions(timing);
  root = timing.getRootScope();
  return {};
}

Status nsa::PassDebugging::attach(PassManager &manager, TimingScope &scope,
                                  llvm::StringRef phase, unsigned number) {
  // Each manager numbers its passes from 0: their files need other folders.
  for (StringRef option : options)
    if (option.consume_front("--") && option.consume_front(kFolder) &&
        option.consume_front("=")) {
      std::string folder = llvm::formatv(
          "{0}/{1}-{2}", option,
          llvm::fmt_align(number, llvm::AlignStyle::Right, 2, '0'), phase);
      NSA_RETURN_IF_ERROR(createFolders(folder));
      cl::getRegisteredOptions()[kFolder]->addOccurrence(0, kFolder, folder,
                                                         /*MultiArg=*/true);
    }
  if (!options.empty() && failed(applyPassManagerCLOptions(manager)))
    return Error{"MLIR's options cannot be used"};
  // Last, so that the time of the others is not that of passes.
  manager.enableTiming(scope);
  return {};
}
