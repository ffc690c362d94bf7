//===- Pipelines.h - the phases of compilation ------------------*- C++ -*-===//
//
// A phase is a pipeline of passes followed by `nsa-verify-phase`, which reports
// what the phase should have removed. `nsa-compile` and `nsa-opt` run the same
// pipelines:
//
// - precision: nsa-expand-model, nsa-set-machine, nsa-set-input-shapes,
//   nsa-limit-selection, nsa-assign-optimizers, nsa-merge-projections,
//   nsa-precision
// - gradient: nsa-build-entries, nsa-differentiate, canonicalize, cse and, with
//   a policy, nsa-recompute, canonicalize, cse; with a context,
//   nsa-derive-decode and nsa-limit-selection first
// - optimizer: nsa-optimizer, canonicalize, cse, nsa-chunk-loss, nsa-fuse,
//   for several ranks nsa-shard-optimizer, and nsa-expand-updates
// - kernel: nsa-note-compressed-extents, of GPUs nsa-launch-decode-steps,
//   nsa-launch-vector-matmuls, nsa-use-library-types,
//   nsa-rotate-with-compression, nsa-select-schedule, nsa-separate-gathered;
//   nsa-convert-to-tile, canonicalize, cse
// - buffer: nsa-buffer, canonicalize, cse
// - schedule: nsa-schedule
// - collective: nsa-bucket-all-reduce, nsa-overlap-all-reduce, on demand
//   nsa-compress-gradients
// - plan: nsa-plan
// - of GPUs, layout: nsa-note-argument-alignment, nsa-note-launch-overlap,
//   canonicalize, cse, loop-invariant-code-motion, tile-simplify,
//   nsa-assign-layouts, tile-gpu-assign-layouts
// - of GPUs, nvvm: nsa-outline-kernels, tile-gpu-allocate-shared-memory,
//   tile-gpu-pipeline, tile-gpu-warp-specialize, tile-gpu-insert-barriers,
//   tile-gpu-verify-synchronization, nsa-tile-to-nvvm,
//   convert-tile-gpu-to-nvvm, upstream conversions
// - binary: nsa-binary, or nsa-serialize-kernels for GPUs
//
// `nsa-phase-X` is the pipeline of phase X.
//
// The phases from layout on make machine code and are built in lib/Compiler.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_PIPELINES_PIPELINES_H
#define NSA_PASSES_PIPELINES_PIPELINES_H

#include "passes/Graph/Passes.h"
#include "passes/Host/Passes.h"
#include "passes/Kernels/Passes.h"

#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"

#include <functional>
#include <string>

namespace nsa {

/// What the phases before the binary depend on. These are the options of
/// nsa-opt's pipelines, and nsa-compile and the Python module hand theirs over
/// by the same names; only the machine has a name of its own there.
struct PhaseOptions : mlir::PassPipelineOptions<PhaseOptions> {
  Option<int64_t> microBatch{
      *this, "micro-batch",
      llvm::cl::desc("Sequences per call; 0 keeps what the model says")};
  Option<int64_t> seqLen{
      *this, "seq-len",
      llvm::cl::desc("Tokens per sequence; 0 keeps what the model says")};
  Option<int64_t> context{
      *this, "context",
      llvm::cl::desc("Tokens of a sequence that is generated, at most: entries "
                     "that generate instead of those that train; 0 for none")};
  Option<int64_t> sampleContext{
      *this, "sample-context",
      llvm::cl::desc("Tokens of a sample that is generated beside training, at "
                     "most: the entry decode in place of forward; 0 for none")};
  Option<bool> forward{*this, "forward",
                       llvm::cl::desc("Whether to make the entry forward"),
                       llvm::cl::init(true)};
  Option<ComputePrecision> precision{
      *this, "precision", llvm::cl::desc("The compute type"),
      llvm::cl::init(ComputePrecision::Model), getPrecisionValues()};
  Option<bool> fuse{
      *this, "fuse",
      llvm::cl::desc("Whether operations are fused into fewer commands"),
      llvm::cl::init(true)};
  Option<int64_t> logitsMiB{
      *this, "logits-mib",
      llvm::cl::desc("MiB that logits and their gradient may take at once, if "
                     "operations are fused"),
      llvm::cl::init(kDefaultLogitsMiB)};
  Option<RecomputePolicy> recompute{
      *this, "recompute",
      llvm::cl::desc("What backward computes again instead of keeping it"),
      getRecomputeValues()};
  Option<int64_t> recomputeBudget{
      *this, "recompute-budget",
      llvm::cl::desc("MiB that values kept for backward may need; 0 is no "
                     "limit to what is computed again")};
  Option<int64_t> mmaRows{
      *this, "mma-rows",
      llvm::cl::desc("Rows of one MMA of the GPU that kernels are cut for: 16, "
                     "or 64 of warpgroups; 0 for a CPU")};
  Option<int64_t> bucketMiB{
      *this, "bucket-mib",
      llvm::cl::desc("MiB of gradients that are averaged over ranks as one"),
      llvm::cl::init(kDefaultBucketMiB)};
  Option<ComputePrecision> reducePrecision{
      *this, "reduce-precision",
      llvm::cl::desc("In what gradients go from rank to rank"),
      llvm::cl::values(
          clEnumValN(ComputePrecision::FP32, "fp32", "fp32"),
          clEnumValN(ComputePrecision::BF16, "bf16", "bf16, half the bytes"))};
  Option<std::string> optimizer{
      *this, "optimizer",
      llvm::cl::desc("The optimizer: the name of its operation without `nn.`"),
      llvm::cl::init(training::defaultOptimizer)};
  Option<int64_t> shardRanks{
      *this, "shard-optimizer",
      llvm::cl::desc("Ranks that share the optimizer's state; 1 if each has "
                     "all of it"),
      llvm::cl::init(1)};
  Option<uint64_t> gemmWorkspace{
      *this, "gemm-workspace",
      llvm::cl::desc("Bytes of workspace of every matmul; 0 takes what "
                     "fp32 copies of narrower operands need")};

  /// Whether there is an option of this name.
  bool has(llvm::StringRef name) const { return OptionsMap.contains(name); }

  /// An option that was given and that no pass of the phase reads, or an empty
  /// string.
  llvm::StringRef findUnused(Phase phase) const;
};

/// Appends the passes of one phase and its verifier to a manager of modules.
/// The phase is `Phase::Plan` or an earlier one.
void buildPhasePipeline(mlir::OpPassManager &manager, Phase phase,
                        const PhaseOptions &options);

/// Registers a pipeline. `build` returns why its options make no sense, or an
/// empty string: mlir::PassPipelineRegistration cannot refuse any.
template <typename Options>
void registerPipeline(
    llvm::StringRef name, llvm::StringRef description,
    const std::function<std::string(mlir::OpPassManager &, const Options &)>
        &build) {
  mlir::registerPassPipeline(
      name, description,
      [build](mlir::OpPassManager &manager, llvm::StringRef text,
              llvm::function_ref<llvm::LogicalResult(const llvm::Twine &)> fail)
          -> llvm::LogicalResult {
        Options options;
        if (failed(options.parseFromString(text)))
          return llvm::failure();
        std::string problem = build(manager, options);
        return problem.empty() ? llvm::success() : fail(problem);
      },
      [](llvm::function_ref<void(const mlir::detail::PassOptions &)> show) {
        show(Options());
      });
}

/// Registers `nsa-phase-precision` to `nsa-phase-plan`, and `nsa-pipeline`,
/// which runs the phases from the first to `until`.
void registerPhasePipelines();

} // namespace nsa

#endif // NSA_PASSES_PIPELINES_PIPELINES_H
