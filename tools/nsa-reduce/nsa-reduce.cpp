//===- nsa-reduce.cpp - make a failing module small -----------------------===//
//
// mlir-reduce with this project's dialects and passes: removes what a failure
// does not need from a module. A script says whether a module still fails.
//
//===----------------------------------------------------------------------===//

#include "lib/Compiler/Reduction.h"
#include "lib/Compiler/Registration.h"
#include "lib/Compiler/ToolOptions.h"
#include "lib/Support/Files.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Reducer/Passes.h"
#include "mlir/Support/LLVM.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "llvm/Support/InitLLVM.h"

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // After LLVM's handlers.
  nsa::ignoreFileSizeSignal();
  nsa::hideForeignOptions();
  mlir::DialectRegistry registry;
  nsa::registerDialects(registry);
  nsa::registerPasses();
  nsa::registerNSAReductionPasses();
  mlir::registerReducerPasses();
  mlir::MLIRContext context(registry);
  return failed(mlir::mlirReduceMain(argc, argv, context));
}
