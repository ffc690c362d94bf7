//===- Cases.cpp - cases of a random module -------------------------------===//

#include "test/unit/RandomModules/Cases.h"
#include "dialects/NN/NNAttributes.h"
#include "dialects/NN/NNDialect.h"
#include "dialects/NSA/NSADialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "test/unit/RandomModules/Inputs.h"
#include "test/unit/RandomModules/Oracle.h"

#include <limits>

using namespace nsa;
using namespace nsa::test;
using mlir::func::FuncOp;

/// Leaves the oracle with inputs for which rounding changes no selection, if
/// some are found.
static bool evaluate(Oracle &oracle, FuncOp function, const GraphModule &module,
                     uint64_t seed, std::vector<reference::Tensor> &arguments) {
  constexpr unsigned kTries = 8;
  for (unsigned tries = 0; tries < kTries; ++tries) {
    arguments = makeArguments(module, function, seed + tries);
    if (failed(oracle.evaluate(arguments)))
      return false;
    if (oracle.getSelections().empty())
      return true;
    oracle.addErrors(3, module.seed);
    if (llvm::all_of(oracle.getSelections(), [&](const Selection &selection) {
          return oracle.isDecided(selection);
        }))
      return true;
  }
  return true;
}

static Result<Case> makeCase(FuncOp function, const GraphModule &module,
                             uint64_t seed) {
  Case result{function.getName().str(), {}, {}};
  Oracle oracle(function);
  std::vector<reference::Tensor> arguments;
  if (!evaluate(oracle, function, module, seed, arguments))
    return Error{"the reference cannot evaluate @" + result.entry};
  for (unsigned i = 0; i < arguments.size(); ++i) {
    std::optional<nn::ArgumentRole> role = nn::getArgumentRole(function, i);
    result.arguments.push_back({argumentName(function, i),
                                role && *role != nn::ArgumentRole::Input,
                                std::move(arguments[i])});
  }
  std::vector<double> tolerances;
  tolerances.reserve(function.getNumResults());
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    tolerances.push_back(oracle.getTolerance(
        i, std::numeric_limits<double>::infinity(), module.seed));
  // All evaluations with errors have had their say about the scores.
  std::vector<mlir::Operation *> open;
  for (const Selection &selection : oracle.getSelections())
    if (!oracle.isDecided(selection))
      open.push_back(selection.op);
  std::vector<bool> dependent = oracle.findDependent(open);
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    llvm::StringRef alias = nn::getResultAlias(function, i);
    int64_t argument =
        alias.empty() ? -1 : int64_t(*nn::findArgument(function, alias));
    result.results.push_back({resultName(function, i), argument,
                              dependent[i] ? -1.0 : tolerances[i],
                              oracle.getResults()[i]});
  }
  return result;
}

Result<std::vector<Case>> nsa::test::makeCases(const GraphModule &module,
                                               uint64_t seed) {
  CompilerOptions options = module.options;
  options.fuse = false;
  options.recompute = "none";
  options.recomputeBudget = 0;
  Result<std::string> lowered =
      nsa::compileTo("optimizer", print(module), "random.mlir", options);
  if (!lowered)
    return lowered.takeError();
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<mlir::func::FuncDialect, NSADialect, nn::NNDialect>();
  auto parsed = mlir::parseSourceString<mlir::ModuleOp>(*lowered, &context);
  if (!parsed)
    return Error{"the module after phase optimizer does not parse"};
  std::vector<Case> cases;
  std::mt19937_64 seeds(seed);
  for (FuncOp function : parsed->getOps<FuncOp>()) {
    Result<Case> made = makeCase(function, module, seeds());
    if (!made)
      return made.takeError();
    cases.push_back(std::move(*made));
  }
  return cases;
}
