//===- nsa-lsp-server.cpp - a language server for MLIR files --------------===//
//
// mlir-lsp-server with this project's dialects: an editor that speaks the
// language server protocol shows errors, types and definitions of model.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Compiler/Registration.h"
#include "lib/Compiler/ToolOptions.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  nsa::hideForeignOptions();
  mlir::DialectRegistry registry;
  nsa::registerDialects(registry);
  return failed(mlir::MlirLspServerMain(argc, argv, registry));
}
