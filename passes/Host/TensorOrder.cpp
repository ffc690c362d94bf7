//===- TensorOrder.cpp - the order of named tensors in memory -------------===//

#include "passes/Host/TensorOrder.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace nsa;

/// The position of a tensor's kind in its segment.
static unsigned getSegmentOrder(rt::TensorOp tensor) {
  switch (tensor.getRole()) {
  case rt::TensorRole::Parameter:
    return tensor.getDecay() ? 0 : 1;
  case rt::TensorRole::Gradient:
    return 3;
  case rt::TensorRole::Constant:
    return 4;
  case rt::TensorRole::State:
    return tensor.getState() ? 2 : 5;
  case rt::TensorRole::Input:
    return 0;
  case rt::TensorRole::Output:
    return 1;
  }
  llvm_unreachable("unknown role");
}

/// By kind; what the optimizer keeps by the names of its states.
static std::pair<unsigned, StringRef> getKey(rt::TensorOp tensor) {
  return {getSegmentOrder(tensor), tensor.getState().value_or("")};
}

/// The tensors with those of a flat view one after the other.
static SmallVector<rt::TensorOp>
keepViewsTogether(ArrayRef<rt::TensorOp> list, ArrayRef<rt::FlatViewOp> views) {
  SmallVector<rt::FlatViewOp> longestFirst(views);
  llvm::stable_sort(longestFirst, [](rt::FlatViewOp a, rt::FlatViewOp b) {
    return a.getTensors().size() > b.getTensors().size();
  });
  llvm::StringMap<rt::TensorOp> byName;
  for (rt::TensorOp tensor : list)
    byName[tensor.getSymName()] = tensor;
  DenseMap<Attribute, ArrayAttr> spanOf;
  for (rt::FlatViewOp view : longestFirst)
    if (llvm::none_of(view.getTensors(),
                      [&](Attribute name) { return spanOf.contains(name); }))
      for (Attribute name : view.getTensors())
        spanOf[name] = view.getTensors();

  llvm::SetVector<Operation *> ordered;
  for (rt::TensorOp tensor : list) {
    if (ArrayAttr names = spanOf.lookup(FlatSymbolRefAttr::get(tensor)))
      for (auto name : names.getAsRange<FlatSymbolRefAttr>())
        if (rt::TensorOp other = byName.lookup(name.getValue()))
          ordered.insert(other);
    ordered.insert(tensor);
  }
  return llvm::map_to_vector(
      ordered, [](Operation *op) { return cast<rt::TensorOp>(op); });
}

SmallVector<rt::TensorOp> nsa::getMemoryOrder(ArrayRef<rt::TensorOp> tensors,
                                              ArrayRef<rt::FlatViewOp> views) {
  SmallVector<rt::TensorOp> sorted(tensors);
  llvm::stable_sort(sorted, [](rt::TensorOp a, rt::TensorOp b) {
    return getKey(a) < getKey(b);
  });
  return keepViewsTogether(sorted, views);
}

SmallVector<rt::FlatViewOp> nsa::getFlatViews(ModuleOp module) {
  SmallVector<rt::FlatViewOp> views;
  for (auto entry : module.getOps<rt::EntryOp>())
    llvm::append_range(views, entry.getBody().getOps<rt::FlatViewOp>());
  return views;
}
