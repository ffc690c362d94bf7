//===- FuseCasts.cpp - one cast of many parameters ------------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Graph/FuseKernels.h"

#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"

#define DEBUG_TYPE "nsa-fuse"

using namespace mlir;
using namespace nsa;

/// Tensors that one kernel takes at most: their addresses are its arguments, of
/// which a GPU has 4 KiB.
static constexpr size_t kMostTensors = 128;

/// Whether the value is memory of parameters, there from the start.
static bool isParameter(func::FuncOp function, Value value) {
  if (auto group = value.getDefiningOp<nn::FlattenOp>())
    return llvm::all_of(group.getParts(), [&](Value part) {
      return isParameter(function, part);
    });
  auto argument = dyn_cast<BlockArgument>(value);
  return argument && nn::getArgumentRole(function, argument.getArgNumber()) ==
                         nn::ArgumentRole::Parameter;
}

/// Replaces the casts by one before the first of them.
static void fuse(ArrayRef<nn::CastOp> casts, Type element, Location loc) {
  nn::CastOp first = casts.front();
  SmallVector<Value> inputs;
  for (nn::CastOp cast : casts) {
    inputs.push_back(cast.getInput());
    Operation *group = cast.getInput().getDefiningOp();
    if (group && first->isBeforeInBlock(group))
      group->moveBefore(first);
  }
  OpBuilder builder(first);
  auto all = nn::CastAllOp::create(builder, loc, inputs, element);
  for (auto [cast, output] : llvm::zip_equal(casts, all.getOutputs())) {
    nn::CastOp(cast).replaceAllUsesWith(output);
    nn::CastOp(cast).erase();
  }
}

unsigned nsa::fuseCasts(func::FuncOp function) {
  llvm::MapVector<Type, SmallVector<nn::CastOp>> groups;
  for (auto cast : function.getOps<nn::CastOp>())
    if (isParameter(function, cast.getInput()))
      groups[cast.getElementType()].push_back(cast);
  unsigned numFused = 0;
  auto options = remark::RemarkOpts::name("Casts")
                     .category(DEBUG_TYPE)
                     .function(function.getName());
  for (auto &[element, casts] : groups)
    for (ArrayRef<nn::CastOp> rest = casts; !rest.empty();
         rest = rest.drop_front(std::min(rest.size(), kMostTensors))) {
      ArrayRef<nn::CastOp> group = rest.take_front(kMostTensors);
      Location loc = nn::CastOp(group.front()).getLoc();
      if (group.size() < 2) {
        remark::missed(loc, options)
            << remark::reason("no other parameter is cast with it");
        continue;
      }
      remark::passed(loc, options)
          << remark::add("{0} parameters cast at once", group.size());
      numFused += group.size();
      fuse(group, element, function.getLoc());
    }
  return numFused;
}
