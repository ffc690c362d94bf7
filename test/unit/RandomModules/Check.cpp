//===- Check.cpp - everything a compiled module must do -------------------===//

#include "test/unit/RandomModules/Check.h"
#include "dialects/NN/NNAttributes.h"
#include "dialects/NN/NNDialect.h"
#include "dialects/NSA/NSADialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "test/unit/CompiledModule.h"
#include "test/unit/RandomModules/Gradients.h"
#include "test/unit/RandomModules/Inputs.h"
#include "test/unit/RandomModules/Oracle.h"

#include <algorithm>
#include <cmath>
#include <sstream>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;
using mlir::func::FuncOp;

/// Inputs that are tried until every selection is decided.
static constexpr unsigned kMaxTries = 8;
/// A tolerance larger than this part of the largest element says nothing.
static constexpr double kLooseTolerance = 0.2;

void Coverage::operator+=(const Coverage &other) {
  modules += other.modules;
  ops += other.ops;
  entries += other.entries;
  commands += other.commands;
  kernels += other.kernels;
  results += other.results;
  gradients += other.gradients;
  undecided += other.undecided;
  loose += other.loose;
}

std::string Coverage::describe() const {
  std::ostringstream out;
  out << modules << " modules, " << ops << " operations, " << entries
      << " entries, " << kernels << " kernels, " << commands << " commands, "
      << results << " results compared, " << gradients
      << " functions differentiated, " << undecided << " results undecided, "
      << loose << " loose";
  return out.str();
}

namespace {

/// A compiled module and what its last run left.
struct Loaded {
  std::string description;
  CompiledModule program;
  /// Whether its results are bitwise those of the first program.
  bool isSame = false;
};

class Trial {
public:
  Trial(const GraphModule &module, Programs which, Coverage &coverage)
      : module(module), which(which), coverage(coverage), text(print(module)),
        seeds(module.seed) {}

  std::optional<Failure> check();

private:
  bool fail(const std::string &kind, const std::string &message);
  bool compile();
  bool compileOne(const CompilerOptions &options,
                  const std::string &description,
                  std::optional<CompiledArtifact> &compiled);
  bool load(const CompiledArtifact &compiled, const std::string &description,
            int threads, bool isSame);
  mlir::OwningOpRef<mlir::ModuleOp> lowerTo(const std::string &phase);

  // One entry.
  bool checkEntry(FuncOp function);
  bool runEntry(Loaded &loaded, FuncOp function,
                const std::vector<Tensor> &arguments,
                std::vector<Tensor> &results);
  bool compare(const Loaded &loaded, FuncOp function, Oracle &oracle,
               const std::vector<Tensor> &results);
  bool checkChoices(const Loaded &loaded, FuncOp function, Oracle &oracle,
                    const std::vector<Tensor> &results,
                    std::map<size_t, Tensor> &choices);

  const GraphModule &module;
  Programs which;
  Coverage &coverage;
  std::string text;
  std::mt19937_64 seeds;
  std::vector<Loaded> programs;
  std::optional<Failure> failure;
};

} // namespace

bool Trial::fail(const std::string &kind, const std::string &message) {
  if (!failure)
    failure = Failure{kind, message};
  return false;
}

//===----------------------------------------------------------------------===//
// Compilation
//===----------------------------------------------------------------------===//

static mlir::MLIRContext &getContext() {
  static mlir::MLIRContext *context = [] {
    auto *made = new mlir::MLIRContext(mlir::MLIRContext::Threading::DISABLED);
    made->loadDialect<mlir::func::FuncDialect, NSADialect, nn::NNDialect>();
    return made;
  }();
  return *context;
}

/// The first error without places and numbers, so that another one is another
/// kind of failure.
static std::string errorKind(const std::string &message) {
  size_t start = message.find("error: ");
  start = start == std::string::npos ? 0 : start;
  std::string kind = message.substr(start, message.find('\n', start) - start);
  kind.erase(std::remove_if(kind.begin(), kind.end(),
                            [](char c) { return std::isdigit(c) != 0; }),
             kind.end());
  return kind;
}

bool Trial::compileOne(const CompilerOptions &options,
                       const std::string &description,
                       std::optional<CompiledArtifact> &compiled) {
  // Whatever a random graph computes slowly is to be right all the same.
  CompilerOptions allowing = options;
  allowing.allowSlowPaths = {"all"};
  Result<CompiledArtifact> result = nsa::compile(text, "random.mlir", allowing);
  if (!result)
    return fail("compile: " + errorKind(result.message()),
                description + ": " + result.message());
  compiled = std::move(*result);
  return true;
}

bool Trial::load(const CompiledArtifact &compiled,
                 const std::string &description, int threads, bool isSame) {
  RuntimeOptions options = CompiledModule::poisoned();
  options.threads = threads;
  Result<CompiledModule> loaded = CompiledModule::load(compiled, options);
  if (!loaded)
    return fail("load", description + ": " + loaded.message());
  programs.push_back({description, std::move(*loaded), isSame});
  return true;
}

bool Trial::compile() {
  CompilerOptions options = module.options;
  std::optional<CompiledArtifact> first, other;
  if (!compileOne(options, "as is", first) ||
      !load(*first, "as is", 2, /*isSame=*/false) ||
      !load(*first, "other threads", module.seed % 2 ? 1 : 3, /*isSame=*/true))
    return false;
  coverage.commands += first->report.commands;
  coverage.kernels += first->report.kernels;

  uint64_t turn = module.seed % 3;
  if (turn == 1 && !module.hasGradients())
    turn = 2;
  auto isTurn = [&](uint64_t number) {
    return which == Programs::All || turn == number;
  };
  if (isTurn(0)) {
    if (!compileOne(options, "again", other))
      return false;
    if (other->bytes != first->bytes)
      return fail("bytes", "compiling twice gives different artefacts");
  }
  if (isTurn(1) && module.hasGradients()) {
    options.recompute = options.recompute == "block" ? "none" : "block";
    options.recomputeBudget = 0;
    std::string description = "recompute=" + options.recompute;
    if (!compileOne(options, description, other) ||
        !load(*other, description, 2, /*isSame=*/true))
      return false;
    options = module.options;
  }
  if (!isTurn(2))
    return true;
  options.fuse = false;
  return compileOne(options, "without fusion", other) &&
         load(*other, "without fusion", 2, /*isSame=*/false);
}

/// The module after a phase, without fusion and recomputation.
mlir::OwningOpRef<mlir::ModuleOp> Trial::lowerTo(const std::string &phase) {
  CompilerOptions options = module.options;
  options.fuse = false;
  options.recompute = "none";
  options.recomputeBudget = 0;
  Result<std::string> lowered =
      nsa::compileTo(phase, text, "random.mlir", options);
  if (!lowered) {
    fail("compile: " + errorKind(lowered.message()),
         "until " + phase + ": " + lowered.message());
    return {};
  }
  auto parsed =
      mlir::parseSourceString<mlir::ModuleOp>(*lowered, &getContext());
  if (!parsed)
    fail("parse", "the module after phase " + phase + " does not parse");
  return parsed;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// The tensor of a program that an entry knows by this name.
static std::string findTensor(Program &program, FuncOp function,
                              const std::string &name, bool isOutput) {
  const EntryInfo *entry = program.findEntry(function.getName().str());
  std::string full = function.getName().str() + "." + name;
  if (!entry)
    return {};
  for (unsigned index : isOutput ? entry->outputs : entry->inputs)
    for (const std::string &candidate : {name, full})
      if (program.tensors()[index].name == candidate)
        return candidate;
  return {};
}

static std::string argumentTensor(Program &program, FuncOp function,
                                  unsigned index) {
  std::optional<nn::ArgumentRole> role = nn::getArgumentRole(function, index);
  std::string name = argumentName(function, index);
  if (role && *role != nn::ArgumentRole::Input)
    return name;
  return findTensor(program, function, name, /*isOutput=*/false);
}

static std::string resultTensor(Program &program, FuncOp function,
                                unsigned index) {
  llvm::StringRef alias = nn::getResultAlias(function, index);
  if (!alias.empty())
    return argumentTensor(program, function,
                          *nn::findArgument(function, alias));
  return findTensor(program, function, resultName(function, index),
                    /*isOutput=*/true);
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

bool Trial::runEntry(Loaded &loaded, FuncOp function,
                     const std::vector<Tensor> &arguments,
                     std::vector<Tensor> &results) {
  Program &program = loaded.program.getProgram();
  std::string where =
      "@" + function.getName().str() + " (" + loaded.description + ")";
  for (unsigned i = 0; i < arguments.size(); ++i) {
    std::string tensor = argumentTensor(program, function, i);
    if (tensor.empty())
      return fail("names", where + " has no tensor for argument " +
                               argumentName(function, i));
    loaded.program.set(tensor, arguments[i]);
  }
  Status status = program.run(function.getName().str());
  if (!status)
    return fail("run", where + ": " + status.message());
  std::vector<bool> updated(arguments.size());
  results.clear();
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    std::string tensor = resultTensor(program, function, i);
    if (tensor.empty())
      return fail("names", where + " has no tensor for result " +
                               resultName(function, i));
    llvm::StringRef alias = nn::getResultAlias(function, i);
    if (!alias.empty())
      updated[*nn::findArgument(function, alias)] = true;
    results.push_back(loaded.program.get(tensor));
  }
  for (unsigned i = 0; i < arguments.size(); ++i)
    if (!updated[i] && !isSame(arguments[i], loaded.program.get(argumentTensor(
                                                 program, function, i))))
      return fail("overwritten",
                  where + " changes argument " + argumentName(function, i));
  return true;
}

//===----------------------------------------------------------------------===//
// Comparing
//===----------------------------------------------------------------------===//

/// Selections that are results: checks the program's choices, and notes those
/// that are not the reference's.
bool Trial::checkChoices(const Loaded &loaded, FuncOp function, Oracle &oracle,
                         const std::vector<Tensor> &results,
                         std::map<size_t, Tensor> &choices) {
  auto operands = function.getBody().front().getTerminator()->getOperands();
  for (auto [index, selection] : llvm::enumerate(oracle.getSelections()))
    for (auto [result, value] : llvm::zip_equal(results, operands)) {
      if (value.getDefiningOp() != selection.op ||
          isSame(result, selection.indices))
        continue;
      oracle.addErrors(3, module.seed);
      std::string problem = oracle.findBadChoice(selection, result);
      if (!problem.empty())
        return fail("selection", "@" + function.getName().str() + " (" +
                                     loaded.description + "): " + problem);
      choices[index] = result;
    }
  return true;
}

/// The element that is most wrong.
static std::string describeWorst(const Tensor &found, const Tensor &expected) {
  size_t worst = 0, wrong = 0;
  for (size_t i = 0; i < found.data.size(); ++i) {
    double gap = std::fabs(found.data[i] - expected.data[i]);
    wrong += !(gap <= 1e-3 * std::fabs(expected.data[i]));
    if (!(gap <= std::fabs(found.data[worst] - expected.data[worst])))
      worst = i;
  }
  std::ostringstream out;
  out << "; element " << worst << " is " << found.data[worst] << " instead of "
      << expected.data[worst] << ", and " << wrong << " of "
      << found.data.size() << " differ";
  return out.str();
}

bool Trial::compare(const Loaded &loaded, FuncOp function, Oracle &oracle,
                    const std::vector<Tensor> &results) {
  std::vector<mlir::Operation *> open;
  auto operands = function.getBody().front().getTerminator()->getOperands();
  for (const Selection &selection : oracle.getSelections()) {
    oracle.addErrors(3, module.seed);
    bool isShown = llvm::is_contained(operands, selection.op->getResult(0));
    if (!isShown && !oracle.isDecided(selection))
      open.push_back(selection.op);
  }
  std::vector<bool> dependent = oracle.findDependent(open);
  for (auto [index, result] : llvm::enumerate(results)) {
    if (dependent[index]) {
      ++coverage.undecided;
      continue;
    }
    const Tensor &expected = oracle.getResults()[index];
    double error = distance(result, expected);
    double tolerance = oracle.getTolerance(index, error, module.seed);
    double top = magnitude(expected);
    ++coverage.results;
    if (tolerance > kLooseTolerance * top && top > 0.0)
      ++coverage.loose;
    if (error <= tolerance)
      continue;
    std::ostringstream message;
    message << "@" << function.getName().str() << " (" << loaded.description
            << "), result " << index << " (" << resultName(function, index)
            << " " << nn::getResultAlias(function, index).str()
            << ") is off by " << error << ", more than " << tolerance
            << "; the largest element is " << top
            << describeWorst(result, expected);
    return fail("reference", message.str());
  }
  return true;
}

bool Trial::checkEntry(FuncOp function) {
  ++coverage.entries;
  Oracle oracle(function);
  std::vector<Tensor> arguments;
  uint64_t seed = seeds();
  for (unsigned tries = 0; tries < kMaxTries; ++tries) {
    arguments = makeArguments(module, function, seed + tries);
    if (failed(oracle.evaluate(arguments)))
      return fail("evaluate",
                  "the reference cannot evaluate @" + function.getName().str());
    if (oracle.getSelections().empty() || oracle.isNarrow())
      break;
    oracle.addErrors(3, module.seed);
    if (llvm::all_of(oracle.getSelections(), [&](const Selection &selection) {
          return oracle.isDecided(selection);
        }))
      break;
  }
  std::vector<Tensor> first, results;
  for (auto [number, loaded] : llvm::enumerate(programs)) {
    if (!runEntry(loaded, function, arguments, results))
      return false;
    if (loaded.isSame) {
      for (auto [index, result] : llvm::enumerate(results))
        if (!isSame(result, first[index]))
          return fail(loaded.description,
                      "@" + function.getName().str() + ", result " +
                          std::to_string(index) + " (" + loaded.description +
                          ") is not bitwise that of the first program");
      continue;
    }
    std::map<size_t, Tensor> choices;
    if (!checkChoices(loaded, function, oracle, results, choices))
      return false;
    if (choices.empty()) {
      if (!compare(loaded, function, oracle, results))
        return false;
    } else {
      Oracle other(function);
      if (failed(other.evaluate(arguments, choices)) ||
          !compare(loaded, function, other, results))
        return fail("evaluate", "the choices cannot be evaluated");
    }
    if (number > 0)
      continue;
    first = results;
    if (!runEntry(loaded, function, arguments, results))
      return false;
    for (auto [index, result] : llvm::enumerate(results))
      if (!isSame(result, first[index]))
        return fail("repeat", "@" + function.getName().str() + ", result " +
                                  std::to_string(index) +
                                  " is another in the second run");
  }
  return true;
}

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

std::optional<Failure> Trial::check() {
  ++coverage.modules;
  coverage.ops += module.countOps();
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(&getContext(),
                                        [&](mlir::Diagnostic &diagnostic) {
                                          messages += diagnostic.str() + "\n";
                                        });
  auto source = mlir::parseSourceString<mlir::ModuleOp>(text, &getContext());
  if (!source) {
    fail("parse", messages);
    return failure;
  }
  if (!compile())
    return failure;
  auto typed = lowerTo("precision");
  auto lowered = lowerTo("optimizer");
  if (!typed || !lowered)
    return failure;
  for (FuncOp function : lowered->getOps<FuncOp>())
    if (!checkEntry(function))
      return failure;
  for (FuncOp model : typed->getOps<FuncOp>()) {
    llvm::StringRef name =
        nn::isTrainable(model) ? "accumulate" : model.getName();
    if (!findObjective(model))
      continue;
    ++coverage.gradients;
    std::string problem = findWrongGradient(
        model, lowered->lookupSymbol<FuncOp>(name), module, seeds());
    if (!problem.empty() && !fail("gradient", problem))
      return failure;
  }
  return failure;
}

std::optional<Failure> nsa::test::checkModule(const GraphModule &module,
                                              Programs programs,
                                              Coverage &coverage) {
  return Trial(module, programs, coverage).check();
}
