//===- Pipelines.cpp - the phases of compilation --------------------------===//

#include "passes/Pipelines/Pipelines.h"
#include "dialects/RT/RTOps.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace nsa;

static void addCleanUp(OpPassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

static void addPasses(OpPassManager &manager, Phase phase,
                      const PhaseOptions &options) {
  switch (phase) {
  case Phase::Precision:
    manager.addPass(createExpandModel());
    manager.addPass(createSetMachine({options.mmaRows}));
    manager.addPass(createSetInputShapes({options.microBatch, options.seqLen}));
    // A context has more blocks.
    if (options.context == 0 && options.sampleContext == 0)
      manager.addNestedPass<func::FuncOp>(createLimitSelection());
    manager.addNestedPass<func::FuncOp>(
        createAssignOptimizers({options.optimizer}));
    if (options.fuse)
      manager.addPass(createMergeProjections());
    manager.addPass(createPrecision({options.precision}));
    return;
  case Phase::Gradient:
    if (options.context != 0)
      manager.addPass(createDeriveDecode({options.context}));
    if (options.sampleContext != 0)
      manager.addPass(
          createDeriveDecode({options.sampleContext, /*samples=*/true}));
    if (options.context != 0 || options.sampleContext != 0)
      manager.addNestedPass<func::FuncOp>(createLimitSelection());
    manager.addPass(
        createBuildEntries({options.forward && options.sampleContext == 0}));
    manager.addNestedPass<func::FuncOp>(createDifferentiate());
    addCleanUp(manager);
    if (options.recompute == RecomputePolicy::None &&
        options.recomputeBudget == 0)
      return;
    manager.addNestedPass<func::FuncOp>(
        createRecompute({options.recompute, options.recomputeBudget}));
    return addCleanUp(manager);
  case Phase::Optimizer:
    manager.addPass(createOptimizer({options.optimizer}));
    addCleanUp(manager);
    if (options.fuse) {
      manager.addNestedPass<func::FuncOp>(createFuseAttention());
      manager.addNestedPass<func::FuncOp>(createChunkLoss({options.logitsMiB}));
      manager.addPass(createFuse());
    }
    // Refuses updates that were not fused.
    if (options.shardRanks != 1) {
      manager.addPass(createShardOptimizer({options.shardRanks}));
      addCleanUp(manager);
    }
    manager.addNestedPass<func::FuncOp>(createExpandUpdates());
    return;
  case Phase::Kernel:
    manager.addPass(createNoteCompressedExtents());
    manager.addPass(createLaunchDecodeSteps());
    manager.addPass(createLaunchVectorMatmuls());
    manager.addPass(createUseLibraryTypes());
    manager.addPass(createRotateWithCompression());
    manager.addPass(createSelectSchedule());
    manager.addPass(createSeparateGathered());
    manager.addPass(createConvertToTile());
    return addCleanUp(manager);
  case Phase::Buffer:
    manager.addPass(createBuffer());
    return addCleanUp(manager);
  case Phase::Schedule:
    manager.addNestedPass<rt::EntryOp>(createSchedule());
    return;
  case Phase::Collective:
    manager.addPass(createBucketAllReduce({options.bucketMiB}));
    manager.addPass(createConvertToReduceScatter());
    manager.addNestedPass<rt::EntryOp>(createOverlapAllReduce());
    if (options.reducePrecision == ComputePrecision::BF16)
      manager.addPass(createCompressGradients());
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

/// Names of the options that passes of a phase read.
static ArrayRef<StringRef> optionsOf(Phase phase) {
  static constexpr StringRef precision[] = {
      "micro-batch", "seq-len",  "context",   "sample-context",
      "fuse",        "mma-rows", "precision", "optimizer"};
  static constexpr StringRef gradient[] = {
      "context", "sample-context", "forward", "recompute", "recompute-budget"};
  static constexpr StringRef optimizer[] = {"fuse", "logits-mib", "optimizer",
                                            "shard-optimizer"};
  static constexpr StringRef collective[] = {"bucket-mib", "reduce-precision"};
  static constexpr StringRef plan[] = {"gemm-workspace"};
  switch (phase) {
  case Phase::Precision:
    return precision;
  case Phase::Gradient:
    return gradient;
  case Phase::Optimizer:
    return optimizer;
  case Phase::Collective:
    return collective;
  case Phase::Plan:
    return plan;
  case Phase::Kernel:
  case Phase::Buffer:
  case Phase::Schedule:
  case Phase::Layout:
  case Phase::NVVM:
  case Phase::Binary:
    break;
  }
  return {};
}

StringRef nsa::PhaseOptions::findUnused(Phase phase) const {
  for (const auto &[name, option] : OptionsMap)
    if (option->getNumOccurrences() > 0 &&
        !llvm::is_contained(optionsOf(phase), name))
      return name;
  return "";
}

namespace {
struct PipelineUntilOptions : PhaseOptions {
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

static void registerPhase(Phase phase, StringRef description) {
  std::string name = ("nsa-phase-" + getPhaseName(phase)).str();
  registerPipeline<PhaseOptions>(
      name, description,
      [phase](OpPassManager &manager,
              const PhaseOptions &options) -> std::string {
        if (StringRef unused = options.findUnused(phase); !unused.empty())
          return ("option '" + unused + "' has no effect in phase '" +
                  getPhaseName(phase) + "'")
              .str();
        if (phase != Phase::Precision)
          manager.addPass(
              createRequirePhase({phase, static_cast<Phase>(int(phase) - 1)}));
        buildPhasePipeline(manager, phase, options);
        return "";
      });
}

void nsa::registerPhasePipelines() {
  registerPhase(Phase::Precision, "Phase 1: set batch and sequence, insert "
                                  "casts to the compute type");
  registerPhase(Phase::Gradient, "Phase 2: make the entries of training and "
                                 "their gradients");
  registerPhase(Phase::Optimizer, "Phase 3: make gradient accumulation and the "
                                  "update, fuse");
  registerPhase(Phase::Kernel, "Phase 4: turn nsa and nn operations into tile "
                               "kernels and launches");
  registerPhase(Phase::Buffer,
                "Phase 5: turn functions on tensors into entries on memory");
  registerPhase(Phase::Schedule, "Phase 6: order the commands of the entries");
  registerPhase(Phase::Collective, "Phase 7: reduce gradients over ranks in "
                                   "buckets, during backward");
  registerPhase(Phase::Plan, "Phase 8: give tensors and buffers their offsets");
  registerPipeline<PipelineUntilOptions>(
      "nsa-pipeline", "The phases from the first to `until`",
      [](OpPassManager &manager,
         const PipelineUntilOptions &options) -> std::string {
        for (unsigned number = 0;
             number <= static_cast<unsigned>(options.until.getValue());
             ++number)
          buildPhasePipeline(manager, static_cast<Phase>(number), options);
        return "";
      });
}
