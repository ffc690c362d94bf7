//===- Pipelines.h - the phases of compilation ------------------*- C++ -*-===//
//
// A phase is a pipeline of passes followed by `nsa-verify-phase`, which reports
// what the phase should have removed. `nsa-compile` and `nsa-opt` run the same
// pipelines:
//
// - precision: nsa-specialize, nsa-merge-projections, nsa-precision
// - gradient: nsa-build-entries, nsa-differentiate, canonicalize, cse and, with
//   a policy, nsa-recompute, canonicalize, cse
// - optimizer: nsa-optimizer, canonicalize, cse, nsa-chunk-loss, nsa-fuse
// - kernel: nsa-convert-to-tile, canonicalize, cse
// - buffer: nsa-buffer, canonicalize, cse
// - schedule: nsa-schedule
// - collective: nsa-bucket-all-reduce, nsa-overlap-all-reduce, on demand
//   nsa-narrow-all-reduce
// - plan: nsa-plan
// - of GPUs, layout: nsa-note-argument-alignment, canonicalize, cse,
//   loop-invariant-code-motion, nsa-assign-layouts
// - of GPUs, nvvm: nsa-outline-kernels, nsa-tile-to-nvvm, upstream conversions
// - binary: nsa-binary, or nsa-serialize-kernels for GPUs
//
// `nsa-phase-X` is the pipeline of phase X.
//
// The phases from layout on make machine code and are built in lib/Compiler.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_PIPELINES_PIPELINES_H
#define NSA_PASSES_PIPELINES_PIPELINES_H

#include "passes/Conversion/Passes.h"
#include "passes/Conversion/TensorToRT/Passes.h"
#include "passes/Transforms/Passes.h"

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace nsa {

/// What the phases before the binary depend on.
struct PhaseOptions {
  /// Sequences in a micro-batch; 0 keeps what the model says.
  int64_t microBatch = 0;
  /// Tokens in a sequence; 0 keeps what the model says.
  int64_t seqLen = 0;
  ComputePrecision precision = ComputePrecision::FP32;
  /// Whether operations are fused before they become kernels.
  bool fuse = true;
  /// MiB that logits and their gradient may take at once, if operations are
  /// fused.
  int64_t logitsMiB = kDefaultLogitsMiB;
  /// What the backward half of training computes again.
  RecomputePolicy recompute = RecomputePolicy::None;
  /// MiB that values kept for the backward half may need; 0 is no limit to what
  /// is computed again.
  int64_t budgetMiB = 0;
  /// The machine that kernels are cut into programs for.
  ScheduleKind schedule = ScheduleKind::CPU;
  /// Sizes of tiles of attention; 0 leaves them to the conversion.
  TileSizes tileSizes;
  /// MiB of gradients that are averaged over ranks as one.
  int64_t bucketMiB = kDefaultBucketMiB;
  /// Whether they go from rank to rank in bf16.
  bool reduceInBF16 = false;
  /// Ranks that share the optimizer's state; 1 if each has all of it.
  int64_t shardRanks = 1;
  /// Bytes of workspace of every matrix product; 0 takes what fp32 copies of
  /// narrower operands need.
  uint64_t gemmWorkspace = 0;
};

/// Appends the passes of one phase and its verifier to a manager of modules.
/// The phase is none behind `Phase::Plan`.
void buildPhasePipeline(mlir::OpPassManager &manager, Phase phase,
                        const PhaseOptions &options);

/// Registers `nsa-phase-precision` to `nsa-phase-plan`, and `nsa-pipeline`,
/// which runs the phases from the first to `until`.
void registerPhasePipelines();

} // namespace nsa

#endif // NSA_PASSES_PIPELINES_PIPELINES_H
