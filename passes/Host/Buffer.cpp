//===- Buffer.cpp - functions on tensors to entries on memory -------------===//

#include "nsa/Artifact/TrainingContract.h"
#include "passes/Host/EntryBuilder.h"
#include "passes/Host/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_BUFFER
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

/// Name of the entry that gives persistent tensors their initial values.
/// Whether everything that `function` computes can lie in memory.
static LogicalResult verifyTensors(func::FuncOp function) {
  for (Operation &op : function.front())
    for (Type type : op.getResultTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type);
          !tensor || !tensor.hasStaticShape())
        return op.emitOpError("computes a value of type ")
               << type << ", but an entry computes tensors of static shape";
  return success();
}

/// The functions to convert, or failure if one cannot be.
static FailureOr<SmallVector<func::FuncOp>> getEntryFunctions(ModuleOp module) {
  SmallVector<func::FuncOp> functions;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isPublic())
      continue;
    if (!function.getBody().hasOneBlock())
      return function.emitOpError("has ")
             << function.getBody().getBlocks().size()
             << " blocks, but an entry is made of 1";
    if (failed(verifyTensors(function)))
      return failure();
    functions.push_back(function);
  }
  return functions;
}

static LogicalResult createInitEntry(ModuleOp module, TensorTable &tensors,
                                     BufferCounts &counts) {
  SmallVector<rt::TensorOp> initialized = tensors.getInitialized();
  if (initialized.empty())
    return success();
  if (Operation *other = tensors.getSymbols().lookup(training::initEntry))
    return other->emitOpError("is called '")
           << training::initEntry
           << "', the name of the entry of initial values";
  OpBuilder builder(module.getContext());
  builder.setInsertionPointAfter(initialized.back());
  while (isa<rt::TensorOp>(*builder.getInsertionPoint()))
    builder.setInsertionPointAfter(&*builder.getInsertionPoint());
  auto entry = rt::EntryOp::create(
      builder, module.getLoc(), training::initEntry, builder.getArrayAttr({}),
      builder.getArrayAttr({}), /*arena_peak=*/IntegerAttr());
  tensors.getSymbols().insert(entry);
  builder.createBlock(&entry.getBody());
  for (rt::TensorOp tensor : initialized) {
    if (tensor.getMemoryType().getNumElements() == 0)
      continue;
    Value memory = rt::GetOp::create(
        builder, tensor.getLoc(), tensor.getMemoryType(), tensor.getSymName());
    rt::InitializeOp::create(builder, tensor.getLoc(), memory);
    ++counts.commands;
  }
  return success();
}

namespace {
struct BufferPass : nsa::impl::BufferBase<BufferPass> {
  using BufferBase::BufferBase;

  void runOnOperation() override {
    BufferCounts counts;
    if (failed(convert(counts)))
      return signalPassFailure();
    numCommands += counts.commands;
    numInPlace += counts.inPlace;
    numCopies += counts.copies;
  }

  LogicalResult convert(BufferCounts &counts) {
    ModuleOp module = getOperation();
    FailureOr<SmallVector<func::FuncOp>> functions = getEntryFunctions(module);
    if (failed(functions))
      return failure();
    TensorTable tensors(module);
    InPlaceAnalysis inPlace;
    KernelLayouts layouts(module, tensors.getSymbols());
    if (failed(tensors.add(*functions)) ||
        failed(createInitEntry(module, tensors, counts)))
      return failure();
    for (func::FuncOp function : *functions)
      if (failed(EntryBuilder(function, tensors, layouts, inPlace, counts)
                     .build()))
        return failure();
    for (func::FuncOp function : *functions)
      function.erase();
    layouts.eraseUnused();
    return success();
  }
};
} // namespace
