//===- Fuse.cpp - fewer commands for the same values ----------------------===//

#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSADialect.h"
#include "passes/Graph/FlatGroupLayout.h"
#include "passes/Graph/FuseGradients.h"
#include "passes/Graph/FuseKernels.h"
#include "passes/Graph/FuseUpdates.h"
#include "passes/Graph/Passes.h"
#include "passes/Support/Debug.h"

#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-fuse"

namespace nsa {
#define GEN_PASS_DEF_FUSE
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct FusePass : nsa::impl::FuseBase<FusePass> {
  using FuseBase::FuseBase;
  void runOnOperation() override;
  void fuseSums(func::FuncOp function);
};
} // namespace

//===----------------------------------------------------------------------===//
// Sums inside matmuls
//===----------------------------------------------------------------------===//

static bool isView(Operation *op) { return op->hasTrait<ViewOfOperand>(); }

/// The value that `value` is all of.
static Value getViewed(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isView(op) || op->getNumResults() != 1)
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// Whether something but `except` reads `value`, or a view of it, after `op`.
static bool isReadAfter(Value value, Operation *op, Operation *except) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    if (isView(user))
      return llvm::any_of(user->getResults(), [&](Value shown) {
        return isReadAfter(shown, op, except);
      });
    return user != except && op->isBeforeInBlock(user);
  });
}

/// The first of the products that are added up to `product`, each of which only
/// the next one reads.
static nn::MatmulOp getFirstProduct(nn::MatmulOp product) {
  while (Value sum = product.getAccumulator()) {
    auto first = sum.getDefiningOp<nn::MatmulOp>();
    if (!first || !first->hasOneUse())
      break;
    product = first;
  }
  return product;
}

/// Whether the function ends with a new value in the argument's memory.
static bool isUpdated(func::FuncOp function, BlockArgument argument) {
  StringRef name = nn::getArgumentName(function, argument.getArgNumber());
  return !name.empty() &&
         llvm::any_of(llvm::seq(function.getNumResults()), [&](unsigned i) {
           return nn::getResultAlias(function, i) == name;
         });
}

/// Why `product` cannot be added to `other` where that lies, or nothing.
static StringRef findObstacle(func::FuncOp function, nn::AddOp add,
                              nn::MatmulOp product, Value other) {
  Value memory = getViewed(other);
  if (!product->hasOneUse())
    return "the matmul has other readers";
  nn::MatmulOp first = getFirstProduct(product);
  if (first.getAccumulator())
    return "the matmul is added to something already";
  if (Operation *source = memory.getDefiningOp();
      first != product && source && !source->isBeforeInBlock(first))
    return "the matmul is added to something already";
  if (auto argument = dyn_cast<BlockArgument>(memory);
      argument && !isUpdated(function, argument))
    return "the other term is an argument that stays";
  if (getViewed(product.getLhs()) == memory ||
      getViewed(product.getRhs()) == memory)
    return "the other term is an operand of the matmul";
  Operation *place = first == product ? add.getOperation() : first;
  if (isReadAfter(memory, place, add))
    return "the other term is read later";
  // Activations are left alone: whether one is read later depends on what
  // backward computes again, and rounding must not. What only the sum reads,
  // backward does not need.
  auto producer = memory.getDefiningOp<nn::MatmulOp>();
  if (!isa<BlockArgument>(memory) &&
      (!producer || isReadAfter(memory, producer, add)))
    return "the other term is an activation";
  return "";
}

/// Makes `add` part of the matmul that is its operand `index`. Returns why not
/// otherwise; nothing where that operand is no matmul.
static std::optional<StringRef> fuseSum(func::FuncOp function, nn::AddOp add,
                                        unsigned index) {
  auto product = add->getOperand(index).getDefiningOp<nn::MatmulOp>();
  if (!product)
    return std::nullopt;
  Value other = add->getOperand(1 - index);
  StringRef obstacle = findObstacle(function, add, product, other);
  if (!obstacle.empty())
    return obstacle;
  if (nn::MatmulOp first = getFirstProduct(product); first != product) {
    first.getAccumulatorMutable().assign(other);
    add.replaceAllUsesWith(product.getOutput());
    add.erase();
    return StringRef();
  }
  OpBuilder builder(add);
  auto sum = nn::MatmulOp::create(
      builder, add.getLoc(), product.getLhs(), product.getRhs(), other,
      product.getTransposeLhs(), product.getTransposeRhs(),
      product.getResultTypeAttr());
  add.replaceAllUsesWith(sum.getOutput());
  add.erase();
  product.erase();
  return StringRef();
}

void FusePass::fuseSums(func::FuncOp function) {
  for (auto add : llvm::make_early_inc_range(function.getOps<nn::AddOp>())) {
    Location loc = add.getLoc();
    // The matmul that comes later joins: the other one lies there already.
    auto isLater = [&](unsigned index) {
      Operation *op = add->getOperand(index).getDefiningOp();
      Operation *other = add->getOperand(1 - index).getDefiningOp();
      return op && (!other || other->isBeforeInBlock(op));
    };
    unsigned first = isLater(1) ? 1 : 0;
    std::optional<StringRef> obstacle = fuseSum(function, add, first);
    if (!obstacle || !obstacle->empty())
      if (auto second = fuseSum(function, add, 1 - first))
        obstacle = second;
    if (!obstacle)
      continue;
    NSA_DEBUG() << "nn.add at " << loc
                << (obstacle->empty() ? " joins its matmul" : " stays: ")
                << *obstacle;
    auto options = remark::RemarkOpts::name("Accumulate")
                       .category(DEBUG_TYPE)
                       .function(function.getName());
    if (!obstacle->empty()) {
      remark::missed(loc, options) << remark::reason("{0}", *obstacle);
      continue;
    }
    remark::passed(loc, options) << remark::add("sum inside a matmul");
    ++numSums;
  }
}

/// Moves the views that only an `nn.concat` reads next to it: elsewhere they
/// would prevent the fusion of what they view.
static void sinkViews(func::FuncOp function) {
  for (auto concat : function.getOps<nn::ConcatOp>())
    for (Value part : concat.getParts()) {
      Operation *place = concat, *op = part.getDefiningOp();
      while (op && isView(op) && op->getNumResults() == 1 && op->hasOneUse()) {
        op->moveBefore(place);
        place = op;
        op = op->getOperand(0).getDefiningOp();
      }
    }
}

void FusePass::runOnOperation() {
  FlatGroupLayout layout(getOperation());
  int64_t mostPartialSums = MachineAttr::of(getOperation()).getPrograms();
  for (auto function : getOperation().getOps<func::FuncOp>()) {
    if (!function.getBody().hasOneBlock())
      continue;
    fuseSums(function);
    numSums += fuseGradients(function, layout);
    sinkViews(function);
    numRowSums += fuseRowSums(function, mostPartialSums);
    numCasts += fuseCasts(function);
    numInKernels += fuseKernels(function);
    numUpdates += fuseUpdates(function, layout);
  }
}
