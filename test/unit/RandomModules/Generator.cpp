//===- Generator.cpp - how a random function and module end ---------------===//

#include "test/unit/RandomModules/Writer.h"

#include <algorithm>

using namespace nsa;
using namespace nsa::test;

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void FunctionWriter::addResult(ValueId value, const char *name) {
  GraphResult result;
  result.value = value;
  if (name)
    result.name = name;
  else if (random.chance(0.8))
    result.name =
        "y" + std::to_string(function.results.size()) + "." + function.name;
  function.results.push_back(result);
}

void FunctionWriter::chooseResults() {
  std::vector<bool> used = function.findUsed();
  for (const GraphOp &op : function.ops)
    for (ValueId id : op.results) {
      bool isSink = !used[id];
      bool isStatistic = function.values[id].isStatistic;
      double wanted = isSink ? (isStatistic ? 0.4 : 0.9) : 0.12;
      if (random.chance(wanted))
        addResult(id);
    }
  if (random.chance(0.15))
    addResult(random.pick(function.arguments).value);
  if (random.chance(0.1) && !function.results.empty())
    addResult(random.pick(function.results).value);
  if (function.results.empty())
    addResult(anyFloat());
}

/// The result that is differentiated, and some of the arguments that reach it.
void FunctionWriter::chooseObjective() {
  auto targets = [&](ValueId objective) {
    std::vector<bool> active = function.findActive(objective);
    std::vector<GraphArgument *> reached;
    for (GraphArgument &argument : function.arguments)
      if (active[argument.value] && argument.value != objective)
        reached.push_back(&argument);
    return reached;
  };
  if (random.chance(0.4))
    crossEntropyStep();
  ValueId objective =
      losses.empty() || random.chance(0.3) ? anyFloat() : random.pick(losses);
  std::vector<GraphArgument *> reached = targets(objective);
  if (reached.empty())
    return;
  addResult(objective);
  function.results.back().isObjective = true;
  size_t first = random.below(static_cast<int64_t>(reached.size()));
  for (size_t i = 0; i < reached.size(); ++i)
    reached[i]->differentiate = i == first || random.chance(0.6);
}

/// Whether a training function may have `argument` as a parameter. States,
/// whose name is s before roles are chosen, stay what they are.
bool FunctionWriter::canBeParameter(const GraphArgument &argument,
                                    const std::vector<bool> &active) const {
  return active[argument.value] &&
         function.type(argument.value).element == DataType::F32 &&
         argument.fill.kind == Fill::Normal && argument.name != "s";
}

/// Results loss and logits, and more.
void FunctionWriter::makeTrainable() {
  if (losses.empty()) {
    ValueId x = norm(activation());
    ValueId w =
        weight({type(x).last(), random.between(2, 70)}, element(x), 0.3);
    crossEntropy(matmul(x, w, /*transposeLhs=*/false,
                        /*transposeRhs=*/false));
  }
  ValueId loss = losses.back();
  if (losses.size() > 1 && random.chance(0.4))
    loss = add(losses[0], loss);
  // A training step needs a parameter that reaches the loss.
  std::vector<bool> active = function.findActive(loss);
  if (std::none_of(function.arguments.begin(), function.arguments.end(),
                   [&](const GraphArgument &argument) {
                     return canBeParameter(argument, active);
                   })) {
    ValueId x = norm(activation());
    ValueId w =
        weight({type(x).last(), random.between(2, 70)}, element(x), 0.3);
    loss = crossEntropy(matmul(x, w, /*transposeLhs=*/false,
                               /*transposeRhs=*/false));
  }
  addResult(loss, "loss");
  addResult(logits.back(), "logits");
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

/// Takes the name of an argument of an earlier function that holds the same.
bool FunctionWriter::shareName(GraphArgument &argument) {
  for (const GraphFunction &other : module.functions)
    for (const GraphArgument &candidate : other.arguments)
      if (!candidate.name.empty() && candidate.fill == argument.fill &&
          other.type(candidate.value) == type(argument.value) &&
          !function.findArgument(candidate.name) && random.chance(0.3)) {
        argument.name = candidate.name;
        argument.role = candidate.role;
        argument.decay = candidate.decay;
        return true;
      }
  return false;
}

void FunctionWriter::chooseRoles(const std::vector<bool> &active) {
  static const std::vector<std::string> roles = {
      "input", "", "parameter", "constant", "state", "state", "gradient"};
  std::vector<bool> used = function.findUsed();
  size_t number = 0;
  bool hasParameter = false;
  for (GraphArgument &argument : function.arguments) {
    std::string stem = argument.name;
    bool isCandidate = canBeParameter(argument, active);
    argument.name.clear();
    if (shareName(argument))
      continue;
    argument.name = stem + std::to_string(number++) + "." + function.name;
    bool isFloating = isFloat(element(argument.value));
    if (kind == Kind::Training) {
      bool trained = used[argument.value] && isCandidate;
      argument.role = trained && (random.chance(0.9) || !hasParameter)
                          ? "parameter"
                      : argument.fill.kind == Fill::Rotary ? "constant"
                      : stem == "s"                        ? "state"
                                                           : "input";
    } else if (argument.fill.kind == Fill::Rotary) {
      argument.role = random.chance(0.5) ? "constant" : "input";
    } else if (isFloating && argument.fill.kind != Fill::Hyper) {
      argument.role = random.chance(0.4) ? "input" : random.pick(roles);
      if (stem == "s" || stem == "m" || stem == "v")
        argument.role = random.chance(0.8) ? "state" : "input";
    }
    hasParameter |= argument.role == "parameter";
    argument.decay = argument.role == "parameter" && random.chance(0.5);
  }
}

/// Takes the names of arguments and results away, where nothing needs them.
static void dropNames(GraphFunction &function) {
  for (GraphArgument &argument : function.arguments)
    if (!argument.isPersistent() && argument.fill.kind == Fill::Normal &&
        std::none_of(function.results.begin(), function.results.end(),
                     [&](const GraphResult &result) {
                       return result.alias == argument.name;
                     }))
      argument.name.clear();
}

void FunctionWriter::finish() {
  std::vector<bool> active(function.values.size());
  if (kind == Kind::Training) {
    makeTrainable();
    active = function.findActive(function.results[0].value);
  } else if (kind == Kind::Objective) {
    chooseObjective();
  }
  for (ValueId choice : exposed)
    addResult(choice);
  if (kind != Kind::Training || random.chance(0.3))
    chooseResults();
  // An argument that nothing uses.
  if (random.chance(0.2))
    argument({{random.between(1, 5)}, compute}, {Fill::Normal, 1.0, 0}, "u");
  active.resize(function.values.size());
  chooseRoles(active);
  std::vector<std::string> updated;
  for (const Update &update : updates) {
    for (const GraphArgument &argument : function.arguments)
      if (argument.value == update.argument && !argument.differentiate &&
          (kind != Kind::Training || argument.role == "state") &&
          std::find(updated.begin(), updated.end(), argument.name) ==
              updated.end()) {
        GraphResult result;
        result.value = update.value;
        result.alias = argument.name;
        function.results.push_back(result);
        updated.push_back(argument.name);
        break;
      }
  }
  std::shuffle(function.results.begin(), function.results.end(),
               std::mt19937_64(random.next()));
  if (module.functions.size() == 1 && random.chance(0.15) &&
      kind != Kind::Training)
    dropNames(function);
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

static void chooseOptions(GraphModule &module, Random &random) {
  auto length = [&]() -> int64_t {
    if (random.chance(0.3))
      return random.between(1, 9);
    return random.pick(std::vector<int64_t>{1, 15, 16, 17, 31, 32, 33, 40, 47,
                                            48, 63, 64, 65, 70, 100});
  };
  module.batch = random.between(1, 3);
  module.sequence = length();
  module.hasDims = random.chance(0.3);
  if (module.hasDims && random.chance(0.7)) {
    module.batch.actual = random.between(1, 3);
    module.options.microBatch = module.batch.actual;
  }
  if (module.hasDims && random.chance(0.7)) {
    module.sequence.actual = length();
    module.options.seqLen = module.sequence.actual;
  }
  module.options.recompute =
      random.pick(std::vector<std::string>{"none", "cheap", "block"});
  if (module.options.recompute != "none" && random.chance(0.1))
    module.options.recomputeBudget = 1;
}

/// Options that would change nothing are errors.
static void dropIdleOptions(GraphModule &module) {
  bool hasBatch = false, hasSequence = false;
  for (const GraphFunction &function : module.functions)
    for (const GraphArgument &argument : function.arguments)
      for (const Dim &dim : function.type(argument.value).shape) {
        hasBatch |= dim == module.batch;
        hasSequence |= !(dim == module.batch) && dim == module.sequence;
      }
  if (!hasBatch)
    module.options.microBatch = 0;
  if (!hasSequence)
    module.options.seqLen = 0;
}

GraphModule nsa::test::generateModule(uint64_t seed) {
  Random random(seed);
  GraphModule module;
  module.seed = seed;
  chooseOptions(module, random);
  using Kind = FunctionWriter::Kind;
  std::vector<Kind> kinds;
  int64_t shape = random.below(10);
  if (shape < 4)
    kinds = {Kind::Plain};
  else if (shape < 7)
    kinds = {Kind::Objective};
  else
    kinds = {Kind::Training};
  if (random.chance(0.2))
    kinds.push_back(random.chance(0.5) ? Kind::Plain : Kind::Objective);
  if (kinds[0] == Kind::Training && random.chance(0.35))
    module.options.precision = "bf16";
  // What is written refers to earlier functions.
  module.functions.reserve(kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) {
    GraphFunction function;
    function.name =
        kinds[i] == Kind::Training ? "model" : "f" + std::to_string(i);
    FunctionWriter(module, function, random, kinds[i])
        .write(2 + random.below(2 + random.below(18)));
    module.functions.push_back(std::move(function));
  }
  dropIdleOptions(module);
  return module;
}
