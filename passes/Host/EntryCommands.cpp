//===- EntryCommands.cpp - the commands of an entry -----------------------===//

#include "dialects/NN/NNOptimizers.h"
#include "passes/Host/EntryBuilder.h"

#include "mlir/IR/Remarks.h"
#include "llvm/ADT/TypeSwitch.h"

#define DEBUG_TYPE "nsa-buffer"

using namespace mlir;
using namespace nsa;

static bool isView(Operation *op) {
  return op && op->hasTrait<ViewOfOperand>();
}

static bool isEmpty(Value value) {
  return cast<ShapedType>(value.getType()).getNumElements() == 0;
}

static MemRefType getMemRef(Value memory) {
  return cast<MemRefType>(memory.getType());
}

//===----------------------------------------------------------------------===//
// One operation
//===----------------------------------------------------------------------===//

/// The memory of an operand, as the kernel takes it.
Value EntryBuilder::getInputMemory(tile::LaunchOp launch, tile::KernelOp kernel,
                                   unsigned index) {
  Value input = launch.getInputs()[index];
  if (getMemRef(getMemory(input)).getLayout().isIdentity())
    return getDenseMemory(input);
  RowLayout layout = *getRowLayout(getMemRef(getMemory(input)));
  if (layouts.mayTake(kernel, index, layout))
    return getMemory(input);
  remark::missed(launch.getLoc(),
                 remark::RemarkOpts::name("Split").category(DEBUG_TYPE))
      << remark::reason("@{0} needs a dense operand {1}: it is copied",
                        launch.getKernel(), index);
  return getDenseMemory(input);
}

/// Whether both are the memory of the same tensors.
static bool isSameMemory(Value a, Value b) {
  SmallVector<FlatSymbolRefAttr> names = rt::getTensorNames(a);
  return rt::getMemoryRoot(a) == rt::getMemoryRoot(b) ||
         (!names.empty() && names == rt::getTensorNames(b));
}

LogicalResult EntryBuilder::emitLaunch(tile::LaunchOp launch) {
  auto kernel = tensors.getSymbols().lookup<tile::KernelOp>(launch.getKernel());
  SmallVector<Value> inputs, outputs;
  for (unsigned i = 0; i < launch.getInputs().size(); ++i)
    inputs.push_back(getInputMemory(launch, kernel, i));
  for (Value output : launch.getOutputs())
    outputs.push_back(getMemory(output));
  for (auto [input, output] : getInPlacePairs(kernel)) {
    if (isSameMemory(inputs[input], outputs[output]))
      continue;
    // What kernels pass on to each other may end elsewhere.
    if (!rt::getMemoryRoot(inputs[input]).getDefiningOp<rt::BufferOp>())
      return launch.emitOpError("updates operand ")
             << input
             << " in place, but its old value is still needed or is no named "
                "tensor";
    emitCopy(inputs[input], outputs[output], launch.getLoc());
    inputs[input] = outputs[output];
  }
  SmallVector<MemRefType> types;
  for (Value memory : llvm::concat<Value>(inputs, outputs))
    types.push_back(getMemRef(memory));
  tile::KernelOp version = layouts.get(kernel, types);
  rt::LaunchOp::create(builder, launch.getLoc(),
                       FlatSymbolRefAttr::get(version), inputs, outputs);
  ++counts.commands;
  return success();
}

void EntryBuilder::emitGemm(nn::MatmulOp matmul) {
  Value out = getMemory(matmul.getOutput());
  Value sum = matmul.getAccumulator();
  if (sum && !isSameMemory(getMemory(sum), out))
    emitCopy(getMemory(sum), out, matmul.getLoc());
  if (isEmpty(matmul.getLhs()))
    return sum ? void() : emitFill(0.0, out, matmul.getLoc());
  Value lhs = getDenseMemory(matmul.getLhs());
  Value rhs = getDenseMemory(matmul.getRhs());
  rt::GemmOp::create(builder, matmul.getLoc(), lhs, rhs, out,
                     /*addend=*/Value(), matmul.getTransposeLhs(),
                     matmul.getTransposeRhs(), llvm::APFloat(sum ? 1.0f : 0.0f),
                     /*workspace=*/rt::SliceAttr(),
                     /*alpha=*/llvm::APFloat(1.0f));
  ++counts.commands;
}

void EntryBuilder::emitBatch(nn::BatchMatmulOp matmul) {
  Value addend;
  if (matmul.getAddend())
    addend = getDenseMemory(matmul.getAddend());
  auto scale = [](const llvm::APFloat &value) {
    return llvm::APFloat(float(value.convertToDouble()));
  };
  rt::GemmOp::create(builder, matmul.getLoc(), getDenseMemory(matmul.getLhs()),
                     getDenseMemory(matmul.getRhs()),
                     getMemory(matmul.getOutput()), addend,
                     matmul.getTransposeLhs(), matmul.getTransposeRhs(),
                     scale(matmul.getBeta()), /*workspace=*/rt::SliceAttr(),
                     scale(matmul.getAlpha()), matmul.getBatch());
  ++counts.commands;
}

void EntryBuilder::emitCollective(rt::Collective kind, Value memory,
                                  IntegerAttr ranks, Location loc, Value rows) {
  rt::CollectiveStartOp::create(builder, loc, kind, memory, rows, ranks,
                                /*grouped=*/false);
  rt::CollectiveDoneOp::create(builder, loc, memory, rows);
  counts.commands += 2;
}

void EntryBuilder::emitAllReduce(nn::AllReduceOp mean) {
  Value input = getDenseMemory(mean.getInput());
  Value memory = getMemory(mean.getOutput());
  if (!isSameMemory(input, memory))
    emitCopy(input, memory, mean.getLoc());
  emitCollective(rt::Collective::AllReduce, memory, /*ranks=*/{},
                 mean.getLoc());
}

void EntryBuilder::emitSliceShard(nn::SliceShardOp take) {
  rt::SliceShardOp::create(builder, take.getLoc(),
                           getDenseMemory(take.getInput()), getMemory(take),
                           take.getShard());
  ++counts.commands;
}

void EntryBuilder::emitAllGather(nn::AllGatherOp gather) {
  Location loc = gather.getLoc();
  Value part = getDenseMemory(gather.getPart()), memory = getMemory(gather);
  int64_t ranks =
      getMemRef(memory).getNumElements() / getMemRef(part).getNumElements();
  rt::WriteShardOp::create(builder, loc, part, memory, gather.getShard());
  ++counts.commands;
  emitCollective(rt::Collective::AllGather, memory,
                 builder.getI64IntegerAttr(ranks), loc);
}

void EntryBuilder::emitGather(nn::GatherSequenceOp gather) {
  Value own = getDenseMemory(gather.getInput());
  emitCollective(rt::Collective::GatherSequence, getMemory(gather),
                 gather.getRanksAttr(), gather.getLoc(), own);
}

/// Memory for the last `tokens` of every chunk of sequences whose rows have the
/// type of `rows`.
static Value createTails(OpBuilder &builder, Location loc, Value rows,
                         int64_t tokens, int64_t ranks) {
  MemRefType type = getMemRef(rows);
  SmallVector<int64_t> shape(type.getShape());
  shape[0] /= 2;
  shape[1] = 2 * ranks * tokens;
  return rt::BufferOp::create(builder, loc,
                              MemRefType::get(shape, type.getElementType()));
}

void EntryBuilder::emitGatherHalo(nn::GatherHaloOp gather) {
  Location loc = gather.getLoc();
  int64_t ranks = gather.getRanks();
  Value own = getDenseMemory(gather.getInput()), memory = getMemory(gather);
  Value tails = createTails(builder, loc, own, gather.getTokens(), ranks);
  rt::WriteSequenceOp::create(builder, loc, rt::ChunkPattern::Own, own, memory,
                              ranks);
  emitCollective(rt::Collective::GatherSequence, tails, gather.getRanksAttr(),
                 loc, own);
  rt::SliceSequenceOp::create(builder, loc, rt::ChunkPattern::Halo, tails,
                              memory, ranks);
  counts.commands += 2;
}

void EntryBuilder::emitReduceScatterHalo(nn::ReduceScatterHaloOp scatter) {
  Location loc = scatter.getLoc();
  int64_t ranks = scatter.getRanks();
  Value rows = getDenseMemory(scatter.getInput());
  Value own = getMemory(scatter.getOwn());
  Value received = getMemory(scatter.getReceived());
  Value tails = createTails(builder, loc, rows, scatter.getTokens(), ranks);
  emitFill(0.0, tails, loc);
  rt::WriteSequenceOp::create(builder, loc, rt::ChunkPattern::Halo, rows, tails,
                              ranks);
  emitFill(0.0, received, loc);
  emitCollective(rt::Collective::ReduceScatterSequence, tails,
                 scatter.getRanksAttr(), loc, received);
  rt::SliceSequenceOp::create(builder, loc, rt::ChunkPattern::Own, rows, own,
                              ranks);
  counts.commands += 2;
}

void EntryBuilder::emitReduceScatter(nn::ReduceScatterSequenceOp scatter) {
  Value sequences = getDenseMemory(scatter.getInput());
  emitCollective(rt::Collective::ReduceScatterSequence, sequences,
                 scatter.getRanksAttr(), scatter.getLoc(), getMemory(scatter));
}

void EntryBuilder::emitFill(double value, Value memory, Location loc) {
  if (isEmpty(memory))
    return;
  rt::FillOp::create(builder, loc, builder.getF64FloatAttr(value), memory);
  ++counts.commands;
}

void EntryBuilder::emitCopy(Value source, Value target, Location loc) {
  if (isEmpty(target))
    return;
  ++counts.commands;
  ++counts.copies;
  bool isDense = getMemRef(source).getLayout().isIdentity() &&
                 getMemRef(target).getLayout().isIdentity();
  if (!isDense) {
    tile::KernelOp kernel =
        layouts.getCopy(getMemRef(source), getMemRef(target), loc);
    rt::LaunchOp::create(builder, loc, FlatSymbolRefAttr::get(kernel), source,
                         target);
    return;
  }
  if (source.getType() != target.getType())
    source = rt::ViewOp::create(builder, loc, target.getType(), source);
  rt::CopyOp::create(builder, loc, source, target);
}

/// Copies the operands that are not where they belong.
LogicalResult EntryBuilder::emitConcat(nn::ConcatOp concat) {
  if (!memories.contains(concat) && failed(place(concat->getResult(0))))
    return failure();
  for (auto [index, part] : llvm::enumerate(concat.getParts())) {
    Place target = placement.getTarget(concat, index);
    if (placement.get(part) == target)
      continue;
    Value memory = getMemory(part);
    Value columns = viewAt(target, part.getType(), concat.getLoc());
    // Rows of two lengths meet in a dense copy.
    if (!getMemRef(memory).getLayout().isIdentity() &&
        !getMemRef(columns).getLayout().isIdentity() &&
        getRowLayout(getMemRef(memory))->width !=
            getRowLayout(getMemRef(columns))->width)
      memory = getDenseMemory(part);
    emitCopy(memory, columns, concat.getLoc());
  }
  return success();
}

/// The dense copy of a part that is split again, made for its first reader.
Value EntryBuilder::copyOddPart(Value part) {
  Location loc = part.getLoc();
  Value source = viewAt(placement.getSource(part), part.getType(), loc);
  Value copy =
      rt::BufferOp::create(builder, loc, getMemoryType(part.getType()));
  emitCopy(source, copy, loc);
  memories[part] = copy;
  occupants[copy] = part;
  return copy;
}

LogicalResult EntryBuilder::emit(Operation &op) {
  // What it shows may be overwritten later.
  if (auto split = dyn_cast<nn::SplitOp>(op);
      split && placement.isCopied(split.getInput()))
    (void)getMemory(split.getInput());
  if (isView(&op))
    return success();
  if (auto concat = dyn_cast<nn::ConcatOp>(op))
    return emitConcat(concat);
  if (auto group = dyn_cast<nn::FlattenOp>(op))
    return emitFlatten(group);
  if (auto unflatten = dyn_cast<nn::UnflattenOp>(op))
    return emitUnflatten(unflatten);
  if (!isa<tile::LaunchOp, nn::MatmulOp, nn::BatchMatmulOp, nn::FillOp,
           nn::AllReduceOp, nn::SliceShardOp, nn::AllGatherOp,
           nn::GatherSequenceOp, nn::ReduceScatterSequenceOp, nn::GatherHaloOp,
           nn::ReduceScatterHaloOp>(op))
    return op.emitOpError("has no runtime command");
  // A fill that only results need is made at the end, once for each.
  if (isa<nn::FillOp>(op) && !lastReaders.contains(op.getResult(0)))
    return success();
  // Results with a destination choose first.
  SmallVector<OpResult> results(op.getResults());
  std::stable_partition(results.begin(), results.end(), [&](OpResult value) {
    return destinations.contains(value);
  });
  for (OpResult value : results)
    if (failed(place(value)))
      return failure();
  if (llvm::all_of(op.getResults(), isEmpty))
    return success();
  if (auto launch = dyn_cast<tile::LaunchOp>(op))
    return emitLaunch(launch);
  llvm::TypeSwitch<Operation *>(&op)
      .Case([&](nn::MatmulOp matmul) { emitGemm(matmul); })
      .Case([&](nn::BatchMatmulOp matmul) { emitBatch(matmul); })
      .Case([&](nn::AllReduceOp mean) { emitAllReduce(mean); })
      .Case([&](nn::SliceShardOp take) { emitSliceShard(take); })
      .Case([&](nn::AllGatherOp gather) { emitAllGather(gather); })
      .Case([&](nn::GatherSequenceOp gather) { emitGather(gather); })
      .Case([&](nn::ReduceScatterSequenceOp scatter) {
        emitReduceScatter(scatter);
      })
      .Case([&](nn::GatherHaloOp gather) { emitGatherHalo(gather); })
      .Case([&](nn::ReduceScatterHaloOp scatter) {
        emitReduceScatterHalo(scatter);
      })
      .Case([&](nn::FillOp fill) {
        emitFill(fill.getValue().convertToDouble(), getMemory(fill),
                 fill.getLoc());
      });
  return success();
}

/// Copies old values of arguments while they are there.
void EntryBuilder::emitHead() {
  Operation *terminator = function.getBody().front().getTerminator();
  Location loc = terminator->getLoc();
  for (unsigned result : head) {
    Value value = terminator->getOperand(result);
    emitCopy(getMemory(isPart(value) ? value : getRoot(value)),
             getResultMemory(result), loc);
  }
  for (BlockArgument argument : saved) {
    Value &copy = savedMemories[argument];
    if (copy)
      continue;
    copy =
        rt::BufferOp::create(builder, loc, getMemoryType(argument.getType()));
    emitCopy(getMemory(argument), copy, loc);
  }
}

/// Writes the results that nothing was computed into.
void EntryBuilder::emitTail() {
  Operation *terminator = function.getBody().front().getTerminator();
  for (unsigned result : tail) {
    Value value = terminator->getOperand(result), root = getRoot(value);
    Value target = getResultMemory(result);
    Location loc = root.getDefiningOp() ? root.getLoc() : terminator->getLoc();
    if (isPart(value)) {
      emitCopy(getMemory(value), target, loc);
      continue;
    }
    if (auto fill = root.getDefiningOp<nn::FillOp>()) {
      emitFill(fill.getValue().convertToDouble(), target, loc);
      continue;
    }
    Value source = savedMemories.lookup(root);
    emitCopy(source ? source : getMemory(root), target, loc);
  }
}

LogicalResult EntryBuilder::build() {
  collectReaders();
  if (failed(collectFlatGroups()) || failed(collectResults()))
    return failure();

  SmallVector<Attribute> inputs, outputs;
  for (unsigned index = 0; index < function.getNumArguments(); ++index)
    if (rt::TensorOp tensor = tensors.getArgument(function, index);
        tensor.getRole() == rt::TensorRole::Input)
      inputs.push_back(FlatSymbolRefAttr::get(tensor));
  for (unsigned index = 0; index < function.getNumResults(); ++index)
    if (rt::TensorOp tensor = tensors.getResult(function, index))
      outputs.push_back(FlatSymbolRefAttr::get(tensor));
  entry = rt::EntryOp::create(builder, function.getLoc(), function.getSymName(),
                              builder.getArrayAttr(inputs),
                              builder.getArrayAttr(outputs),
                              /*arena_peak=*/IntegerAttr());
  builder.createBlock(&entry.getBody());

  emitHead();
  for (Operation &op : function.getBody().front().without_terminator())
    if (failed(emit(op)))
      return failure();
  emitTail();
  return success();
}
