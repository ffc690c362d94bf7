//===- Pipelines.cpp - the phases of compilation --------------------------===//

#include "passes/Pipelines/Pipelines.h"
#include "dialects/RT/RTOps.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace nsa;

static void addCleanUp(OpPassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

static ConvertToTileOptions getConversion(const PhaseOptions &options) {
  ConvertToTileOptions conversion;
  conversion.schedule = options.schedule;
  conversion.forwardQueries = options.tileSizes.forwardQueries;
  conversion.forwardKeys = options.tileSizes.forwardKeys;
  conversion.backwardQueries = options.tileSizes.backwardQueries;
  conversion.backwardKeys = options.tileSizes.backwardKeys;
  conversion.selectedQueries = options.tileSizes.selectedQueries;
  conversion.selectedKeys = options.tileSizes.selectedKeys;
  conversion.gatheredQueries = options.tileSizes.gatheredQueries;
  conversion.selectQueries = options.tileSizes.selectQueries;
  conversion.selectBlocks = options.tileSizes.selectBlocks;
  return conversion;
}

static void addPasses(OpPassManager &manager, Phase phase,
                      const PhaseOptions &options) {
  switch (phase) {
  case Phase::Precision:
    manager.addPass(createSpecialize({options.microBatch, options.seqLen}));
    manager.addNestedPass<func::FuncOp>(createLimitSelection());
    // Copies of 16 bytes and matrix products on tensor cores need rows of
    // 8 halves.
    if (options.fuse)
      manager.addPass(createMergeProjections(
          {options.schedule == ScheduleKind::CPU ? 1 : 8}));
    manager.addPass(createPrecision({options.precision}));
    return;
  case Phase::Gradient:
    manager.addPass(createBuildEntries());
    manager.addNestedPass<func::FuncOp>(createDifferentiate());
    addCleanUp(manager);
    if (options.recompute == RecomputePolicy::None && options.budgetMiB == 0)
      return;
    manager.addNestedPass<func::FuncOp>(
        createRecompute({options.recompute, options.budgetMiB}));
    return addCleanUp(manager);
  case Phase::Optimizer:
    manager.addPass(createOptimizer());
    addCleanUp(manager);
    if (options.fuse) {
      manager.addNestedPass<func::FuncOp>(createFuseAttention());
      manager.addNestedPass<func::FuncOp>(createChunkLoss({options.logitsMiB}));
      manager.addPass(
          createFuse({KernelSchedule::get(options.schedule).mostPartialSums}));
    }
    // Refuses updates that were not fused.
    if (options.shardRanks == 1)
      return;
    manager.addPass(createShardOptimizer({options.shardRanks}));
    return addCleanUp(manager);
  case Phase::Kernel:
    manager.addPass(createConvertToTile(getConversion(options)));
    return addCleanUp(manager);
  case Phase::Buffer:
    manager.addPass(createBuffer());
    return addCleanUp(manager);
  case Phase::Schedule:
    manager.addNestedPass<rt::EntryOp>(createSchedule());
    return;
  case Phase::Collective:
    manager.addPass(createBucketAllReduce({options.bucketMiB}));
    manager.addPass(createScatterReductions());
    manager.addNestedPass<rt::EntryOp>(createOverlapAllReduce());
    if (options.reduceInBF16)
      manager.addPass(createNarrowAllReduce());
    return;
  case Phase::Plan:
    manager.addPass(createPlan({options.gemmWorkspace}));
    return;
  case Phase::Layout:
  case Phase::NVVM:
  case Phase::Binary:
    break;
  }
  llvm_unreachable("phases that make machine code are not built here");
}

void nsa::buildPhasePipeline(OpPassManager &manager, Phase phase,
                             const PhaseOptions &options) {
  addPasses(manager, phase, options);
  manager.addPass(createVerifyPhase({phase}));
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

namespace {
/// The options of the phases that have some, on a command line.
struct ModelPipelineOptions : PassPipelineOptions<ModelPipelineOptions> {
  Option<int64_t> microBatch{
      *this, "micro-batch",
      llvm::cl::desc("Sequences in a micro-batch, 0 to keep what is written")};
  Option<int64_t> seqLen{
      *this, "seq-len",
      llvm::cl::desc("Tokens in a sequence, 0 to keep what is written")};
  Option<ComputePrecision> precision{
      *this, "precision", llvm::cl::desc("The compute type"),
      llvm::cl::values(
          clEnumValN(ComputePrecision::FP32, "fp32", "everything in fp32"),
          clEnumValN(ComputePrecision::FP16, "fp16",
                     "f16 operands, fp32 statistics and master weights, scaled "
                     "loss"),
          clEnumValN(ComputePrecision::BF16, "bf16",
                     "bf16 operands, fp32 statistics"))};

  PhaseOptions get() const {
    PhaseOptions options;
    options.microBatch = microBatch;
    options.seqLen = seqLen;
    options.precision = precision;
    return options;
  }
};

/// What the optimizer phase and the pipeline of all phases share.
template <typename BaseT>
struct WithFusion : BaseT {
  detail::PassOptions::Option<bool> fuse{
      *this, "fuse",
      llvm::cl::desc("Whether operations are fused into fewer commands"),
      llvm::cl::init(true)};
  detail::PassOptions::Option<int64_t> logitsMiB{
      *this, "logits-mib",
      llvm::cl::desc("MiB that logits and their gradient may take at once"),
      llvm::cl::init(kDefaultLogitsMiB)};
  detail::PassOptions::Option<int64_t> shardRanks{
      *this, "shard-ranks",
      llvm::cl::desc("Ranks that share the optimizer's state"),
      llvm::cl::init(1)};

  void addTo(PhaseOptions &options) const {
    options.shardRanks = shardRanks;
    options.fuse = fuse;
    options.logitsMiB = logitsMiB;
  }
};

/// What the phases that know the machine and the pipeline of all phases share.
template <typename BaseT>
struct WithSchedule : BaseT {
  detail::PassOptions::Option<ScheduleKind> schedule{
      *this, "schedule",
      llvm::cl::desc("The machine that kernels are cut into programs for"),
      llvm::cl::values(
          clEnumValN(ScheduleKind::CPU, "cpu", "a few threads"),
          clEnumValN(ScheduleKind::CUDA, "cuda", "the blocks of a GPU"),
          clEnumValN(ScheduleKind::Hopper, "hopper",
                     "the same, and warpgroups multiply")),
      llvm::cl::init(ScheduleKind::CPU)};

  void addTo(PhaseOptions &options) const { options.schedule = schedule; }
};

struct OptimizerPipelineOptions
    : WithSchedule<WithFusion<PassPipelineOptions<OptimizerPipelineOptions>>> {
  PhaseOptions get() const {
    PhaseOptions options;
    WithFusion::addTo(options);
    WithSchedule::addTo(options);
    return options;
  }
};

struct KernelPipelineOptions
    : WithSchedule<PassPipelineOptions<KernelPipelineOptions>> {
  PhaseOptions get() const {
    PhaseOptions options;
    addTo(options);
    return options;
  }
};

/// What the gradient phase and the pipeline of all phases share.
template <typename BaseT>
struct WithRecompute : BaseT {
  detail::PassOptions::Option<RecomputePolicy> recompute{
      *this, "recompute",
      llvm::cl::desc("What backward computes again instead of keeping it"),
      llvm::cl::values(
          clEnumValN(RecomputePolicy::None, "none", "nothing"),
          clEnumValN(RecomputePolicy::Cheap, "cheap",
                     "elementwise operations, norms, rotations, casts"),
          clEnumValN(RecomputePolicy::Block, "block",
                     "everything in a layer but attention outputs"))};
  detail::PassOptions::Option<int64_t> budgetMiB{
      *this, "recompute-budget",
      llvm::cl::desc("MiB that values kept for backward may need, 0 for no "
                     "limit to what is computed again")};

  void addTo(PhaseOptions &options) const {
    options.recompute = recompute;
    options.budgetMiB = budgetMiB;
  }
};

struct GradientPipelineOptions
    : WithRecompute<PassPipelineOptions<GradientPipelineOptions>> {
  PhaseOptions get() const {
    PhaseOptions options;
    addTo(options);
    return options;
  }
};

/// What the collective phase and the pipeline of all phases share.
template <typename BaseT>
struct WithBuckets : BaseT {
  detail::PassOptions::Option<int64_t> bucketMiB{
      *this, "bucket-mib",
      llvm::cl::desc("MiB of gradients that are averaged over ranks as one"),
      llvm::cl::init(kDefaultBucketMiB)};

  detail::PassOptions::Option<bool> reduceInBF16{
      *this, "reduce-in-bf16",
      llvm::cl::desc("Whether gradients go from rank to rank in bf16")};

  void addTo(PhaseOptions &options) const {
    options.bucketMiB = bucketMiB;
    options.reduceInBF16 = reduceInBF16;
  }
};

struct CollectivePipelineOptions
    : WithBuckets<PassPipelineOptions<CollectivePipelineOptions>> {
  PhaseOptions get() const {
    PhaseOptions options;
    addTo(options);
    return options;
  }
};

struct PipelineUntilOptions
    : WithBuckets<
          WithSchedule<WithFusion<WithRecompute<ModelPipelineOptions>>>> {
  PhaseOptions getAll() const {
    PhaseOptions options = get();
    WithRecompute::addTo(options);
    WithFusion::addTo(options);
    WithSchedule::addTo(options);
    WithBuckets::addTo(options);
    return options;
  }

  Option<Phase> until{
      *this, "until", llvm::cl::desc("The last phase to run"),
      llvm::cl::values(clEnumValN(Phase::Precision, "precision", ""),
                       clEnumValN(Phase::Gradient, "gradient", ""),
                       clEnumValN(Phase::Optimizer, "optimizer", ""),
                       clEnumValN(Phase::Kernel, "kernel", ""),
                       clEnumValN(Phase::Buffer, "buffer", ""),
                       clEnumValN(Phase::Schedule, "schedule", ""),
                       clEnumValN(Phase::Collective, "collective", ""),
                       clEnumValN(Phase::Plan, "plan", "")),
      llvm::cl::init(Phase::Plan)};
};
} // namespace

/// Registers the pipeline of a phase that has no options.
static void registerPhase(Phase phase, StringRef description) {
  std::string name = ("nsa-phase-" + getPhaseName(phase)).str();
  PassPipelineRegistration<>(name, description,
                             [phase](OpPassManager &manager) {
                               buildPhasePipeline(manager, phase, {});
                             });
}

void nsa::registerPhasePipelines() {
  PassPipelineRegistration<ModelPipelineOptions>(
      "nsa-phase-precision",
      "Phase 1: set batch and sequence, insert casts to the compute type",
      [](OpPassManager &manager, const ModelPipelineOptions &options) {
        buildPhasePipeline(manager, Phase::Precision, options.get());
      });
  PassPipelineRegistration<GradientPipelineOptions>(
      "nsa-phase-gradient",
      "Phase 2: make the entries of training and their gradients",
      [](OpPassManager &manager, const GradientPipelineOptions &options) {
        buildPhasePipeline(manager, Phase::Gradient, options.get());
      });
  PassPipelineRegistration<OptimizerPipelineOptions>(
      "nsa-phase-optimizer",
      "Phase 3: make gradient accumulation and the AdamW update, fuse",
      [](OpPassManager &manager, const OptimizerPipelineOptions &options) {
        buildPhasePipeline(manager, Phase::Optimizer, options.get());
      });
  PassPipelineRegistration<KernelPipelineOptions>(
      "nsa-phase-kernel",
      "Phase 4: turn nsa and nn operations into tile kernels and launches",
      [](OpPassManager &manager, const KernelPipelineOptions &options) {
        buildPhasePipeline(manager, Phase::Kernel, options.get());
      });
  registerPhase(Phase::Buffer,
                "Phase 5: turn functions on tensors into entries on memory");
  registerPhase(Phase::Schedule, "Phase 6: order the commands of the entries");
  PassPipelineRegistration<CollectivePipelineOptions>(
      "nsa-phase-collective",
      "Phase 7: reduce gradients over ranks in buckets, during backward",
      [](OpPassManager &manager, const CollectivePipelineOptions &options) {
        buildPhasePipeline(manager, Phase::Collective, options.get());
      });
  registerPhase(Phase::Plan, "Phase 8: give tensors and buffers their places");
  PassPipelineRegistration<PipelineUntilOptions>(
      "nsa-pipeline", "The phases from the first to `until`",
      [](OpPassManager &manager, const PipelineUntilOptions &options) {
        for (unsigned number = 0;
             number <= static_cast<unsigned>(options.until.getValue());
             ++number)
          buildPhasePipeline(manager, static_cast<Phase>(number),
                             options.getAll());
      });
}
