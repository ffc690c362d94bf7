//===- LayerMap.cpp - which layer a source location lies in ---------------===//

#include "lib/Compiler/LayerMap.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Layers.h"

using namespace mlir;
using namespace nsa;

/// The function that has a backward graph, or null.
static func::FuncOp findDifferentiated(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isExternal() && function.getBody().hasOneBlock() &&
        llvm::any_of(function.front(),
                     [](Operation &op) { return isTagged(&op, kBackwardTag); }))
      return function;
  return {};
}

static bool isTag(NameLoc location) {
  return location.getName() == kBackwardTag ||
         location.getName() == kRecomputeTag;
}

/// Calls `visit` on the source positions within a location: positions in a
/// file and names, without the tags of passes.
static void forEachPlace(Location location,
                         function_ref<void(Location)> visit) {
  location->walk([&](Location inner) {
    auto name = dyn_cast<NameLoc>(inner);
    if (isa<FileLineColLoc>(inner) || (name && !isTag(name)))
      visit(inner);
    // A NameLoc's child location belongs to the same layer.
    return name && !isTag(name) ? WalkResult::skip() : WalkResult::advance();
  });
}

void LayerMap::read(ModuleOp module) {
  func::FuncOp function = findDifferentiated(module);
  if (!function)
    return;
  OperationGroup forward = getForwardOps(function);
  for (const OperationGroup &layer :
       findLayers(forward, findActivations(function, forward))) {
    for (Operation *op : layer)
      forEachPlace(op->getLoc(), [&](Location place) {
        auto [entry, isNew] = layers.try_emplace(place, numLayers);
        if (!isNew && entry->second != numLayers)
          entry->second = std::nullopt;
      });
    ++numLayers;
  }
}

CommandOrigin LayerMap::find(Location location) const {
  CommandOrigin origin;
  location->walk([&](Location inner) {
    auto name = dyn_cast<NameLoc>(inner);
    origin.backward |= name && isTag(name);
    return WalkResult::advance();
  });
  forEachPlace(location, [&](Location place) {
    if (!origin.layer)
      origin.layer = layers.lookup(place);
  });
  return origin;
}
