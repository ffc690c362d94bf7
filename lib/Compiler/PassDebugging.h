//===- PassDebugging.h - what pass managers show ----------------*- C++ -*-===//

#ifndef NSA_LIB_COMPILER_PASSDEBUGGING_H
#define NSA_LIB_COMPILER_PASSDEBUGGING_H

#include "mlir/Support/Timing.h"
#include "nsa/Compiler/Compiler.h"
#include "nsa/Support/Result.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"

#include <mutex>
#include <string>
#include <vector>

namespace mlir {
class PassManager;
} // namespace mlir

namespace nsa {

/// Gives every pass manager of a compilation the instrumentation that was asked
/// for. Prints the times of all of them when it ends.
class PassDebugging {
public:
  explicit PassDebugging(const PassManagerOptions &options);

  /// Whether passes may not run on several threads: their output would be
  /// mixed, and the state at a failure would be that of another pass.
  bool needsOneThread() const;

  /// Checks the options: passes that do not exist, files that cannot be
  /// written, and options that have no effect without others.
  Status check() const;

  /// The time of a phase; has to outlive the manager of its passes.
  mlir::TimingScope timePhase(llvm::StringRef phase);

  /// Adds what was asked for to the manager of a phase, the `number`th.
  Status attach(mlir::PassManager &manager, mlir::TimingScope &scope,
                llvm::StringRef phase, unsigned number);

  /// For each pass that was named and has not run: a warning.
  std::vector<std::string> findUnused();

private:
  class Recorder;
  Status attachPrinting(mlir::PassManager &manager, llvm::StringRef phase,
                        unsigned number);

  PassManagerOptions options;
  mlir::DefaultTimingManager timing;
  mlir::TimingScope root;
  std::mutex mutex;
  /// Names of the passes that have run.
  llvm::StringSet<> ran;
};

} // namespace nsa

#endif // NSA_LIB_COMPILER_PASSDEBUGGING_H
