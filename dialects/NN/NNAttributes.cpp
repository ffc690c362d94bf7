//===- NNAttributes.cpp - names and roles of a program's tensors ----------===//

#include "dialects/NN/NNAttributes.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

static StringRef getString(Attribute attribute) {
  auto string = dyn_cast_or_null<StringAttr>(attribute);
  return string ? string.getValue() : StringRef();
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

StringRef nn::getArgumentName(FunctionOpInterface function, unsigned index) {
  return getString(function.getArgAttr(index, kNameAttr));
}

std::optional<ArgumentRole> nn::getArgumentRole(FunctionOpInterface function,
                                                unsigned index) {
  return symbolizeArgumentRole(
      getString(function.getArgAttr(index, kRoleAttr)));
}

InitAttr nn::getArgumentInit(FunctionOpInterface function, unsigned index) {
  return dyn_cast_or_null<InitAttr>(function.getArgAttr(index, kInitAttr));
}

bool nn::hasDecay(FunctionOpInterface function, unsigned index) {
  return static_cast<bool>(function.getArgAttr(index, kDecayAttr));
}

StringRef nn::getArgumentOptimizer(FunctionOpInterface function,
                                   unsigned index) {
  return getString(function.getArgAttr(index, kOptimizerAttr));
}

StringRef nn::getArgumentState(FunctionOpInterface function, unsigned index) {
  return getString(function.getArgAttr(index, kStateAttr));
}

SmallVector<StringRef> nn::getArgumentDims(FunctionOpInterface function,
                                           unsigned index) {
  auto dims =
      dyn_cast_or_null<ArrayAttr>(function.getArgAttr(index, kDimsAttr));
  if (!dims)
    return {};
  return llvm::map_to_vector(dims, getString);
}

bool nn::isSeed(FunctionOpInterface function, unsigned index) {
  return static_cast<bool>(function.getArgAttr(index, kSeedAttr));
}

std::optional<unsigned> nn::findArgument(FunctionOpInterface function,
                                         StringRef name) {
  for (unsigned i = 0, e = function.getNumArguments(); i < e; ++i)
    if (getArgumentName(function, i) == name)
      return i;
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Results and functions
//===----------------------------------------------------------------------===//

StringRef nn::getResultName(FunctionOpInterface function, unsigned index) {
  return getString(function.getResultAttr(index, kNameAttr));
}

StringRef nn::getResultAlias(FunctionOpInterface function, unsigned index) {
  return getString(function.getResultAttr(index, kAliasAttr));
}

bool nn::isObjective(FunctionOpInterface function, unsigned index) {
  return static_cast<bool>(function.getResultAttr(index, kObjectiveAttr));
}

void nn::setObjective(FunctionOpInterface function, unsigned index) {
  function.setResultAttr(index, kObjectiveAttr,
                         UnitAttr::get(function.getContext()));
}

bool nn::isStatistic(FunctionOpInterface function, unsigned index) {
  return static_cast<bool>(function.getResultAttr(index, kStatisticAttr));
}

std::optional<unsigned> nn::findResult(FunctionOpInterface function,
                                       StringRef name) {
  for (unsigned i = 0, e = function.getNumResults(); i < e; ++i)
    if (getResultName(function, i) == name)
      return i;
  return std::nullopt;
}

bool nn::isTrainable(FunctionOpInterface function) {
  return function->hasAttr(kTrainAttr);
}
