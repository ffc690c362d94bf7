//===- PassDebugging.h - what pass managers show ----------------*- C++ -*-===//

#ifndef NSA_LIB_COMPILER_PASSDEBUGGING_H
#define NSA_LIB_COMPILER_PASSDEBUGGING_H

#include "mlir/Support/Timing.h"
#include "nsa/Support/Result.h"
#include "llvm/ADT/StringRef.h"

#include <mutex>
#include <string>
#include <vector>

namespace mlir {
class PassManager;
} // namespace mlir

namespace nsa {

/// Gives every pass manager of a compilation what MLIR's options ask for, and
/// prints the times of all of them when it ends. LLVM has one value of an
/// option for the whole process: compilations with options wait for each other.
class PassDebugging {
public:
  /// Of options as on a command line: "--mlir-print-ir-after=cse".
  explicit PassDebugging(std::vector<std::string> options)
      : options(std::move(options)) {}

  /// Whether passes may not run on several threads: their output would be
  /// mixed, and the state at a failure would be that of another pass.
  bool needsOneThread() const { return !options.empty(); }

  /// Reads the options, before anything else. An error is that of MLIR's.
  Status read();

  /// The time of a phase; has to outlive the manager of its passes.
  mlir::TimingScope timePhase(llvm::StringRef phase) {
    return root.nest(phase);
  }

  /// Adds what was asked for to the manager of a phase, the `number`th.
  Status attach(mlir::PassManager &manager, mlir::TimingScope &scope,
                llvm::StringRef phase, unsigned number);

private:
  std::vector<std::string> options;
  std::unique_lock<std::mutex> lock;
  mlir::DefaultTimingManager timing;
  mlir::TimingScope root;
};

} // namespace nsa

#endif // NSA_LIB_COMPILER_PASSDEBUGGING_H
