//===- FlatGroupLayout.cpp - which tensors are neighbours -----------------===//

#include "passes/Graph/FlatGroupLayout.h"
#include "dialects/NN/NNOps.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace nsa;

FlatGroupLayout::FlatGroupLayout(ModuleOp module) {
  auto claimAll = [&](ArrayAttr names) {
    claim(llvm::map_to_vector(names, [](Attribute name) {
      return cast<StringAttr>(name).getValue();
    }));
  };
  module.walk([&](Operation *op) {
    if (auto group = dyn_cast<nn::FlattenOp>(op))
      claimAll(group.getTensors());
    else if (auto unflatten = dyn_cast<nn::UnflattenOp>(op))
      claimAll(unflatten.getTensors());
  });
}

bool FlatGroupLayout::claim(ArrayRef<StringRef> tensors) {
  std::string names = "\n" + llvm::join(tensors, "\n") + "\n";
  llvm::SmallSetVector<unsigned, 4> known;
  for (StringRef tensor : tensors)
    if (auto group = longest.find(tensor); group != longest.end())
      known.insert(group->second);
  bool isRange = false;
  for (unsigned group : known) {
    isRange = StringRef(groups[group]).contains(names);
    if (!isRange && !StringRef(names).contains(groups[group]))
      return false;
  }
  if (isRange)
    return true;
  for (StringRef tensor : tensors)
    longest[tensor] = groups.size();
  groups.push_back(std::move(names));
  return true;
}

SmallVector<unsigned>
FlatGroupLayout::arrange(ArrayRef<StringRef> tensors) const {
  llvm::StringMap<unsigned> numbers;
  for (auto [number, tensor] : llvm::enumerate(tensors))
    numbers[tensor] = number;
  llvm::SmallDenseSet<unsigned> seen;
  llvm::SetVector<unsigned> order;
  for (auto [number, tensor] : llvm::enumerate(tensors)) {
    auto known = longest.find(tensor);
    if (known != longest.end() && seen.insert(known->second).second)
      for (StringRef other : llvm::split(groups[known->second], '\n'))
        if (auto found = numbers.find(other); found != numbers.end())
          order.insert(found->second);
    order.insert(number);
  }
  return order.takeVector();
}
