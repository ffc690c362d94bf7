//===- nsa-opt.cpp - run passes on a file ---------------------------------===//

#include "lib/Compiler/Registration.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  nsa::registerDialects(registry);
  nsa::registerPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "NSA pass driver\n", registry));
}
