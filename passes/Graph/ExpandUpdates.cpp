//===- ExpandUpdates.cpp - updates of many operations ---------------------===//

#include "dialects/Interfaces/OptimizerOpInterface.h"
#include "dialects/NN/NNDialect.h"
#include "passes/Graph/Passes.h"

#include "llvm/ADT/MapVector.h"

namespace nsa {
#define GEN_PASS_DEF_EXPANDUPDATES
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

using Group = SmallVector<OptimizerOpInterface>;

struct ExpandUpdatesPass : nsa::impl::ExpandUpdatesBase<ExpandUpdatesPass> {
  void runOnOperation() override;
  LogicalResult expand(ArrayRef<OptimizerOpInterface> group);
};

} // namespace

/// Whether `update` may be made together with `group`, where it stands: nothing
/// reads what the others make before that.
static bool mayJoin(OptimizerOpInterface update, const Group &group) {
  return llvm::all_of(group, [&](OptimizerOpInterface member) {
    return llvm::all_of(member->getUsers(), [&](Operation *user) {
      return user != update && user->getBlock() == update->getBlock() &&
             update->isBeforeInBlock(user);
    });
  });
}

/// Updates that are built together, each group in the order of the block.
static SmallVector<Group> collectGroups(func::FuncOp function) {
  SmallVector<Group> groups;
  llvm::MapVector<std::pair<Attribute, Attribute>, SmallVector<unsigned>> alike;
  for (auto update : function.getOps<OptimizerOpInterface>()) {
    if (update.isElementwise())
      continue;
    auto &known =
        alike[{update->getName().getIdentifier(), update->getAttrDictionary()}];
    auto *fits = llvm::find_if(known, [&](unsigned number) {
      OptimizerOpInterface first = groups[number].front();
      return first.getWeight().getType() == update.getWeight().getType() &&
             first.getNorm() == update.getNorm() &&
             first.getLoss() == update.getLoss() &&
             first.getHyper() == update.getHyper() &&
             mayJoin(update, groups[number]);
    });
    if (fits != known.end()) {
      groups[*fits].push_back(update);
      continue;
    }
    known.push_back(groups.size());
    groups.push_back({update});
  }
  return groups;
}

LogicalResult ExpandUpdatesPass::expand(ArrayRef<OptimizerOpInterface> group) {
  OptimizerOpInterface last = group.back();
  OpBuilder builder(last);
  SmallVector<Value> built = last.buildUpdate(builder, group);
  SmallVector<Value> results;
  for (OptimizerOpInterface member : group)
    llvm::append_range(results, member->getResults());
  if (!llvm::equal(ValueRange(built).getTypes(),
                   ValueRange(results).getTypes()))
    return last->emitOpError("has an update of ")
           << built.size() << " values for " << results.size() << " results";
  for (auto [result, value] : llvm::zip_equal(results, built))
    result.replaceAllUsesWith(value);
  for (OptimizerOpInterface member : group)
    member->erase();
  numExpanded += group.size();
  return success();
}

void ExpandUpdatesPass::runOnOperation() {
  func::FuncOp function = getOperation();
  if (function.isExternal())
    return;
  for (const Group &group : collectGroups(function))
    if (failed(expand(group)))
      return signalPassFailure();
}
