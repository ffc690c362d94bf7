//===- CodeGen.h - what code generators of all targets share ----*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CODEGEN_H
#define NSA_LIB_TARGET_CODEGEN_H

#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/Module.h"
#include <string>

namespace llvm {
class TargetMachine;
} // namespace llvm

namespace nsa {

/// Collects the errors that LLVM reports while it works on one module,
/// separated by semicolons. Without it LLVM would print and exit. `errors` must
/// outlive the module's context.
struct ErrorCollector : llvm::DiagnosticHandler {
  explicit ErrorCollector(std::string &errors) : errors(errors) {}

  bool handleDiagnostics(const llvm::DiagnosticInfo &info) override;
  bool isAnyRemarkEnabled() const override { return false; }

  std::string &errors;
};

/// Runs LLVM's pipeline of level O2 for the machine, with the unrolling of
/// loops if `unroll`. With `forwardStores`, what a block has stored is not
/// loaded again in it.
void optimizeModule(llvm::Module &module, llvm::TargetMachine &machine,
                    bool unroll, bool forwardStores);

} // namespace nsa

#endif // NSA_LIB_TARGET_CODEGEN_H
