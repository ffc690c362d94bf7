//===- ShardSequence.cpp - two chunks of every sequence -------------------===//

#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSAOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

#include "llvm/ADT/TypeSwitch.h"

#include <map>

#define DEBUG_TYPE "nsa-shard-sequence"

namespace nsa {
#define GEN_PASS_DEF_SHARDSEQUENCE
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

/// One entry of a program whose sequences several ranks share.
class SequenceSharder {
public:
  SequenceSharder(func::FuncOp function, int64_t ranks)
      : function(function), ranks(ranks), signature(function) {}

  LogicalResult run();

  unsigned numGathers = 0;

private:
  LogicalResult cutInputs();
  LogicalResult visit(Operation &op);
  LogicalResult checkRows(Operation &op);
  bool attendToHalo(AttentionOp attention);
  Value gather(Value value);
  void gather(OpOperand &operand);
  void setAt(MutableOperandRange operand) { operand.assign(at); }

  func::FuncOp function;
  int64_t ranks;
  Signature signature;
  Value at;
  /// Values of chunks, and those of whole sequences that follow from them.
  DenseSet<Value> chunks, wholes;
  DenseMap<Value, Value> gathered;
  /// By the tokens before a chunk: the input, and what is gathered.
  std::map<int64_t, BlockArgument> windowAt;
  DenseMap<std::pair<Value, int64_t>, Value> halos;
};

struct ShardSequencePass : nsa::impl::ShardSequenceBase<ShardSequencePass> {
  using ShardSequenceBase::ShardSequenceBase;
  void runOnOperation() override;
};

} // namespace

/// The tokens and targets, [B, S].
static SmallVector<BlockArgument> findTokens(func::FuncOp function) {
  return llvm::filter_to_vector(
      function.getArguments(), [&](BlockArgument argument) {
        StringRef name = nn::getArgumentName(function, argument.getArgNumber());
        return name == training::tokensInput || name == training::targetsInput;
      });
}

LogicalResult SequenceSharder::cutInputs() {
  int64_t rows = 0;
  for (BlockArgument argument : findTokens(function)) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    if (!type || type.getRank() != 2)
      return emitError(argument.getLoc(), "tokens of type ")
             << argument.getType() << ", expected a tensor of rank 2";
    int64_t length = type.getDimSize(1);
    if (length % (2 * ranks) != 0)
      return emitError(argument.getLoc(), "sequences of ")
             << length << " tokens cannot be shared by " << ranks
             << " ranks: their length must be a multiple of " << 2 * ranks;
    rows = 2 * type.getDimSize(0);
    argument.setType(type.clone({rows, length / (2 * ranks)}));
    signature.getArgument(argument.getArgNumber()).erase(nn::kDimsAttr);
    chunks.insert(argument);
  }
  MLIRContext *context = function.getContext();
  at = signature.addArgument(
      RankedTensorType::get({rows, 2}, IntegerType::get(context, 32)),
      nameArgument(context, training::atInput, nn::ArgumentRole::Input),
      function.getLoc());
  return success();
}

/// The whole sequences of chunks. Rotating all rows of what is gathered takes
/// less time than gathering them twice.
Value SequenceSharder::gather(Value value) {
  if (Value whole = gathered.lookup(value))
    return whole;
  OpBuilder builder(function.getContext());
  builder.setInsertionPointAfterValue(value);
  Location loc = value.getLoc();
  auto rotary = value.getDefiningOp<nn::RotaryOp>();
  Value whole;
  Value input = rotary ? rotary.getInput() : Value();
  if (rotary && (gathered.contains(input) ||
                 llvm::any_of(input.getUsers(), llvm::IsaPred<CompressOp>))) {
    input = gather(input);
    whole = nn::RotaryOp::create(builder, loc, input, rotary.getTable(),
                                 rotary.getStart(), /*at=*/Value(),
                                 rotary.getStride(), rotary.getInverse());
  } else {
    whole = nn::GatherSequenceOp::create(builder, loc, value, ranks);
    ++numGathers;
  }
  wholes.insert(whole);
  return gathered[value] = whole;
}

/// Tiles of keys begin at multiples of this, in whole sequences and in chunks.
static constexpr int64_t kHaloTokens = 16;

/// Gathers no more than a window sees before a chunk; whether that is less than
/// the chunk. Branches that are combined share kernels, which count in whole
/// sequences, and so do starts of packed ones.
bool SequenceSharder::attendToHalo(AttentionOp attention) {
  auto window = dyn_cast<WindowAttr>(attention.getVisibility());
  Value key = attention.getKey();
  if (!window || attention.getStart() || !chunks.contains(key) ||
      !chunks.contains(attention.getValue()) ||
      llvm::any_of(attention.getOutput().getUsers(), llvm::IsaPred<CombineOp>))
    return false;
  int64_t tokens = llvm::alignTo(window.getWindow() - 1, kHaloTokens);
  if (tokens == 0 ||
      tokens >= cast<RankedTensorType>(key.getType()).getDimSize(1))
    return false;
  OpBuilder builder(function.getContext());
  BlockArgument &argument = windowAt[tokens];
  if (!argument)
    argument = signature.addArgument(
        at.getType(),
        nameArgument(function.getContext(),
                     training::windowAtPrefix + Twine(tokens),
                     nn::ArgumentRole::Input),
        function.getLoc());
  for (OpOperand *operand :
       {&attention.getKeyMutable(), &attention.getValueMutable()}) {
    Value value = operand->get();
    Value &halo = halos[{value, tokens}];
    if (!halo) {
      builder.setInsertionPointAfterValue(value);
      halo = nn::GatherHaloOp::create(builder, value.getLoc(), value, ranks,
                                      tokens);
      ++numGathers;
    }
    operand->set(halo);
  }
  attention.getAtMutable().assign(argument);
  return true;
}

void SequenceSharder::gather(OpOperand &operand) {
  if (chunks.contains(operand.get()))
    operand.set(gather(operand.get()));
}

/// What does not know of positions takes rows of either kind.
LogicalResult SequenceSharder::checkRows(Operation &op) {
  if (op.getDialect()->getNamespace() == "nsa" &&
      !isa<CombineOp, GateStatisticsOp>(op))
    return op.emitOpError("cannot take chunks of sequences");
  if (llvm::any_of(op.getOperands(),
                   [&](Value value) { return wholes.contains(value); }))
    return op.emitOpError("takes whole sequences and chunks of them");
  return success();
}

LogicalResult SequenceSharder::visit(Operation &op) {
  auto isChunk = [&](Value value) { return chunks.contains(value); };
  if (llvm::none_of(op.getOperands(), isChunk)) {
    if (llvm::any_of(op.getOperands(),
                     [&](Value value) { return wholes.contains(value); }))
      wholes.insert_range(op.getResults());
    return success();
  }
  LogicalResult status =
      llvm::TypeSwitch<Operation *, LogicalResult>(&op)
          .Case([&](CompressOp compress) {
            gather(compress.getInputMutable());
            return success();
          })
          .Case([&](AttentionOp attention) {
            if (attendToHalo(attention))
              return success();
            gather(attention.getKeyMutable());
            gather(attention.getValueMutable());
            setAt(attention.getAtMutable());
            return success();
          })
          .Case([&](SelectOp select) {
            gather(select.getKeyMutable());
            setAt(select.getAtMutable());
            return success();
          })
          .Case([&](nn::RotaryOp rotary) {
            setAt(rotary.getAtMutable());
            return success();
          })
          .Case([&](SelectionStatisticsOp statistics) {
            setAt(statistics.getAtMutable());
            return success();
          })
          .Default([&](Operation *other) { return checkRows(*other); });
  if (failed(status) || failed(inferResultTypes(&op)))
    return failure();
  (isa<CompressOp>(op) ? wholes : chunks).insert_range(op.getResults());
  return success();
}

LogicalResult SequenceSharder::run() {
  if (failed(getReturn(function)) || failed(cutInputs()))
    return failure();
  for (Operation &op :
       llvm::make_early_inc_range(function.front().without_terminator()))
    if (failed(visit(op)))
      return failure();
  signature.update();
  return success();
}

void ShardSequencePass::runOnOperation() {
  func::FuncOp function = getOperation();
  if (ranks == 1 || (function.getName() != training::accumulateEntry &&
                     function.getName() != training::evalEntry))
    return;
  SequenceSharder sharder(function, ranks);
  if (failed(sharder.run()))
    return signalPassFailure();
  numGathers += sharder.numGathers;
}
