//===- Pipelines.cpp - the phases of compilation --------------------------===//

#include "passes/Pipelines/Pipelines.h"
#include "dialects/RT/RTOps.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/StringSwitch.h"

#include <deque>

using namespace mlir;
using namespace nsa;

static void addCleanUp(OpPassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

static RecomputePolicy parsePolicy(StringRef name) {
  return llvm::StringSwitch<RecomputePolicy>(name)
      .Case("cheap", RecomputePolicy::Cheap)
      .Case("block", RecomputePolicy::Block)
      .Default(RecomputePolicy::None);
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
    manager.addPass(createPrecision(
        {parsePrecision(options.precision).value_or(ComputePrecision::Model)}));
    return;
  case Phase::Gradient:
    if (options.context != 0) {
      manager.addPass(
          createDeriveDecode({options.context, /*samples=*/false,
                              options.prefillChunk, options.pages}));
      manager.addPass(createChooseTokens({options.context}));
    }
    if (options.sampleContext != 0)
      manager.addPass(
          createDeriveDecode({options.sampleContext, /*samples=*/true}));
    if (options.context != 0 || options.sampleContext != 0)
      manager.addNestedPass<func::FuncOp>(createLimitSelection());
    manager.addPass(
        createBuildEntries({options.forward && options.sampleContext == 0}));
    if (options.selection)
      manager.addPass(createReturnSelections());
    if (options.replaySelection)
      manager.addPass(createReplaySelections());
    if (options.contextParallel != 1)
      manager.addNestedPass<func::FuncOp>(
          createShardSequence({options.contextParallel}));
    manager.addNestedPass<func::FuncOp>(createDifferentiate());
    addCleanUp(manager);
    if (options.recompute == "none" && options.recomputeBudget == 0)
      return;
    manager.addNestedPass<func::FuncOp>(createRecompute(
        {parsePolicy(options.recompute), options.recomputeBudget}));
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
    if (options.shard != "none") {
      manager.addPass(createShardOptimizer(
          {options.shardRanks,
           /*wholeGradients=*/options.shard == "optimizer"}));
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
    manager.addPass(createConvertToTile());
    return addCleanUp(manager);
  case Phase::Buffer:
    manager.addPass(createBuffer());
    return addCleanUp(manager);
  case Phase::Schedule:
    manager.addNestedPass<rt::EntryOp>(createSchedule());
    return;
  case Phase::Collective:
    manager.addPass(createBucketAllReduce(
        {options.bucketMiB, options.shard == "none" ? 1 : options.shardRanks}));
    manager.addPass(createConvertToReduceScatter());
    if (options.shard == "gradients" || options.shard == "parameters")
      manager.addPass(createShardGradients({options.shardRanks}));
    if (options.shard != "none")
      manager.addPass(createShardParameters(
          {options.shardRanks, /*keep=*/options.shard != "parameters"}));
    manager.addNestedPass<rt::EntryOp>(createOverlapAllReduce());
    if (options.reducePrecision == "bf16")
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

namespace {
/// The options of the phases from `first` to `last` as text, with the names of
/// nsa-compile. Only the machine has a name of its own there.
struct PhaseText : PassPipelineOptions<PhaseText> {
  struct Field {
    Field(PhaseText &parent, const OptionField &field)
        : field(field),
          // The sentence says what the value does that is not the default.
          help((field.read({}) == "true" ? "false: " : "") + field.help),
          text(parent, field.name, llvm::cl::desc(help)) {}
    const OptionField &field;
    std::string help;
    Option<std::string> text;
  };

  PhaseText(Phase first, Phase last) : first(first), last(last) {
    for (const OptionField &field : optionFields())
      for (const std::string &phase : field.phases)
        if (hasPhase(phase)) {
          fields.emplace_back(*this, field);
          break;
        }
    if (hasPhase("precision"))
      mmaRows.emplace(
          *this, "mma-rows",
          llvm::cl::desc("Rows of one MMA of the GPU that kernels are cut for: "
                         "16, or 64 of warpgroups; 0 for a CPU"));
    if (hasPhase("plan"))
      gemmWorkspace.emplace(
          *this, "gemm-workspace",
          llvm::cl::desc("Bytes of workspace of every matmul; 0 takes what "
                         "fp32 copies of narrower operands need"));
  }

  bool hasPhase(StringRef name) const {
    for (int number = int(first); number <= int(last); ++number)
      if (getPhaseName(static_cast<Phase>(number)) == name)
        return true;
    return false;
  }

  /// Fills `options`; an error says which text is none.
  Status read(PhaseOptions &options) const {
    for (const Field &one : fields)
      if (one.text.getNumOccurrences() > 0)
        NSA_RETURN_IF_ERROR(one.field.write(options, one.text.getValue()));
    if (mmaRows)
      options.mmaRows = *mmaRows;
    if (gemmWorkspace)
      options.gemmWorkspace = *gemmWorkspace;
    return {};
  }

  Phase first, last;
  std::deque<Field> fields;
  std::optional<Option<int64_t>> mmaRows;
  std::optional<Option<uint64_t>> gemmWorkspace;
};

/// Those of all phases, and the last one to run.
struct PipelineText : PhaseText {
  PipelineText() : PhaseText(Phase::Precision, Phase::Plan) {}
  Option<std::string> until{*this, "until",
                            llvm::cl::desc("The last phase to run"),
                            llvm::cl::init(getPhaseName(Phase::Plan).str())};
};
} // namespace

static void registerPhase(Phase phase, StringRef description) {
  std::string name = ("nsa-phase-" + getPhaseName(phase)).str();
  registerPipeline<PhaseText>(
      name, description,
      [phase](OpPassManager &manager, const PhaseText &text) -> std::string {
        PhaseOptions options;
        if (Status status = text.read(options); !status)
          return status.message();
        if (phase != Phase::Precision)
          manager.addPass(
              createRequirePhase({phase, static_cast<Phase>(int(phase) - 1)}));
        buildPhasePipeline(manager, phase, options);
        return "";
      },
      phase, phase);
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
  registerPipeline<PipelineText>(
      "nsa-pipeline", "The phases from the first to `until`",
      [](OpPassManager &manager, const PipelineText &text) -> std::string {
        PhaseOptions options;
        if (Status status = text.read(options); !status)
          return status.message();
        for (int number = 0; number <= int(Phase::Plan); ++number) {
          auto phase = static_cast<Phase>(number);
          buildPhasePipeline(manager, phase, options);
          if (getPhaseName(phase) == text.until)
            return "";
        }
        return "unknown phase '" + text.until.getValue() + "'";
      });
}
