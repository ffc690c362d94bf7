//===- AssignOptimizers.cpp - which optimizer a parameter has -------------===//

#include "dialects/Interfaces/OptimizerOpInterface.h"
#include "dialects/NN/NNActivations.h"
#include "dialects/NN/NNAttributes.h"
#include "passes/Graph/Passes.h"

#include "llvm/ADT/StringExtras.h"

namespace nsa {
#define GEN_PASS_DEF_ASSIGNOPTIMIZERS
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

struct AssignOptimizersPass
    : nsa::impl::AssignOptimizersBase<AssignOptimizersPass> {
  using AssignOptimizersBase::AssignOptimizersBase;
  void runOnOperation() override;
};

} // namespace

/// Whether a matmul is logits of tokens or of gates.
static bool isLogits(Value product) {
  return llvm::any_of(product.getUsers(), [](Operation *user) {
    if (isa<nn::SplitHeadsOp, nn::SoftcapOp, nn::CastOp>(user))
      return isLogits(user->getResult(0));
    return isa<nn::CrossEntropyOp, nn::GateOp>(user);
  });
}

/// Whether the parameter is a matrix from hidden states to hidden states.
static bool isHiddenMatrix(BlockArgument parameter) {
  if (cast<ShapedType>(parameter.getType()).getRank() != 2)
    return false;
  return llvm::all_of(parameter.getUsers(), [&](Operation *user) {
    auto product = dyn_cast<nn::MatmulOp>(user);
    return product && product.getRhs() == parameter &&
           product.getLhs() != parameter && !isLogits(product.getOutput());
  });
}

void AssignOptimizersPass::runOnOperation() {
  func::FuncOp function = getOperation();
  std::optional<OptimizerKind> kind =
      OptimizerKind::find(&getContext(), optimizer);
  // The pass that makes the updates checks the optimizer's name.
  if (!nn::isTrainable(function) || !kind || kind->getCompanion().empty())
    return;
  auto companion = StringAttr::get(&getContext(), kind->getCompanion());
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    if (nn::getArgumentRole(function, index) != nn::ArgumentRole::Parameter ||
        !nn::getArgumentOptimizer(function, index).empty() ||
        isHiddenMatrix(argument))
      continue;
    function.setArgAttr(index, nn::kOptimizerAttr, companion);
    ++numAssigned;
  }
}
