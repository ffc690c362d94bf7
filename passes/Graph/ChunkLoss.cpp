//===- ChunkLoss.cpp - the loss without all logits at once ----------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNActivations.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-chunk-loss"

namespace nsa {
#define GEN_PASS_DEF_CHUNKLOSS
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

/// A head, the loss of its logits and the readers of the logits' gradient.
struct Loss {
  nn::MatmulOp head;
  /// The softcap of the logits, and its gradient; null if there is none.
  nn::SoftcapOp softcap;
  nn::SoftcapBackwardOp softcapBackward;
  nn::CrossEntropyOp loss;
  /// Null outside of training.
  nn::CrossEntropyBackwardOp backward;
  /// Matmuls with a row for each token: the gradient of the head's input.
  SmallVector<nn::MatmulOp> byRows;
  /// Matmuls that sum over tokens: the gradient of the head's weight.
  SmallVector<nn::MatmulOp> overRows;

  /// What the matmuls of backward read.
  Value getLogitsGrad() {
    return softcap ? softcapBackward.getInputGrad() : backward.getLogitsGrad();
  }
  int64_t getRows() {
    return ShapedType::getNumElements(getShape(head.getOutput()).drop_back());
  }
  int64_t getBytes() {
    auto type = cast<RankedTensorType>(head.getOutput().getType());
    int64_t bytes = type.getNumElements() * type.getElementTypeBitWidth() / 8;
    return backward ? 2 * bytes : bytes;
  }
};

struct ChunkLossPass : nsa::impl::ChunkLossBase<ChunkLossPass> {
  using ChunkLossBase::ChunkLossBase;

  LogicalResult initialize(MLIRContext *context) override;
  void runOnOperation() override;
  void visit(nn::CrossEntropyOp loss);
};

} // namespace

//===----------------------------------------------------------------------===//
// What is there
//===----------------------------------------------------------------------===//

using ValuePairs = DenseMap<std::pair<Value, Value>, bool>;

/// Whether both are the same or one is the other computed again. `known` caches
/// results: values that are read twice are compared once.
static bool isSameValue(Value a, Value b, ValuePairs &known) {
  auto strip = [](Value value) {
    while (auto barrier = value.getDefiningOp<nn::RecomputeBarrierOp>())
      value = barrier.getInput();
    return value;
  };
  a = strip(a), b = strip(b);
  if (a == b)
    return true;
  auto x = dyn_cast<OpResult>(a), y = dyn_cast<OpResult>(b);
  if (!x || !y || x.getResultNumber() != y.getResultNumber())
    return false;
  if (auto pair = known.find({a, b}); pair != known.end())
    return pair->second;
  Operation *first = x.getOwner(), *second = y.getOwner();
  bool isSame =
      first->getName() == second->getName() &&
      first->getPropertiesAsAttribute() == second->getPropertiesAsAttribute() &&
      first->getResultTypes() == second->getResultTypes() &&
      first->getNumOperands() > 0 &&
      first->getNumOperands() == second->getNumOperands() &&
      llvm::all_of(llvm::zip(first->getOperands(), second->getOperands()),
                   [&](auto pair) {
                     return isSameValue(std::get<0>(pair), std::get<1>(pair),
                                        known);
                   });
  return known[{a, b}] = isSame;
}

static bool isSameValue(Value a, Value b) {
  ValuePairs known;
  return isSameValue(a, b, known);
}

/// Sorts the matmul that reads the gradient of the logits. Returns why it
/// cannot be made in chunks, or nothing.
static StringRef addProduct(Loss &found, Operation *user) {
  auto product = dyn_cast<nn::MatmulOp>(user);
  if (!product)
    return "something else than a matmul reads the gradient of the logits";
  Value gradient = found.getLogitsGrad();
  bool isLhs = product.getLhs() == gradient;
  Value other = isLhs ? product.getRhs() : product.getLhs();
  if (other == gradient || product.getAccumulator())
    return "a matmul of the gradient of the logits is added to something";
  if (product.getTransposeLhs() && !product.getTransposeRhs()) {
    if (!isSameValue(other, found.head.getLhs()))
      return "a matmul over tokens does not read the head's input";
    found.overRows.push_back(product);
    return "";
  }
  if (!isLhs || product.getTransposeLhs() ||
      !isSameValue(other, found.head.getRhs()))
    return "a matmul does not read the head's weight";
  found.byRows.push_back(product);
  return "";
}

/// Whether the value is there before `op`, or can be made again.
static bool isKnownAt(Value value, Operation *op) {
  Operation *producer = value.getDefiningOp();
  return !producer || isa<nn::FillOp>(producer) ||
         producer->isBeforeInBlock(op);
}

/// Whether the gradient of a loss is divided by what the loss is.
static bool isDivisor(Value value, nn::CrossEntropyOp loss) {
  if (!loss.getOverAll())
    return value == loss.getCount();
  auto fill = value.getDefiningOp<nn::FillOp>();
  return fill &&
         fill.getValue().convertToDouble() == double(loss.getNumTargets());
}

/// Finds what reads the logits. Returns an obstacle, or nothing.
static StringRef collectReaders(Loss &found) {
  for (Operation *user : found.loss.getLogits().getUsers()) {
    if (user == found.loss)
      continue;
    auto slope = dyn_cast<nn::SoftcapBackwardOp>(user);
    if (found.softcap && slope && !found.softcapBackward) {
      found.softcapBackward = slope;
      continue;
    }
    auto backward = dyn_cast<nn::CrossEntropyBackwardOp>(user);
    if (!backward || found.backward || backward.getLse() != found.loss.getLse())
      return "something else reads the logits";
    found.backward = backward;
  }
  if (found.softcap && (!found.softcap.getInput().hasOneUse() ||
                        bool(found.backward) != bool(found.softcapBackward)))
    return "something else reads the logits";
  if (found.softcapBackward &&
      (!found.backward->hasOneUse() ||
       found.softcapBackward.getOutputGrad() != found.backward.getLogitsGrad()))
    return "the gradient of the softcap is not that of the loss";
  return "";
}

/// Fills in what depends on the loss. Returns an obstacle, or nothing.
static StringRef collect(Loss &found) {
  Value logits = found.loss.getLogits();
  found.softcap = logits.getDefiningOp<nn::SoftcapOp>();
  if (found.softcap)
    logits = found.softcap.getInput();
  found.head = logits.getDefiningOp<nn::MatmulOp>();
  if (!found.head || found.head.getAccumulator() ||
      found.head.getTransposeLhs())
    return "the logits are not a matmul with a weight";
  if (StringRef obstacle = collectReaders(found); !obstacle.empty())
    return obstacle;
  // What the mean is over is counted apart where it is not the divisor.
  bool overAll = found.loss.getOverAll();
  for (Value statistic : {found.loss.getLse(), found.loss.getCount()})
    for (Operation *user : statistic.getUsers())
      if (user != found.backward &&
          !(overAll && statistic != found.loss.getLse()))
        return "something else reads the statistics of the loss";
  if (!found.backward)
    return "";
  if (found.backward.getTargets() != found.loss.getTargets() ||
      !isDivisor(found.backward.getCount(), found.loss))
    return "the gradient of the logits is not that of the loss";
  if (!isKnownAt(found.backward.getLossGrad(), found.loss))
    return "the gradient of the loss depends on the loss";
  for (Operation *user : found.getLogitsGrad().getUsers())
    if (StringRef obstacle = addProduct(found, user); !obstacle.empty())
      return obstacle;
  return "";
}

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

/// The matmul with other operands, at the builder's insertion point.
static Value createLike(OpBuilder &builder, nn::MatmulOp product, Value lhs,
                        Value rhs, Value sum = {}) {
  return nn::MatmulOp::create(
      builder, product.getLoc(), lhs, rhs, sum, product.getTransposeLhs(),
      product.getTransposeRhs(), product.getResultTypeAttr());
}

static void split(Loss &found, int64_t rowsPerChunk) {
  OpBuilder builder(found.loss);
  Location loc = found.loss.getLoc();
  Value input = found.head.getLhs(), weight = found.head.getRhs();
  Value targets = found.loss.getTargets();
  SmallVector<Type> types;
  for (int64_t row = 0, rows = found.getRows(); row < rows; row += rowsPerChunk)
    types.push_back(RankedTensorType::get(
        {std::min(rowsPerChunk, rows - row), getShape(input).back()},
        getElementType(input)));
  Value lossGrad;
  if (found.backward) {
    lossGrad = found.backward.getLossGrad();
    if (auto fill = lossGrad.getDefiningOp<nn::FillOp>())
      lossGrad = builder.clone(*fill)->getResult(0);
  }
  bool overAll = found.loss.getOverAll();
  Value count = nn::CountTargetsOp::create(builder, loc, targets, overAll);
  Value divisor = count;
  if (overAll) {
    divisor = found.loss.getDivisor(builder);
    found.loss.getCount().replaceAllUsesWith(count);
  }
  auto chunks =
      nn::SplitRowsOp::create(builder, found.head.getLoc(), types, input);
  SmallVector<Value> losses, sums(found.overRows.size());
  SmallVector<SmallVector<Value>> rows(found.byRows.size());
  int64_t first = 0;
  for (Value chunk : chunks.getParts()) {
    Value logits = createLike(builder, found.head, chunk, weight);
    if (found.softcap)
      logits = nn::SoftcapOp::create(builder, found.softcap.getLoc(), logits,
                                     found.softcap.getCapAttr());
    auto loss = nn::CrossEntropyChunkOp::create(builder, loc, logits, targets,
                                                divisor, lossGrad, first);
    losses.push_back(loss.getLosses());
    Value gradient = loss.getLogitsGrad();
    if (found.softcapBackward)
      gradient = nn::SoftcapBackwardOp::create(builder, found.softcap.getLoc(),
                                               gradient, logits,
                                               found.softcap.getCapAttr());
    for (auto [product, parts] : llvm::zip_equal(found.byRows, rows))
      parts.push_back(createLike(builder, product, gradient, weight));
    for (auto [product, sum] : llvm::zip_equal(found.overRows, sums)) {
      bool isLhs = product.getLhs() == found.getLogitsGrad();
      sum = createLike(builder, product, isLhs ? gradient : chunk,
                       isLhs ? chunk : gradient, sum);
    }
    first += getDim(chunk, 0);
  }
  Value mean = nn::MeanLossOp::create(builder, loc, divisor, losses);
  found.loss.getLoss().replaceAllUsesWith(mean);
  for (auto [product, parts] : llvm::zip_equal(found.byRows, rows))
    product.replaceAllUsesWith(
        nn::ConcatRowsOp::create(builder, product.getLoc(), product.getType(),
                                 parts)
            .getOutput());
  for (auto [product, sum] : llvm::zip_equal(found.overRows, sums))
    product.replaceAllUsesWith(sum);
  for (nn::MatmulOp product :
       llvm::concat<nn::MatmulOp>(found.byRows, found.overRows))
    product.erase();
  if (found.softcapBackward)
    found.softcapBackward.erase();
  if (found.backward)
    found.backward.erase();
  found.loss.erase();
  if (found.softcap)
    found.softcap.erase();
  found.head.erase();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

LogicalResult ChunkLossPass::initialize(MLIRContext *context) {
  if (limitMiB < 1 || limitMiB > kMaxLogitsMiB)
    return emitError(UnknownLoc::get(context), "limit of logits of ")
           << limitMiB.getValue() << " MiB, expected 1 to " << kMaxLogitsMiB;
  return success();
}

void ChunkLossPass::visit(nn::CrossEntropyOp loss) {
  auto options = remark::RemarkOpts::name("Chunks")
                     .category(DEBUG_TYPE)
                     .function(getOperation().getName());
  Location loc = loss.getLoc();
  Loss found;
  found.loss = loss;
  if (StringRef obstacle = collect(found); !obstacle.empty()) {
    remark::missed(loc, options) << remark::reason("{0}", obstacle);
    return;
  }
  int64_t bytes = found.getBytes(), limit = limitMiB << 20;
  if (bytes <= limit) {
    remark::missed(loc, options) << remark::reason(
        "the logits take {0} bytes, within the limit of {1}", bytes, limit);
    return;
  }
  int64_t rows = found.getRows();
  int64_t wanted =
      std::min<int64_t>(llvm::divideCeil(bytes, limit), kMaxChunks);
  int64_t perChunk = llvm::divideCeil(rows, wanted);
  // Whole blocks of matmuls.
  if (perChunk >= 64)
    perChunk = llvm::alignTo(perChunk, 64);
  int64_t chunks = llvm::divideCeil(rows, perChunk);
  split(found, perChunk);
  numChunks += chunks;
  remark::passed(loc, options)
      << remark::metric("Chunks", chunks) << remark::metric("Rows", perChunk)
      << remark::metric("BytesBefore", bytes)
      << remark::metric("Bytes", bytes / rows * perChunk);
}

void ChunkLossPass::runOnOperation() {
  func::FuncOp function = getOperation();
  if (!function.getBody().hasOneBlock())
    return;
  for (auto loss :
       llvm::make_early_inc_range(function.getOps<nn::CrossEntropyOp>()))
    visit(loss);
  // Erases what was computed again for the matmuls.
  eraseDeadOps(function);
}
