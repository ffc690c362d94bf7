//===- Gradients.cpp - which gradients a compilation was asked for --------===//

#include "lib/Compiler/Gradients.h"
#include "dialects/NN/NNAttributes.h"
#include "dialects/NN/NNModuleOps.h"
#include "lib/Support/Suggest.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace nsa;

/// The name of an argument, which it is given if it has none.
static std::string nameArgument(func::FuncOp function, unsigned index) {
  StringRef name = nn::getArgumentName(function, index);
  return name.empty() ? ("arg" + Twine(index)).str() : name.str();
}

static bool isFloatTensor(Type type) {
  return isa<RankedTensorType>(type) &&
         isa<FloatType>(getElementTypeOrSelf(type));
}

/// Chooses the objective, if the function has none.
static LogicalResult markObjective(func::FuncOp function) {
  std::optional<unsigned> first;
  for (auto [index, type] : llvm::enumerate(function.getResultTypes())) {
    if (nn::isObjective(function, index))
      return success();
    if (!first && isFloatTensor(type))
      first = index;
  }
  if (!first)
    return function.emitError("function `")
           << function.getName()
           << "` has no result of floating-point values, of which there could "
              "be gradients";
  nn::setObjective(function, *first);
  if (nn::getResultName(function, *first).empty())
    function.setResultAttr(
        *first, nn::kNameAttr,
        StringAttr::get(function.getContext(), "result" + Twine(*first)));
  return success();
}

/// Marks those arguments of a function that are asked for and takes their names
/// out of `missing`; adds all names to `known`.
static LogicalResult markFunction(func::FuncOp function,
                                  ArrayRef<std::string> names,
                                  std::vector<std::string> &missing,
                                  std::vector<std::string> &known) {
  MLIRContext *context = function.getContext();
  bool isMarked = false;
  for (unsigned index : llvm::seq(function.getNumArguments())) {
    std::string name = nameArgument(function, index);
    known.push_back(name);
    if (!llvm::is_contained(names, name))
      continue;
    llvm::erase(missing, name);
    function.setArgAttr(index, nn::kNameAttr, StringAttr::get(context, name));
    function.setArgAttr(index, nn::kDifferentiateAttr, UnitAttr::get(context));
    isMarked = true;
  }
  return isMarked ? markObjective(function) : success();
}

LogicalResult nsa::markGradients(ModuleOp module, ArrayRef<std::string> names) {
  if (names.empty())
    return success();
  for (auto model : module.getOps<nn::ModelOp>())
    return model.emitError("gradients are those of functions; a model is "
                           "differentiated by its parameters");
  std::vector<std::string> missing(names), known;
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isExternal() &&
        failed(markFunction(function, names, missing, known)))
      return failure();
  if (missing.empty())
    return success();
  return module.emitError("no function has an argument '")
         << missing.front() << "' to differentiate with respect to"
         << suggestion(missing.front(), known) << "; the arguments are "
         << llvm::join(known, ", ");
}
