//===- FuseGradients.cpp - one sum of many gradients ----------------------===//

#include "passes/Graph/FuseGradients.h"
#include "dialects/NN/NNOps.h"

#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-fuse"

using namespace mlir;
using namespace nsa;

namespace {
/// The sums of the parts of a matmul with gradients.
struct Sums {
  nn::MatmulOp product;
  SmallVector<nn::AddOp> adds;
  SmallVector<Value> gradients;
  SmallVector<StringRef> tensors;
};
} // namespace

/// The gradient that `add` adds `part` to and updates, or null.
static BlockArgument getGradient(func::FuncOp function, nn::AddOp add,
                                 Value part) {
  Value other = add.getLhs() == part ? add.getRhs() : add.getLhs();
  auto argument = dyn_cast<BlockArgument>(other);
  if (!argument || !argument.hasOneUse() ||
      nn::getArgumentRole(function, argument.getArgNumber()) !=
          nn::ArgumentRole::Gradient)
    return {};
  StringRef name = nn::getArgumentName(function, argument.getArgNumber());
  bool isUpdated =
      !name.empty() &&
      llvm::any_of(llvm::seq(function.getNumResults()), [&](unsigned i) {
        return nn::getResultAlias(function, i) == name;
      });
  return isUpdated ? argument : BlockArgument();
}

/// Why the parts of `split` are not summed inside their matmul, or nothing.
static StringRef collect(func::FuncOp function, nn::SplitOp split, Sums &sums) {
  sums.product = split.getInput().getDefiningOp<nn::MatmulOp>();
  if (!sums.product->hasOneUse() || sums.product.getAccumulator())
    return "the matmul has other uses";
  for (Value part : split.getParts()) {
    auto add = part.hasOneUse() ? dyn_cast<nn::AddOp>(*part.user_begin())
                                : nn::AddOp();
    BlockArgument gradient =
        add ? getGradient(function, add, part) : BlockArgument();
    if (!gradient)
      return "a part is not added to a gradient alone";
    sums.adds.push_back(add);
    sums.gradients.push_back(gradient);
    sums.tensors.push_back(
        nn::getArgumentName(function, gradient.getArgNumber()));
  }
  int64_t length = nn::getFlatLength(split.getParts().getTypes());
  if (length != split.getInput().getType().getNumElements())
    return "the gradients have gaps between them";
  return "";
}

static void fuse(const Sums &sums) {
  nn::MatmulOp product = sums.product;
  OpBuilder builder(product);
  ArrayAttr names = builder.getStrArrayAttr(sums.tensors);
  Location loc = product.getLoc();
  Value before = nn::FlattenOp::create(builder, loc, product.getType(),
                                       sums.gradients, names);
  auto sum = nn::MatmulOp::create(
      builder, loc, product.getLhs(), product.getRhs(), before,
      product.getTransposeLhs(), product.getTransposeRhs(),
      product.getResultTypeAttr());
  auto after = nn::UnflattenOp::create(builder, loc,
                                       ValueRange(sums.gradients).getTypes(),
                                       sum.getOutput(), names);
  Operation *split = *product->user_begin();
  for (auto [constAdd, part] : llvm::zip_equal(sums.adds, after.getParts())) {
    nn::AddOp add = constAdd;
    add.replaceAllUsesWith(part);
    add.erase();
  }
  split->erase();
  product.erase();
}

unsigned nsa::fuseGradients(func::FuncOp function, FlatGroupLayout &layout) {
  unsigned numSums = 0;
  for (auto split :
       llvm::make_early_inc_range(function.getOps<nn::SplitOp>())) {
    if (!split.getRows() || !split.getInput().getDefiningOp<nn::MatmulOp>())
      continue;
    Sums sums;
    Location loc = split.getLoc();
    StringRef obstacle = collect(function, split, sums);
    if (obstacle.empty() && !layout.claim(sums.tensors))
      obstacle = "the gradients lie in another order";
    auto options = remark::RemarkOpts::name("Accumulate")
                       .category(DEBUG_TYPE)
                       .function(function.getName());
    if (!obstacle.empty()) {
      remark::missed(loc, options) << remark::reason("{0}", obstacle);
      continue;
    }
    remark::passed(loc, options)
        << remark::add("{0} sums inside one matmul", sums.adds.size());
    numSums += sums.adds.size();
    fuse(sums);
  }
  return numSums;
}
