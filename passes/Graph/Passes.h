//===- Passes.h - transformations of the model graph ------------*- C++ -*-===//
//
// The passes of the phases precision, gradient and optimizer, and the verifier
// that runs after every phase. Passes.td documents each.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_GRAPH_PASSES_H
#define NSA_PASSES_GRAPH_PASSES_H

#include "dialects/NN/NNDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "nsa/Artifact/TrainingContract.h"

namespace nsa {

/// The type in which a model computes; parameters are fp32 in any case.
enum class ComputePrecision { FP32, BF16, FP16, Model };

/// Its values as an option.
inline auto getPrecisionValues() {
  return llvm::cl::values(
      clEnumValN(ComputePrecision::Model, "model",
                 "what the module says, fp32 if it says nothing"),
      clEnumValN(ComputePrecision::FP32, "fp32", "everything in fp32"),
      clEnumValN(
          ComputePrecision::FP16, "fp16",
          "f16 operands, fp32 statistics and master weights, scaled loss"),
      clEnumValN(ComputePrecision::BF16, "bf16",
                 "bf16 operands, fp32 statistics and master weights"));
}

/// The precision called "fp32", "bf16" or "fp16".
std::optional<ComputePrecision> parsePrecision(llvm::StringRef name);

/// What the backward graph of a training function computes again instead of
/// reading it from memory.
enum class RecomputePolicy { None, Cheap, Block };

/// Its values as an option.
inline auto getRecomputeValues() {
  return llvm::cl::values(
      clEnumValN(RecomputePolicy::None, "none", "nothing"),
      clEnumValN(RecomputePolicy::Cheap, "cheap",
                 "elementwise operations, norms, rotations, casts"),
      clEnumValN(RecomputePolicy::Block, "block",
                 "everything in a layer but attention outputs"));
}

/// The largest budget of `nsa-recompute`, in MiB.
inline constexpr int64_t kMaxRecomputeBudget = int64_t(1) << 40;

/// MiB that logits and their gradient may be allowed at once, and the chunks
/// into which they are cut, at most.
inline constexpr int64_t kMaxLogitsMiB = int64_t(1) << 40;
inline constexpr int64_t kMaxChunks = 8;

/// The phases of compilation, in order.
enum class Phase {
  Precision,
  Gradient,
  Optimizer,
  Kernel,
  Buffer,
  Schedule,
  Collective,
  Plan,
  /// Of GPUs only, as is the next one.
  Layout,
  NVVM,
  Binary,
};

/// "precision", "gradient", ..., "binary".
llvm::StringRef getPhaseName(Phase phase);

#define GEN_PASS_DECL
#include "passes/Graph/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/Graph/Passes.h.inc"

} // namespace nsa

#endif // NSA_PASSES_GRAPH_PASSES_H
