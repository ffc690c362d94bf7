//===- nsa-model.cpp - a configuration to model.mlir ----------------------===//

#include "dialects/NN/NNDialect.h"
#include "dialects/NSA/NSADialect.h"
#include "lib/Frontend/ModelBuilder.h"
#include "lib/Support/Config.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;

static cl::OptionCategory category("nsa-model options");
static cl::opt<std::string> inputFile(cl::Positional, cl::Required,
                                      cl::desc("<config.yaml>"),
                                      cl::cat(category));
static cl::opt<std::string> outputFile("o", cl::desc("Output file"),
                                       cl::value_desc("model.mlir"),
                                       cl::init("-"), cl::cat(category));
static cl::list<std::string>
    overrides("set", cl::desc("Change a value: section.key=value"),
              cl::value_desc("section.key=value"), cl::cat(category));
static cl::opt<bool> noLocations("no-locations",
                                 cl::desc("Leave out where each value stands"),
                                 cl::cat(category));
static cl::opt<bool> locations("locations", cl::init(true), cl::Hidden,
                               cl::cat(category));

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::SetVersionPrinter(
      [](raw_ostream &os) { os << "nsa-model " NSA_VERSION "\n"; });
  cl::ParseCommandLineOptions(
      argc, argv, "Writes the model that a configuration describes\n");

  nsa::Result<nsa::RunConfig> config =
      nsa::loadConfig(inputFile, {overrides.begin(), overrides.end()});
  if (!config) {
    errs() << "nsa-model: error: " << config.message() << "\n";
    return 1;
  }
  mlir::DialectRegistry registry;
  registry
      .insert<mlir::func::FuncDialect, nsa::NSADialect, nsa::nn::NNDialect>();
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();
  mlir::OwningOpRef<mlir::ModuleOp> module = nsa::buildModel(&context, *config);
  if (mlir::failed(mlir::verify(*module)))
    return 1;

  std::string message;
  std::unique_ptr<ToolOutputFile> output =
      mlir::openOutputFile(outputFile, &message);
  if (!output) {
    errs() << "nsa-model: error: " << message << "\n";
    return 1;
  }
  module->print(output->os(), mlir::OpPrintingFlags().enableDebugInfo(
                                  locations && !noLocations));
  output->os() << "\n";
  output->keep();
  return 0;
}
