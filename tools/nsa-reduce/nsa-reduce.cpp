//===- nsa-reduce.cpp - make a failing module small -----------------------===//
//
// mlir-reduce with this project's dialects and passes: removes what a failure
// does not need from a module. A script says whether a module still fails.
//
//===----------------------------------------------------------------------===//

#include "lib/Compiler/Reduction.h"
#include "lib/Compiler/Registration.h"
#include "lib/Compiler/TextLimits.h"
#include "lib/Compiler/ToolOptions.h"
#include "lib/Support/Files.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Reducer/Passes.h"
#include "mlir/Support/LLVM.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

/// Why the file among the arguments cannot be parsed, or nothing.
static std::string findUnparsableInput(llvm::ArrayRef<const char *> arguments) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    llvm::StringRef argument = arguments[i], before = arguments[i - 1];
    if (argument.starts_with("-") || before == "-o" || before == "--o")
      continue;
    // What cannot be read is reported later.
    if (auto source = llvm::MemoryBuffer::getFile(argument))
      return nsa::findUnparsable((*source)->getBuffer(), argument);
  }
  return "";
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // After LLVM's handlers.
  nsa::ignoreFileSizeSignal();
  if (std::string problem = findUnparsableInput({argv, size_t(argc)});
      !problem.empty()) {
    llvm::errs() << problem << "\n";
    return 1;
  }
  nsa::hideForeignOptions();
  mlir::DialectRegistry registry;
  nsa::registerDialects(registry);
  nsa::registerPasses();
  nsa::registerNSAReductionPasses();
  mlir::registerReducerPasses();
  mlir::MLIRContext context(registry);
  return failed(mlir::mlirReduceMain(argc, argv, context));
}
