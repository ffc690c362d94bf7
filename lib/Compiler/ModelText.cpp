//===- ModelText.cpp - a configuration to the text of its model -----------===//

#include "dialects/NN/NNDialect.h"
#include "dialects/NSA/NSADialect.h"
#include "lib/Frontend/ModelBuilder.h"
#include "lib/Support/Stages.h"
#include "mlir/IR/Verifier.h"
#include "nsa/Compiler/Compiler.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace nsa;

Result<std::string>
nsa::makeModelText(const std::string &config, const std::string &name,
                   const std::vector<std::string> &overrides, size_t stage) {
  NSA_ASSIGN_OR_RETURN(RunConfig parsed, parseConfig(config, name, overrides));
  size_t stages = std::max<size_t>(parsed.stages.size(), 1);
  if (stage < 1 || stage > stages)
    return Error{"there is no stage " + std::to_string(stage) +
                 ", the configuration has " + std::to_string(stages)};
  applyStage(parsed, stage - 1);
  DialectRegistry registry;
  registry.insert<NSADialect, nn::NNDialect>();
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  std::string messages;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    messages += (messages.empty() ? "" : "\n") + diagnostic.str();
  });
  OwningOpRef<ModuleOp> module =
      buildModel(&context, parsed, llvm::sys::path::stem(name));
  if (failed(verify(*module)))
    return Error{messages};
  return printModel(*module);
}
