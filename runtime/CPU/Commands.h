//===- Commands.h - commands with their addresses ---------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_COMMANDS_H
#define NSA_RUNTIME_CPU_COMMANDS_H

#include "nsa/Runtime/Communicator.h"
#include "runtime/CPU/FiniteCheck.h"
#include "runtime/CPU/Gemm.h"
#include "runtime/CPU/KernelLibrary.h"
#include "runtime/CPU/SelectionCheck.h"
#include "runtime/Core/Parts.h"

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
  std::vector<CopyBytes> ranges;
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
  SequenceRows rows;
};

struct FinishCollectiveCommand {
  void *data;
};

using Action = std::variant<LaunchCommand, GemmCommand, FillCommand,
                            CopyCommand, InitializeCommand,
                            StartCollectiveCommand, FinishCollectiveCommand>;

/// A gemm with the addresses that `address` gives for slices.
template <typename AddressFn>
GemmCommand resolveGemm(const artifact::Gemm &gemm, AddressFn address) {
  const artifact::Slice &addend = gemm.addend() ? *gemm.addend() : *gemm.out();
  return {int64_t(gemm.m()),
          int64_t(gemm.n()),
          int64_t(gemm.k()),
          gemm.transpose_lhs(),
          gemm.transpose_rhs(),
          gemm.lhs_type(),
          gemm.rhs_type(),
          gemm.out_type(),
          int64_t(gemm.batch()),
          gemm.alpha(),
          gemm.beta(),
          address(*gemm.lhs()),
          address(*gemm.rhs()),
          address(addend),
          address(*gemm.out()),
          gemm.workspace() ? address(*gemm.workspace()) : nullptr};
}

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
