//===- ShardOptimizer.cpp - states of a part of the parameters ------------===//

#include "dialects/Interfaces/OptimizerOpInterface.h"
#include "dialects/NN/NNOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

#include "llvm/ADT/StringSet.h"

#define DEBUG_TYPE "nsa-shard-optimizer"

namespace nsa {
#define GEN_PASS_DEF_SHARDOPTIMIZER
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

/// One function that updates parameters.
class Sharder {
public:
  Sharder(func::FuncOp function, int64_t ranks)
      : function(function), ranks(ranks),
        numArguments(function.getNumArguments()),
        numResults(function.getNumResults()), signature(function) {}

  /// `whole` are the updates that each rank makes alone.
  LogicalResult run(ArrayRef<OptimizerOpInterface> updates,
                    ArrayRef<OptimizerOpInterface> whole);

private:
  LogicalResult checkFused(OptimizerOpInterface update);
  LogicalResult checkNorm(ArrayRef<OptimizerOpInterface> updates);
  Value sliceShard(OpBuilder &builder, Value whole, int64_t shard);
  void shardNorm(nn::GradientNormOp norm,
                 ArrayRef<OptimizerOpInterface> updates,
                 ArrayRef<OptimizerOpInterface> whole);
  void shard(OptimizerOpInterface update);
  void eraseOldStates();

  func::FuncOp function;
  int64_t ranks;
  /// Before anything is added.
  unsigned numArguments, numResults;
  Signature signature;
  /// The parts of the gradients, by update.
  DenseMap<Operation *, Value> gradients;
  /// The tensors of states of whole parameters.
  llvm::StringSet<> oldStates;
};

struct ShardOptimizerPass : nsa::impl::ShardOptimizerBase<ShardOptimizerPass> {
  using ShardOptimizerBase::ShardOptimizerBase;
  void runOnOperation() override;
};

} // namespace

/// Parameters with weight decay and those without are laid out apart.
static int64_t getShard(OptimizerOpInterface update) {
  return update.getDecay() ? 0 : 1;
}

static nn::FlattenOp getFlatGroup(Value value) {
  return value.getDefiningOp<nn::FlattenOp>();
}

/// Whether an update is of norms and biases that ranks cannot divide: they take
/// too little memory to pad them.
static bool isSmall(OptimizerOpInterface update, int64_t ranks) {
  auto type = cast<RankedTensorType>(update.getWeight().getType());
  return !update.getDecay() && getFlatGroup(update.getWeight()) &&
         type.getNumElements() % ranks != 0;
}

LogicalResult Sharder::checkFused(OptimizerOpInterface update) {
  for (Value operand : update.getTensors())
    if (!getFlatGroup(operand))
      return update->emitOpError(
          "updates a single tensor: only updates of many "
          "tensors together can be shared by ranks");
  int64_t elements =
      cast<RankedTensorType>(update.getWeight().getType()).getNumElements();
  if (elements % ranks != 0)
    return update->emitOpError("updates ")
           << elements << " elements, which " << ranks << " does not divide";
  return success();
}

Value Sharder::sliceShard(OpBuilder &builder, Value whole, int64_t shard) {
  auto type = cast<RankedTensorType>(whole.getType());
  auto part = RankedTensorType::get(type.getNumElements() / ranks,
                                    type.getElementType());
  return nn::SliceShardOp::create(builder, whole.getLoc(), part, whole, shard);
}

/// Values and the parts of those that are flat groups, in an order of their
/// own.
static SmallVector<Value> getParts(ValueRange values) {
  SmallVector<Value> parts;
  for (Value value : values)
    if (nn::FlattenOp group = getFlatGroup(value))
      llvm::append_range(parts, group.getParts());
    else
      parts.push_back(value);
  llvm::sort(parts, [](Value a, Value b) {
    return a.getAsOpaquePointer() < b.getAsOpaquePointer();
  });
  return parts;
}

/// The norm will be that of the parts, so it has to be that of the wholes.
LogicalResult Sharder::checkNorm(ArrayRef<OptimizerOpInterface> updates) {
  OptimizerOpInterface first = updates.front();
  auto norm = first.getNorm().getDefiningOp<nn::GradientNormOp>();
  if (!norm || norm.getSquared())
    return first->emitOpError("has a norm that is none of gradients");
  SmallVector<Value> gradients;
  for (OptimizerOpInterface update : updates) {
    if (update.getNorm() != first.getNorm())
      return update->emitOpError("has another norm than other updates");
    gradients.push_back(update.getGradient());
  }
  if (getParts(norm.getGradients()) != getParts(gradients))
    return norm.emitOpError("is not that of the gradients of all updates");
  return success();
}

/// The norm of all parts of all ranks, and of the gradients that each has
/// whole.
void Sharder::shardNorm(nn::GradientNormOp norm,
                        ArrayRef<OptimizerOpInterface> updates,
                        ArrayRef<OptimizerOpInterface> whole) {
  OpBuilder builder(norm);
  SmallVector<Value> parts;
  for (OptimizerOpInterface update : updates) {
    getFlatGroup(update.getGradient())->moveBefore(norm);
    parts.push_back(gradients[update] = sliceShard(
                        builder, update.getGradient(), getShard(update)));
  }
  Location loc = norm.getLoc();
  Value square =
      nn::GradientNormOp::create(builder, loc, parts, /*squared=*/true);
  Value mean = nn::AllReduceOp::create(builder, loc, square);
  Value all = nn::RootOfMeanOp::create(builder, loc, mean, ranks);
  if (!whole.empty()) {
    auto gradients =
        llvm::map_to_vector(whole, [&](OptimizerOpInterface update) -> Value {
          if (nn::FlattenOp group = getFlatGroup(update.getGradient()))
            group->moveBefore(norm);
          return update.getGradient();
        });
    Value own = nn::GradientNormOp::create(builder, loc, gradients,
                                           /*squared=*/false);
    all = nn::GradientNormOp::create(builder, loc, ValueRange{all, own},
                                     /*squared=*/false);
  }
  norm.getNorm().replaceAllUsesWith(all);
  norm.erase();
}

void Sharder::shard(OptimizerOpInterface update) {
  OpBuilder builder(update);
  Location loc = update.getLoc();
  int64_t number = getShard(update);
  Value weight = sliceShard(builder, update.getWeight(), number);
  Value gradient = gradients.lookup(update);
  StringRef suffix =
      update.getDecay() ? training::sharedDecayed : training::sharedOthers;
  SmallVector<OptimizerState> specs =
      update.getStateSpecs(cast<RankedTensorType>(weight.getType()));
  SmallVector<Value> tensors = {weight};
  for (auto [spec, old] : llvm::zip_equal(specs, update.getStates())) {
    for (auto tensor : getFlatGroup(old).getTensors().getAsRange<StringAttr>())
      oldStates.insert(tensor);
    tensors.push_back(signature.addOptimizerState(
        spec.name, suffix, spec.initial, spec.type, loc));
  }
  tensors.push_back(gradient);
  OptimizerOpInterface part = update.createFor(builder, loc, tensors);
  update.getNewWeight().replaceAllUsesWith(nn::AllGatherOp::create(
      builder, loc, update.getWeight().getType(), part.getNewWeight(), number));
  for (auto [spec, value] : llvm::zip_equal(specs, part.getNewStates()))
    signature.addResult(
        value,
        builder.getNamedAttr(nn::kAliasAttr,
                             builder.getStringAttr(spec.name + "." + suffix)));
}

/// Erases the states of whole parameters, arguments and results.
void Sharder::eraseOldStates() {
  SmallVector<unsigned> keep;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (i >= numResults || !oldStates.contains(nn::getResultAlias(function, i)))
      keep.push_back(i);
  keepResults(function, keep);
  eraseDeadOps(function);
  BitVector unused(function.getNumArguments());
  for (unsigned i = 0; i < numArguments; ++i)
    if (oldStates.contains(nn::getArgumentName(function, i)))
      unused.set(i);
  (void)function.eraseArguments(unused);
}

LogicalResult Sharder::run(ArrayRef<OptimizerOpInterface> updates,
                           ArrayRef<OptimizerOpInterface> whole) {
  if (updates.empty())
    return OptimizerOpInterface(whole.front())
        ->emitOpError("is not elementwise, so ranks cannot update a "
                      "part of the weights each");
  for (OptimizerOpInterface update : updates)
    if (failed(checkFused(update)))
      return failure();
  if (failed(checkNorm(llvm::to_vector(
          llvm::concat<const OptimizerOpInterface>(updates, whole)))))
    return failure();
  OptimizerOpInterface first = updates.front();
  shardNorm(first.getNorm().getDefiningOp<nn::GradientNormOp>(), updates,
            whole);
  for (OptimizerOpInterface update : updates)
    shard(update);
  signature.update();
  eraseOldStates();
  return success();
}

void ShardOptimizerPass::runOnOperation() {
  if (ranks == 1)
    return;
  if (ranks < 1 || ranks > 64 || !llvm::isPowerOf2_64(ranks)) {
    getOperation().emitError("cannot share an optimizer's state by ")
        << int64_t(ranks) << " ranks, only by 2, 4, 8, 16, 32 or 64";
    return signalPassFailure();
  }
  for (auto function : getOperation().getOps<func::FuncOp>()) {
    SmallVector<OptimizerOpInterface> updates, whole;
    for (auto update : function.getOps<OptimizerOpInterface>()) {
      if (!update.isElementwise() && !wholeGradients) {
        update->emitOpError("needs the whole gradient of its weight, but each "
                            "of ")
            << int64_t(ranks) << " ranks keeps a part only";
        return signalPassFailure();
      }
      bool isWhole = !update.isElementwise() || isSmall(update, ranks);
      (isWhole ? whole : updates).push_back(update);
    }
    if (updates.empty() && whole.empty())
      continue;
    if (failed(Sharder(function, ranks).run(updates, whole)))
      return signalPassFailure();
    numSharded += updates.size();
  }
}
