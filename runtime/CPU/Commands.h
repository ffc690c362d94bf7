//===- Commands.h - commands with their addresses ---------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_COMMANDS_H
#define NSA_RUNTIME_CPU_COMMANDS_H

#include "runtime/CPU/FiniteCheck.h"
#include "runtime/CPU/Gemm.h"
#include "runtime/CPU/KernelLibrary.h"
#include "runtime/CPU/SelectionCheck.h"

#include <variant>
#include <vector>

namespace nsa {

struct LaunchCommand {
  KernelFunction kernel;
  std::vector<void *> arguments;
  int64_t programs;
};

struct FillCommand {
  DataType type;
  double value;
  void *out;
  int64_t count;
};

struct CopyCommand {
  const char *source;
  char *out;
  int64_t bytes;
};

struct InitializeCommand {
  const artifact::Tensor *tensor;
  void *out;
  int64_t count;
  uint64_t seed;
};

/// Start and end of a collective are two commands for the same data.
struct StartCollectiveCommand {
  CollectiveKind kind;
  void *data;
  int64_t count;
  DataType type;
};

struct FinishCollectiveCommand {
  void *data;
};

using Action = std::variant<LaunchCommand, GemmCommand, FillCommand,
                            CopyCommand, InitializeCommand,
                            StartCollectiveCommand, FinishCollectiveCommand>;

/// A command that is ready to run.
struct ReadyCommand {
  Action action;
  /// Filled only if results are checked.
  std::vector<FloatOutput> outputs;
  std::vector<SelectionInput> selections;
};

/// Runs a command inside a job of `pool`, which all of its threads may help
/// with. `blas` may be null if there is no gemm. Passes over collectives, which
/// are the caller's. Allocates nothing.
void runAction(const Action &action, const Blas *blas, ThreadPool &pool);

} // namespace nsa

#endif // NSA_RUNTIME_CPU_COMMANDS_H
