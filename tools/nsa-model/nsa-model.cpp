//===- nsa-model.cpp - a configuration to model.mlir ----------------------===//

#include "dialects/NN/NNDialect.h"
#include "dialects/NSA/NSADialect.h"
#include "lib/Frontend/ModelBuilder.h"
#include "lib/Support/CommandLine.h"
#include "lib/Support/Config.h"
#include "lib/Support/Files.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;

static cl::OptionCategory category("nsa-model options");
static cl::opt<std::string> inputFile(cl::Positional, cl::desc("<config.yaml>"),
                                      cl::cat(category));
static cl::opt<bool>
    keys("keys",
         cl::desc("Print every key of a configuration with its default, "
                  "meaning and values, and do nothing else"),
         cl::cat(category));
static cl::opt<std::string>
    outputFile("o", cl::desc("Output file (default: standard output)"),
               cl::value_desc("model.mlir"), cl::init("-"), cl::cat(category));
static cl::list<std::string>
    overrides("set", cl::desc("Change a value: section.key=value"),
              cl::value_desc("section.key=value"), cl::cat(category));
int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  // After LLVM's handlers.
  nsa::ignoreFileSizeSignal();
  cl::HideUnrelatedOptions(category);
  cl::SetVersionPrinter(
      [](raw_ostream &os) { os << "nsa-model " NSA_VERSION "\n"; });
  cl::ParseCommandLineOptions(
      argc, argv, "Writes the model that a configuration describes\n");

  if (keys) {
    nsa::Status status = nsa::writeOutput("", nsa::printConfigReference());
    return status ? 0 : nsa::reportError("nsa-model", status.message());
  }
  if (inputFile.empty()) {
    errs() << "nsa-model: error: no configuration given; --keys shows what one "
              "may say\n";
    return 1;
  }
  nsa::Result<nsa::RunConfig> config =
      nsa::loadConfig(inputFile, {overrides.begin(), overrides.end()});
  if (!config) {
    errs() << "nsa-model: error: " << config.message() << "\n";
    return 1;
  }
  mlir::DialectRegistry registry;
  registry.insert<nsa::NSADialect, nsa::nn::NNDialect>();
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();
  mlir::OwningOpRef<mlir::ModuleOp> module =
      nsa::buildModel(&context, *config, sys::path::stem(inputFile));
  if (mlir::failed(mlir::verify(*module)))
    return 1;

  nsa::Status status = nsa::writeOutput(outputFile, nsa::printModel(*module));
  return status ? 0 : nsa::reportError("nsa-model", status.message());
}
