//===- InPlace.cpp - which kernels may overwrite their inputs -------------===//

#include "passes/Conversion/TensorToRT/InPlace.h"

using namespace mlir;
using namespace nsa;

/// The argument, or its only view in another shape.
static Value getAccessed(Value argument) {
  if (argument.hasOneUse())
    if (auto view = dyn_cast<tile::ViewOp>(*argument.user_begin()))
      return view.getResult();
  return argument;
}

/// The only store to `memory` if nothing else uses it.
static tile::StoreOp getOnlyStore(Value memory) {
  if (!memory.hasOneUse())
    return {};
  OpOperand &use = *memory.use_begin();
  auto store = dyn_cast<tile::StoreOp>(use.getOwner());
  return store && &store.getRefMutable() == &use ? store : tile::StoreOp();
}

static bool computeMayShare(tile::KernelOp kernel, unsigned input,
                            unsigned output) {
  Value source = getAccessed(kernel.getArgument(input));
  Value target =
      getAccessed(kernel.getArgument(kernel.getNumInputs() + output));
  if (source.getType() != target.getType())
    return false;
  tile::StoreOp store = getOnlyStore(target);
  if (!store)
    return false;
  return llvm::all_of(source.getUsers(), [&](Operation *user) {
    auto load = dyn_cast<tile::LoadOp>(user);
    return load && load->getBlock() == store->getBlock() &&
           load->isBeforeInBlock(store) &&
           load.getIndices() == store.getIndices();
  });
}

bool InPlaceAnalysis::mayShare(tile::KernelOp kernel, unsigned input,
                               unsigned output) {
  auto [it, inserted] =
      known.try_emplace({kernel.getOperation(), input, output}, false);
  if (inserted)
    it->second = computeMayShare(kernel, input, output);
  return it->second;
}
