//===- Pipelines.h - the phases of compilation ------------------*- C++ -*-===//
//
// A phase is a pipeline of passes followed by `nsa-verify-phase`, which reports
// what the phase should have removed. `nsa-compile` and `nsa-opt` run the same
// pipelines:
//
// - precision: nsa-expand-model, nsa-set-machine, nsa-set-input-shapes,
//   nsa-limit-selection, nsa-assign-optimizers, nsa-merge-projections,
//   nsa-precision
// - gradient: nsa-build-entries, for ranks that share sequences
//   nsa-shard-sequence, nsa-differentiate, canonicalize, cse and, with
//   a policy, nsa-recompute, canonicalize, cse; with a context,
//   nsa-derive-decode and nsa-limit-selection first
// - optimizer: nsa-optimizer, canonicalize, cse, nsa-chunk-loss, nsa-fuse,
//   for several ranks nsa-shard-optimizer, and nsa-expand-updates
// - kernel: nsa-note-compressed-extents, of GPUs nsa-launch-decode-steps,
//   nsa-launch-vector-matmuls, nsa-use-library-types,
//   nsa-rotate-with-compression, nsa-select-schedule; nsa-convert-to-tile,
//   canonicalize, cse
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

#include "nsa/Compiler/Options.h"
#include "passes/Graph/Passes.h"
#include "passes/Host/Passes.h"
#include "passes/Kernels/Passes.h"

#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"

#include <functional>
#include <string>

namespace nsa {

/// What the phases before the binary depend on.
struct PhaseOptions : CompilerOptions {
  /// Rows of one MMA of the GPU that kernels are cut for: 16, or 64 of
  /// warpgroups; 0 for a CPU.
  int64_t mmaRows = 0;
  /// Bytes of workspace of every matmul; 0 takes what fp32 copies of narrower
  /// operands need.
  uint64_t gemmWorkspace = 0;
};

/// Appends the passes of one phase and its verifier to a manager of modules.
/// The phase is `Phase::Plan` or an earlier one.
void buildPhasePipeline(mlir::OpPassManager &manager, Phase phase,
                        const PhaseOptions &options);

/// Registers a pipeline whose options are made of `arguments`. `build` returns
/// why they make no sense, or an empty string: mlir::PassPipelineRegistration
/// cannot refuse any.
template <typename Options, typename... Arguments>
void registerPipeline(llvm::StringRef name, llvm::StringRef description,
                      const std::function<std::string(mlir::OpPassManager &,
                                                      const Options &)> &build,
                      Arguments... arguments) {
  mlir::registerPassPipeline(
      name, description,
      [=](mlir::OpPassManager &manager, llvm::StringRef text,
          llvm::function_ref<llvm::LogicalResult(const llvm::Twine &)> fail)
          -> llvm::LogicalResult {
        Options options(arguments...);
        if (failed(options.parseFromString(text)))
          return llvm::failure();
        std::string problem = build(manager, options);
        return problem.empty() ? llvm::success() : fail(problem);
      },
      [=](llvm::function_ref<void(const mlir::detail::PassOptions &)> show) {
        show(Options(arguments...));
      });
}

/// Registers `nsa-phase-precision` to `nsa-phase-plan`, and `nsa-pipeline`,
/// which runs the phases from the first to `until`.
void registerPhasePipelines();

} // namespace nsa

#endif // NSA_PASSES_PIPELINES_PIPELINES_H
