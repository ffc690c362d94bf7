//===- Check.cpp - everything a compiled module must do -------------------===//

#include "test/unit/RandomModules/Check.h"
#include "dialects/NN/NNAttributes.h"
#include "dialects/NN/NNDialect.h"
#include "dialects/NSA/NSADialect.h"
#include "lib/Reference/Kernels/NN.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "test/unit/CompiledModule.h"
#include "test/unit/RandomModules/Oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

/// The arguments of a function by name.
using Arguments = std::map<std::string, Tensor>;

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

  // Inputs.
  Fill findFill(FuncOp function, const std::string &name) const;
  Tensor makeTensor(const Fill &fill, const std::vector<int64_t> &shape,
                    mlir::Type element);
  Tensor makeIndices(const std::vector<int64_t> &shape, int64_t block);
  std::vector<Tensor> makeArguments(FuncOp function);

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
  bool checkGradients(FuncOp model, FuncOp function);

  const GraphModule &module;
  Programs which;
  Coverage &coverage;
  std::string text;
  std::mt19937_64 seeds, random;
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
  Result<CompiledArtifact> result = nsa::compile(text, "random.mlir", options);
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

static std::string argumentName(FuncOp function, unsigned index) {
  llvm::StringRef name = nn::getArgumentName(function, index);
  return name.empty() ? "arg" + std::to_string(index) : name.str();
}

static std::string resultName(FuncOp function, unsigned index) {
  llvm::StringRef name = nn::getResultName(function, index);
  return name.empty() ? "result" + std::to_string(index) : name.str();
}

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
// Inputs
//===----------------------------------------------------------------------===//

Fill Trial::findFill(FuncOp function, const std::string &name) const {
  for (const GraphFunction &graph : module.functions) {
    if (graph.name != function.getName())
      continue;
    if (const GraphArgument *argument = graph.findArgument(name))
      return argument->fill;
  }
  // An entry that was made from the model.
  for (const GraphFunction &graph : module.functions)
    if (const GraphArgument *argument = graph.findArgument(name))
      return argument->fill;
  if (name == "hyper")
    return {Fill::Hyper, 1.0, 0};
  if (name.rfind("v.", 0) == 0)
    return {Fill::Positive, 1.0, 0};
  return {Fill::Normal, name.rfind("m.", 0) == 0 ? 0.1 : 1.0, 0};
}

/// Lists of blocks, the query's own among them.
Tensor Trial::makeIndices(const std::vector<int64_t> &shape, int64_t block) {
  Tensor indices(shape, -1.0);
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t t = 0; t < shape[2]; ++t) {
        std::vector<int64_t> candidates(t / block);
        for (size_t j = 0; j < candidates.size(); ++j)
          candidates[j] = static_cast<int64_t>(j);
        std::shuffle(candidates.begin(), candidates.end(), random);
        candidates.resize(std::min<size_t>(candidates.size(), shape[3] - 1));
        candidates.push_back(t / block);
        std::sort(candidates.begin(), candidates.end());
        std::copy(candidates.begin(), candidates.end(), indices.row({b, h, t}));
      }
  return indices;
}

Tensor Trial::makeTensor(const Fill &fill, const std::vector<int64_t> &shape,
                         mlir::Type element) {
  Tensor tensor(shape);
  auto below = [&](int64_t limit) {
    return static_cast<double>(random() % static_cast<uint64_t>(limit));
  };
  std::normal_distribution<double> normal(0.0, 1.0);
  switch (fill.kind) {
  case Fill::Normal:
    for (double &x : tensor.data)
      x = fill.scale * normal(random);
    break;
  case Fill::Positive:
    for (double &x : tensor.data)
      x = 0.1 + fill.scale * std::fabs(normal(random));
    break;
  case Fill::Ids:
    for (double &x : tensor.data)
      x = below(fill.limit) +
          (fill.scale > 0 && below(5) == 0 ? (below(2) ? 1e6 : -1e6) : 0.0);
    break;
  case Fill::Targets: {
    // Sometimes all of them are ignored.
    double ignored = below(20) == 0 ? 1.0 : 0.2;
    for (double &x : tensor.data)
      x = below(100) < 100 * ignored ? -1.0 : below(fill.limit);
    break;
  }
  case Fill::Indices:
    return makeIndices(shape, fill.limit);
  case Fill::Rotary:
    tensor = rotaryTable(shape[0], 2 * shape[1], 100.0);
    break;
  case Fill::Hyper:
    tensor.data = {0.05,
                   0.9,
                   0.95,
                   1e-3,
                   0.1,
                   std::vector<double>{0.0, 1.0, 1e3}[random() % 3],
                   below(2) ? 1.0 : 0.25,
                   1.0 + below(4)};
    break;
  }
  for (double &x : tensor.data)
    x = reference::roundTo(element, x);
  return tensor;
}

std::vector<Tensor> Trial::makeArguments(FuncOp function) {
  std::vector<Tensor> arguments;
  for (mlir::BlockArgument argument : function.getArguments()) {
    Fill fill =
        findFill(function, argumentName(function, argument.getArgNumber()));
    arguments.push_back(
        makeTensor(fill, shapeOf(argument), getElementTypeOrSelf(argument)));
  }
  return arguments;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// Whether the tensors are the same bit by bit, but for the sign of NaN.
static bool isSame(const Tensor &x, const Tensor &y) {
  return x.data.size() == y.data.size() &&
         std::memcmp(x.data.data(), y.data.data(),
                     x.data.size() * sizeof(double)) == 0;
}

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
    double error = largestDistance(result, expected);
    double tolerance = oracle.getTolerance(index, error, module.seed);
    double top = largestElement(expected);
    ++coverage.results;
    if (tolerance > kLooseTolerance * top && top > 0.0)
      ++coverage.loose;
    if (error <= tolerance)
      continue;
    std::ostringstream message;
    message << "@" << function.getName().str() << " (" << loaded.description
            << "), result " << index << " (" << resultName(function, index)
            << nn::getResultAlias(function, index).str() << ") is off by "
            << error << ", more than " << tolerance
            << "; the largest element is " << top;
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
    random.seed(seed + tries);
    arguments = makeArguments(function);
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
// Gradients
//===----------------------------------------------------------------------===//

static double dot(const Tensor &x, const Tensor &y, double *size = nullptr) {
  double sum = 0.0;
  for (size_t i = 0; i < x.data.size(); ++i) {
    sum += x.data[i] * y.data[i];
    if (size)
      *size += std::fabs(x.data[i] * y.data[i]);
  }
  return sum;
}

/// Compares the gradients of `function` in a random direction with differences
/// of the objective of `model`, the function that it was made from. Both are
/// evaluated in fp64.
bool Trial::checkGradients(FuncOp model, FuncOp function) {
  bool isModel = nn::isTrainable(model);
  std::optional<unsigned> objective;
  for (unsigned i = 0; i < model.getNumResults(); ++i)
    if (nn::isObjective(model, i) ||
        (isModel && nn::getResultName(model, i) == "loss"))
      objective = i;
  if (!objective)
    return true;
  std::vector<Tensor> arguments = makeArguments(function);
  Oracle gradients(function), values(model);
  std::vector<Tensor> inputs;
  for (unsigned i = 0; i < model.getNumArguments(); ++i) {
    auto same = nn::findArgument(function, nn::getArgumentName(model, i));
    unsigned index = isModel && same ? *same : i;
    inputs.push_back(isModel && !same ? Tensor(shapeOf(model.getArgument(i)))
                                      : arguments[index]);
  }
  if (failed(gradients.evaluate(arguments)) || failed(values.evaluate(inputs)))
    return fail("evaluate", "the reference cannot evaluate the gradient");

  // A random direction, and the slope that the gradients say.
  std::vector<Tensor> direction;
  double slope = 0.0, size = 0.0;
  bool marked = false;
  for (unsigned i = 0; i < model.getNumArguments(); ++i)
    marked |= bool(model.getArgAttr(i, nn::kDifferentiateAttr));
  unsigned next = model.getNumResults();
  for (unsigned i = 0; i < model.getNumArguments(); ++i) {
    direction.push_back(Tensor(inputs[i].shape));
    bool isTarget =
        marked ? bool(model.getArgAttr(i, nn::kDifferentiateAttr))
               : nn::getArgumentRole(model, i) == nn::ArgumentRole::Parameter;
    if (!isTarget)
      continue;
    direction.back() =
        makeTensor({}, inputs[i].shape, mlir::Float64Type::get(&getContext()));
    Tensor gradient;
    if (isModel) {
      std::string name = "grad." + argumentName(model, i);
      for (unsigned r = 0; r < function.getNumResults(); ++r)
        if (nn::getResultAlias(function, r) == name)
          gradient = gradients.getResults()[r];
      const Tensor &before = arguments[*nn::findArgument(function, name)];
      for (size_t e = 0; e < gradient.data.size(); ++e)
        gradient.data[e] -= before.data[e];
    } else {
      gradient = gradients.getResults()[next++];
    }
    slope += dot(direction.back(), gradient, &size);
  }

  // The slope that two values say.
  auto valueAt = [&](double step, double &magnitude) {
    std::vector<Tensor> moved = inputs;
    for (size_t i = 0; i < moved.size(); ++i)
      for (size_t e = 0; e < moved[i].data.size(); ++e)
        moved[i].data[e] += step * direction[i].data[e];
    Tensor value = values.evaluateNear(moved)[*objective];
    Tensor weights(value.shape, 1.0);
    if (!value.shape.empty())
      weights = arguments.back();
    return dot(value, weights, &magnitude);
  };
  double step = 1e-5, magnitude = 0.0;
  double difference =
      (valueAt(step, magnitude) - valueAt(-step, magnitude)) / (2 * step);
  double allowed = 1e-4 * size + 1e-9 * magnitude;
  ++coverage.gradients;
  if (std::fabs(slope - difference) <= allowed)
    return true;
  std::ostringstream message;
  message << "@" << function.getName().str() << " has the slope " << slope
          << ", but differences of the objective say " << difference
          << ", further away than " << allowed;
  return fail("gradient", message.str());
}

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

std::optional<Failure> Trial::check() {
  ++coverage.modules;
  coverage.ops += module.countOps();
  auto source = mlir::parseSourceString<mlir::ModuleOp>(text, &getContext());
  if (!source) {
    fail("parse", "the module does not parse");
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
    if (!checkGradients(model, lowered->lookupSymbol<FuncOp>(name)))
      return failure;
  }
  return failure;
}

std::optional<Failure> nsa::test::checkModule(const GraphModule &module,
                                              Programs programs,
                                              Coverage &coverage) {
  return Trial(module, programs, coverage).check();
}
