//===- Driver.h - one compilation -------------------------------*- C++ -*-===//

#ifndef NSA_LIB_COMPILER_DRIVER_H
#define NSA_LIB_COMPILER_DRIVER_H

#include "lib/Compiler/LayerMap.h"
#include "lib/Compiler/PassDebugging.h"
#include "lib/Compiler/RefusedSchedules.h"
#include "lib/Target/CPU/KernelCompiler.h"
#include "lib/Target/CUDA/CUDABinary.h"
#include "mlir/IR/Diagnostics.h"
#include "nsa/Compiler/Compiler.h"
#include "passes/Graph/Passes.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Support/raw_ostream.h"

namespace nsa {

/// A module on its way through the phases, with everything it needs.
class Driver {
public:
  Driver(const CompilerOptions &options, const DebugOptions &debug);

  /// Checks the options and reads the source.
  llvm::LogicalResult parse(const std::string &source, const std::string &name);

  /// Runs the phases from the first to `last`, each followed by its verifier.
  llvm::LogicalResult runPhases(Phase last);

  /// Calls `step` and adds the time that it took to the report.
  llvm::LogicalResult timed(llvm::StringRef name,
                            llvm::function_ref<llvm::LogicalResult()> step);

  mlir::ModuleOp getModule() { return *module; }

  /// The module as text, with lines broken as the debug options say.
  std::string getText();

  /// What was asked for; once the source is parsed, with its precision.
  const CompilerOptions &getOptions() const { return options; }

  /// The processor that the options name. Valid once the source is parsed.
  const CPUDescription &getCPU() const { return cpu; }

  /// The kernels' code, after the binary phase: the images of `rt.binary` in
  /// their order.
  llvm::SmallVector<llvm::ArrayRef<char>> getImages() const;

  /// Their PTX, after the binary phase for a GPU.
  llvm::StringRef getPTX() const;

  /// What the module needs by now; zeros where a phase has not run yet.
  CompileReport getReport();

  /// Everything reported so far, without the last newline.
  std::string takeMessages();

  /// Hands what was reported to what asked for it in the debug options.
  void passOnMessages();

private:
  llvm::LogicalResult checkOptions();
  llvm::LogicalResult checkNotEmpty();
  llvm::LogicalResult checkTypes();
  void warnOfUnusedOptions();
  void resolvePrecision();
  /// Whether kernels are to be cut once more by what has been refused of them.
  bool findsRefused(Phase phase, bool hasFailed);
  /// `number`: how many phases have run.
  llvm::LogicalResult runPhase(Phase phase, unsigned number);
  llvm::LogicalResult checkDebugOptions();
  llvm::LogicalResult savePhase(Phase phase, unsigned number);
  /// Writes the kernels as they leave the plan.
  llvm::LogicalResult saveKernels();

  CompilerOptions options;
  DebugOptions debug;
  PassDebugging passes;
  CPUDescription cpu;
  /// The GPU that the options name; null for the target cpu.
  const CUDAChip *chip = nullptr;
  std::optional<RefusedSchedules> refused;
  // The context outlives everything that refers to it.
  std::unique_ptr<llvm::DefaultThreadPool> threadPool;
  mlir::MLIRContext context;
  llvm::SourceMgr sourceManager;
  std::string messages;
  llvm::raw_string_ostream messageStream{messages};
  mlir::SourceMgrDiagnosticHandler diagnostics;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::shared_ptr<CPUBinary> binary = std::make_shared<CPUBinary>();
  std::shared_ptr<CUDABinary> cudaBinary = std::make_shared<CUDABinary>();
  /// Known after the gradient phase.
  LayerMap layers;
  std::vector<std::pair<std::string, double>> seconds;
};

} // namespace nsa

#endif // NSA_LIB_COMPILER_DRIVER_H
