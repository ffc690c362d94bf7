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
#include "llvm/Support/raw_ostream.h"
#include <sys/mman.h>
#include <unistd.h>

/// Makes the text what comes from the standard input.
static nsa::Status pipeIn(const std::string &text) {
  int fd = ::memfd_create("nsa-reduce", MFD_CLOEXEC);
  if (fd < 0 || ::write(fd, text.data(), text.size()) != ssize_t(text.size()) ||
      ::lseek(fd, 0, SEEK_SET) != 0 || ::dup2(fd, STDIN_FILENO) < 0)
    return nsa::systemError("cannot keep", "the standard input");
  return {};
}

/// Reads the input that the arguments name, of a bounded size, as MLIR's own
/// function does not, and says why it cannot be parsed. What comes from a pipe
/// or a device is given to that function by the standard input.
static nsa::Status checkInput(llvm::MutableArrayRef<char *> arguments) {
  static char standardInput[] = "-";
  for (size_t i = 1; i < arguments.size(); ++i) {
    llvm::StringRef argument = arguments[i], before = arguments[i - 1];
    bool isPiped = argument == "-";
    if ((argument.starts_with("-") && !isPiped) || before == "-o" ||
        before == "--o")
      continue;
    nsa::Result<std::string> text = nsa::readFile(
        isPiped ? "/dev/stdin" : argument.str(), nsa::mostPipedBytes);
    if (!text)
      return nsa::Error{"nsa-reduce: error: " + text.message()};
    if (std::string problem = nsa::findUnparsable(*text, argument);
        !problem.empty())
      return nsa::Error{problem};
    if (!isPiped && nsa::InputFile::open(argument.str()))
      return {};
    arguments[i] = standardInput;
    return pipeIn(*text);
  }
  return {};
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // After LLVM's handlers.
  nsa::ignoreFileSizeSignal();
  if (nsa::Status status = checkInput({argv, size_t(argc)}); !status) {
    llvm::errs() << status.message() << "\n";
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
