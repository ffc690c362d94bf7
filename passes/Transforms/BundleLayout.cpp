//===- BundleLayout.cpp - which tensors are neighbours --------------------===//

#include "passes/Transforms/BundleLayout.h"
#include "dialects/NN/NNOps.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace nsa;

BundleLayout::BundleLayout(ModuleOp module) {
  auto claimAll = [&](ArrayAttr names) {
    claim(llvm::map_to_vector(names, [](Attribute name) {
      return cast<StringAttr>(name).getValue();
    }));
  };
  module.walk([&](Operation *op) {
    if (auto bundle = dyn_cast<nn::BundleOp>(op))
      claimAll(bundle.getTensors());
    else if (auto unbundle = dyn_cast<nn::UnbundleOp>(op))
      claimAll(unbundle.getTensors());
  });
}

bool BundleLayout::claim(ArrayRef<StringRef> tensors) {
  std::string names = "\n" + llvm::join(tensors, "\n") + "\n";
  bool isStretch = false;
  for (StringRef tensor : tensors) {
    auto known = bundles.find(tensor);
    if (known == bundles.end())
      continue;
    isStretch = StringRef(known->second).contains(names);
    if (!isStretch && !StringRef(names).contains(known->second))
      return false;
  }
  if (!isStretch)
    for (StringRef tensor : tensors)
      bundles[tensor] = names;
  return true;
}

SmallVector<unsigned> BundleLayout::arrange(ArrayRef<StringRef> tensors) const {
  llvm::StringMap<unsigned> numbers;
  for (auto [number, tensor] : llvm::enumerate(tensors))
    numbers[tensor] = number;
  llvm::SetVector<unsigned> order;
  for (auto [number, tensor] : llvm::enumerate(tensors)) {
    auto known = bundles.find(tensor);
    if (known != bundles.end())
      for (StringRef other : llvm::split(known->second, '\n'))
        if (auto found = numbers.find(other); found != numbers.end())
          order.insert(found->second);
    order.insert(number);
  }
  return order.takeVector();
}
