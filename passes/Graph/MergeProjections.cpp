//===- MergeProjections.cpp - one matmul for projections of a value -------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSADialect.h"
#include "passes/Graph/FlatGroupLayout.h"
#include "passes/Graph/Passes.h"

#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"

#define DEBUG_TYPE "nsa-merge-projections"

namespace nsa {
#define GEN_PASS_DEF_MERGEPROJECTIONS
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

/// Matmuls with the same left-hand side, whose weights are alike.
struct Group {
  SmallVector<nn::MatmulOp> products;
};

class Merger {
public:
  Merger(func::FuncOp function, FlatGroupLayout &layout, int64_t multiple)
      : function(function), layout(layout), multiple(multiple) {}

  /// Returns how many matmuls were merged.
  unsigned run();

private:
  StringRef findObstacle(nn::MatmulOp product) const;
  unsigned merge(Group &group);
  BlockArgument getWeight(nn::MatmulOp product) const {
    return cast<BlockArgument>(product.getRhs());
  }
  StringRef getName(nn::MatmulOp product) const {
    return nn::getArgumentName(function, getWeight(product).getArgNumber());
  }
  remark::RemarkOpts getOptions() {
    return remark::RemarkOpts::name("Merge")
        .category(DEBUG_TYPE)
        .function(function.getName());
  }

  func::FuncOp function;
  FlatGroupLayout &layout;
  int64_t multiple;
};

struct MergeProjectionsPass
    : nsa::impl::MergeProjectionsBase<MergeProjectionsPass> {
  void runOnOperation() override {
    int64_t multiple = MachineAttr::of(getOperation()).getColumnMultiple();
    FlatGroupLayout layout(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function.getBody().hasOneBlock())
        numMerged += Merger(function, layout, multiple).run();
  }
};

} // namespace

/// Why a matmul cannot be part of a larger one, or nothing.
StringRef Merger::findObstacle(nn::MatmulOp product) const {
  auto weight = dyn_cast<BlockArgument>(product.getRhs());
  if (!weight || nn::getArgumentRole(function, weight.getArgNumber()) !=
                     nn::ArgumentRole::Parameter)
    return "its right-hand side is no parameter";
  if (getName(product).empty())
    return "its parameter has no name";
  if (product.getTransposeLhs() || !product.getTransposeRhs())
    return "its weight is not [out, in]";
  if (product.getAccumulator())
    return "it is added to something";
  if (!nsa::getElementType(weight).isF32() || getShape(weight).size() != 2)
    return "its parameter is no matrix of f32";
  if (ShapedType::getNumElements(getShape(weight)) % nn::kFlatAlignment != 0)
    return "its parameter would be followed by a gap";
  if (getDim(weight, 0) == 0)
    return "its parameter is empty";
  if (getDim(weight, 0) % multiple != 0)
    return "its columns are no multiple of what rows are aligned to";
  return "";
}

unsigned Merger::merge(Group &group) {
  llvm::stable_sort(group.products, [&](nn::MatmulOp a, nn::MatmulOp b) {
    return getWeight(a).getArgNumber() < getWeight(b).getArgNumber();
  });
  // In the order of the parameters, each once.
  SmallVector<nn::MatmulOp> products;
  for (nn::MatmulOp product : group.products)
    if (products.empty() || products.back().getRhs() != product.getRhs())
      products.push_back(product);
  if (products.size() < 2)
    return 0;
  nn::MatmulOp first =
      *llvm::min_element(products, [](nn::MatmulOp a, nn::MatmulOp b) {
        return a->isBeforeInBlock(b);
      });
  auto names = llvm::map_to_vector(
      products, [&](nn::MatmulOp product) { return getName(product); });
  if (!layout.claim(names)) {
    remark::missed(first.getLoc(), getOptions())
        << remark::reason("other matmuls have these weights in another order");
    return 0;
  }

  SmallVector<Value> weights;
  SmallVector<Location> locations;
  SmallVector<int64_t> sizes;
  int64_t width = 0;
  for (nn::MatmulOp product : products) {
    weights.push_back(product.getRhs());
    locations.push_back(product.getLoc());
    sizes.push_back(getDim(product.getRhs(), 0));
    width += sizes.back();
  }
  OpBuilder builder(first);
  Location loc = FusedLoc::get(builder.getContext(), locations);
  auto type = RankedTensorType::get({width, getDim(weights.front(), 1)},
                                    builder.getF32Type());
  Value weight = nn::FlattenOp::create(builder, loc, type, weights,
                                       builder.getStrArrayAttr(names));
  Value whole = nn::MatmulOp::create(
      builder, loc, first.getLhs(), weight, /*accumulator=*/Value(),
      /*transpose_lhs=*/false, /*transpose_rhs=*/true,
      first.getResultTypeAttr());
  auto split = nn::SplitOp::create(builder, loc, whole, sizes, /*rows=*/false);
  remark::passed(loc, getOptions()) << remark::add(
      "{0} projections in one matmul of {1} columns", products.size(), width);
  for (auto [constProduct, part] :
       llvm::zip_equal(products, split.getParts())) {
    nn::MatmulOp product = constProduct;
    product.replaceAllUsesWith(part);
    product.erase();
  }
  return products.size();
}

unsigned Merger::run() {
  // Weights of different decay or optimizers belong to different updates, which
  // keep their tensors together.
  using Key = std::tuple<Value, Type, unsigned, StringRef>;
  llvm::MapVector<Key, Group> groups;
  llvm::MapVector<Value, SmallVector<std::pair<nn::MatmulOp, StringRef>>>
      refused;
  llvm::DenseMap<Value, unsigned> numProducts;
  for (auto product : function.getOps<nn::MatmulOp>()) {
    Value input = product.getLhs();
    ++numProducts[input];
    if (StringRef obstacle = findObstacle(product); !obstacle.empty()) {
      refused[input].push_back({product, obstacle});
      continue;
    }
    unsigned weight = getWeight(product).getArgNumber();
    groups[{input, nsa::getElementType(product.getOutput()),
            nn::hasDecay(function, weight),
            nn::getArgumentOptimizer(function, weight)}]
        .products.push_back(product);
  }
  for (auto &[input, products] : refused)
    for (auto [product, obstacle] : products)
      if (numProducts.lookup(input) > 1)
        remark::missed(product->getLoc(), getOptions())
            << remark::reason("{0}", obstacle);
  unsigned numMerged = 0;
  for (auto &[key, group] : groups)
    numMerged += merge(group);
  return numMerged;
}
