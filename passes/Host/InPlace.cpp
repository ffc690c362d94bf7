//===- InPlace.cpp - which kernels may overwrite their inputs -------------===//

#include "passes/Host/InPlace.h"
#include "dialects/Interfaces/AttributeNames.h"

using namespace mlir;
using namespace nsa;

SmallVector<std::pair<unsigned, unsigned>>
nsa::getInPlacePairs(tile::KernelOp kernel) {
  SmallVector<std::pair<unsigned, unsigned>> pairs;
  auto numbers = kernel->getAttrOfType<DenseI64ArrayAttr>(kInPlaceAttr);
  for (int64_t i = 0; numbers && i + 1 < numbers.size(); i += 2)
    pairs.emplace_back(unsigned(numbers[i]), unsigned(numbers[i + 1]));
  return pairs;
}

/// The argument, or its only view in another shape.
static Value getAccessed(Value argument) {
  if (argument.hasOneUse())
    if (auto view = dyn_cast<tile::ViewOp>(*argument.user_begin()))
      return view.getResult();
  return argument;
}

/// The stores to `memory` if they are in one block and nothing else uses it but
/// loads of what the program has stored.
static SmallVector<tile::StoreOp> getStores(Value memory) {
  SmallVector<tile::StoreOp> stores;
  for (Operation *user : memory.getUsers()) {
    if (isa<tile::LoadOp>(user))
      continue;
    auto store = dyn_cast<tile::StoreOp>(user);
    if (!store ||
        (!stores.empty() && store->getBlock() != stores.front()->getBlock()))
      return {};
    stores.push_back(store);
  }
  return stores;
}

static bool computeMayShare(tile::KernelOp kernel, unsigned input,
                            unsigned output) {
  Value source = getAccessed(kernel.getArgument(input));
  Value target =
      getAccessed(kernel.getArgument(kernel.getNumInputs() + output));
  if (source.getType() != target.getType())
    return false;
  SmallVector<tile::StoreOp> stores = getStores(target);
  if (stores.empty())
    return false;
  return llvm::all_of(source.getUsers(), [&](Operation *user) {
    auto load = dyn_cast<tile::LoadOp>(user);
    if (!load || load->getBlock() != stores.front()->getBlock())
      return false;
    return llvm::all_of(stores,
                        [&](tile::StoreOp store) {
                          return load->isBeforeInBlock(store);
                        }) &&
           llvm::any_of(stores, [&](tile::StoreOp store) {
             return load.getIndices() == store.getIndices();
           });
  });
}

bool InPlaceAnalysis::mayShare(tile::KernelOp kernel, unsigned input,
                               unsigned output) {
  auto [it, inserted] =
      known.try_emplace({kernel.getOperation(), input, output}, false);
  if (inserted)
    it->second =
        llvm::is_contained(getInPlacePairs(kernel), std::pair(input, output)) ||
        computeMayShare(kernel, input, output);
  return it->second;
}
