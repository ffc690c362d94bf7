//===- OptTool.cpp - what nsa-opt does ------------------------------------===//

#include "lib/Compiler/OptTool.h"
#include "lib/Compiler/Reduction.h"
#include "lib/Compiler/Registration.h"
#include "lib/Compiler/TextLimits.h"
#include "lib/Compiler/ToolOptions.h"
#include "lib/Support/CommandLine.h"
#include "lib/Support/Files.h"
#include "lib/Support/LineBreaks.h"
#include "lib/Support/Suggest.h"
#include "lib/Support/Text.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Reducer/Passes.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "passes/Graph/Passes.h"
#include "passes/Support/Debug.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"

namespace cl = llvm::cl;

/// Turns on what --debug-only names. Returns an exit code if that makes no
/// sense.
static std::optional<int>
enableDebugTypes(llvm::ArrayRef<std::string> types,
                 const std::vector<std::string> &known) {
  for (const std::string &type : types) {
    int number = nsa::debug::find(type);
    if (number < 0) {
      nsa::reportError("nsa-opt", "unknown debug type " + nsa::quote(type) +
                                      nsa::suggestion(type, known) +
                                      "; the types are " +
                                      llvm::join(known, ", "));
      return nsa::exitUsage;
    }
    nsa::debug::enable(number);
  }
  // With threads, lines would come in another order each time.
  if (!types.empty())
    cl::getRegisteredOptions()["mlir-disable-threading"]->addOccurrence(
        0, "mlir-disable-threading", "true");
  return std::nullopt;
}

/// Whether a tensor of the text may have an extent that is known at the call.
static bool mayHaveExtents(llvm::StringRef text) {
  constexpr llvm::StringLiteral begin = "tensor<";
  while (true) {
    size_t at = text.find(begin);
    if (at == llvm::StringRef::npos)
      return false;
    text = text.drop_front(at + begin.size());
    if (text.take_while([](char c) { return llvm::isAlnum(c) || c == '?'; })
            .contains('?'))
      return true;
  }
}

/// The configuration for a text with extents: numbers take their place first,
/// and no operation is verified with them. Tests of what is wrong have none.
static mlir::MlirOptMainConfig
bindExtentsFirst(const mlir::MlirOptMainConfig &config) {
  mlir::MlirOptMainConfig own = config;
  own.verifyOnParsing(false);
  own.setPassPipelineSetupFn([config](mlir::PassManager &manager) {
    manager.addPass(nsa::createBindExtents());
    return config.setupPassPipeline(manager);
  });
  return own;
}

/// What MlirOptMain does with files, for text of a bounded size that its parser
/// can read. What a run that fails would print is not written.
static int run(const std::string &input, const std::string &output,
               mlir::DialectRegistry &registry,
               const mlir::MlirOptMainConfig &config, size_t columns) {
  bool isPiped = input == "-";
  nsa::Result<std::string> text =
      nsa::readFile(isPiped ? "/dev/stdin" : input, nsa::mostPipedBytes);
  if (!text)
    return nsa::reportError("nsa-opt", text.message());
  std::string name = isPiped ? "<stdin>" : input;
  if (std::string error = nsa::findUnparsable(*text, name); !error.empty()) {
    llvm::errs() << error << "\n";
    return 1;
  }
  std::string result;
  llvm::raw_string_ostream stream(result);
  bool bindsExtents =
      !config.shouldVerifyDiagnostics() && mayHaveExtents(*text);
  if (failed(mlir::MlirOptMain(
          stream, llvm::MemoryBuffer::getMemBuffer(*text, name), registry,
          bindsExtents ? bindExtentsFirst(config) : config)))
    return 1;
  stream.flush();
  bool isText = !config.shouldEmitBytecode();
  nsa::Status status = nsa::writeOutput(
      output, isText && columns ? nsa::breakLines(result, columns) : result);
  return status ? 0 : nsa::reportError("nsa-opt", status.message());
}

int nsa::runOptTool(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // After LLVM's handlers.
  nsa::ignoreFileSizeSignal();
  nsa::hideForeignOptions();
  cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << "nsa-opt " NSA_VERSION ", LLVM " LLVM_VERSION_STRING "\n";
  });
  const std::vector<std::string> debugTypes(std::begin(nsa::debug::types),
                                            std::end(nsa::debug::types));
  const std::string debugHelp =
      "Print what these passes consider and choose: " +
      llvm::join(debugTypes, ", ");
  // LLVM with assertions has one of this name, for types of its own.
  if (cl::Option *foreign = cl::getRegisteredOptions().lookup("debug-only"))
    foreign->removeArgument();
  cl::list<std::string> debugOnly("debug-only", cl::CommaSeparated,
                                  cl::value_desc("type,..."),
                                  cl::desc(debugHelp));

  cl::opt<unsigned> columns(
      "columns", cl::init(nsa::kIRColumns), cl::value_desc("n"),
      cl::desc("Break longer lines; 0 leaves them as they are"));

  mlir::DialectRegistry registry;
  nsa::registerDialects(registry);
  nsa::registerPasses();
  nsa::registerNSAReductionPasses();
  mlir::registerReducerPasses();
  auto [input, output] = mlir::registerAndParseCLIOptions(
      argc, argv, "NSA pass driver\n", registry);
  if (std::optional<int> code = enableDebugTypes(debugOnly, debugTypes))
    return *code;
  auto config = mlir::MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses())
    return mlir::asMainReturnCode(
        mlir::MlirOptMain(argc, argv, input, output, registry));
  return run(input, output, registry, config, columns);
}
