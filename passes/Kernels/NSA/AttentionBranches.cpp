//===- AttentionBranches.cpp - branches that share rows -------------------===//

#include "passes/Kernels/NSA/AttentionBranches.h"

using namespace mlir;
using namespace nsa;

SmallVector<int64_t> AttentionBranches::getDense() const {
  SmallVector<int64_t> numbers;
  for (auto [branch, range] : llvm::enumerate(ranges))
    if (range && int64_t(branch) != number)
      numbers.push_back(branch);
  return numbers;
}

std::string AttentionBranches::name() const {
  std::string own = selected ? selected->name() : ranges.front()->name();
  if (!isGated)
    return own;
  std::string name = activation ? stringifyGateActivation(*activation).str()
                                : std::string("given");
  name += "_" + own;
  for (int64_t branch : getDense())
    name += "_" + ranges[branch]->visibility->getShapeName();
  return name;
}

int64_t AttentionBranches::denseFlops(int64_t width) const {
  int64_t flops = 0;
  for (int64_t branch : getDense())
    flops += ranges[branch]->flops(width);
  return flops;
}

int64_t AttentionBranches::flops(int64_t branch, int64_t width) const {
  return branch == number ? selected->flops(width)
                          : ranges[branch]->flops(width);
}
