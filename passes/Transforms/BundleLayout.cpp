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
  llvm::SmallSetVector<unsigned, 4> known;
  for (StringRef tensor : tensors)
    if (auto bundle = longest.find(tensor); bundle != longest.end())
      known.insert(bundle->second);
  bool isStretch = false;
  for (unsigned bundle : known) {
    isStretch = StringRef(bundles[bundle]).contains(names);
    if (!isStretch && !StringRef(names).contains(bundles[bundle]))
      return false;
  }
  if (isStretch)
    return true;
  for (StringRef tensor : tensors)
    longest[tensor] = bundles.size();
  bundles.push_back(std::move(names));
  return true;
}

SmallVector<unsigned> BundleLayout::arrange(ArrayRef<StringRef> tensors) const {
  llvm::StringMap<unsigned> numbers;
  for (auto [number, tensor] : llvm::enumerate(tensors))
    numbers[tensor] = number;
  llvm::SmallDenseSet<unsigned> seen;
  llvm::SetVector<unsigned> order;
  for (auto [number, tensor] : llvm::enumerate(tensors)) {
    auto known = longest.find(tensor);
    if (known != longest.end() && seen.insert(known->second).second)
      for (StringRef other : llvm::split(bundles[known->second], '\n'))
        if (auto found = numbers.find(other); found != numbers.end())
          order.insert(found->second);
    order.insert(number);
  }
  return order.takeVector();
}
