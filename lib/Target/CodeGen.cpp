//===- CodeGen.cpp - what code generators of all targets share ------------===//

#include "lib/Target/CodeGen.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Scalar/GVN.h"

using namespace llvm;

bool nsa::ErrorCollector::handleDiagnostics(const DiagnosticInfo &info) {
  if (info.getSeverity() != DS_Error)
    return true;
  raw_string_ostream stream(errors);
  if (!errors.empty())
    stream << "; ";
  DiagnosticPrinterRawOStream printer(stream);
  info.print(printer);
  return true;
}

void nsa::optimizeModule(Module &module, TargetMachine &machine, bool unroll,
                         bool forwardStores) {
  PipelineTuningOptions tuning;
  tuning.LoopUnrolling = unroll;
  PassBuilder builder(&machine, tuning);
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager components;
  ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  ModulePassManager passes =
      builder.buildPerModuleDefaultPipeline(OptimizationLevel::O2);
  if (forwardStores)
    passes.addPass(createModuleToFunctionPassAdaptor(GVNPass()));
  passes.run(module, modules);
}
