//===- Shrink.cpp - smaller modules that fail in the same way -------------===//

#include "test/unit/RandomModules/Check.h"

#include <algorithm>
#include <chrono>
#include <functional>

using namespace nsa;
using namespace nsa::test;

namespace {
class Shrinker {
public:
  Shrinker(GraphModule module, Programs programs, const Failure &failure,
           double seconds)
      : best(std::move(module)), programs(programs), kind(failure.kind),
        end(std::chrono::steady_clock::now() +
            std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                std::chrono::duration<double>(seconds))) {}

  GraphModule run();

private:
  bool isTimeLeft() const { return std::chrono::steady_clock::now() < end; }
  /// Takes a changed module if that still fails.
  bool attempt(const std::function<bool(GraphModule &)> &change);
  bool dropFunctions();
  bool dropResults();
  bool dropOps();
  bool dropArguments();
  bool dropOptions();

  GraphModule best;
  Programs programs;
  std::string kind;
  std::chrono::steady_clock::time_point end;
};
} // namespace

bool Shrinker::attempt(const std::function<bool(GraphModule &)> &change) {
  if (!isTimeLeft())
    return false;
  GraphModule candidate = best;
  if (!change(candidate))
    return false;
  for (GraphFunction &function : candidate.functions)
    function.eraseDeadOps();
  Coverage ignored;
  std::optional<Failure> failure = checkModule(candidate, programs, ignored);
  if (!failure || failure->kind != kind)
    return false;
  best = std::move(candidate);
  return true;
}

bool Shrinker::dropFunctions() {
  bool changed = false;
  for (size_t i = best.functions.size(); i-- > 0 && best.functions.size() > 1;)
    changed |= attempt([&](GraphModule &module) {
      module.functions.erase(module.functions.begin() + i);
      return true;
    });
  return changed;
}

bool Shrinker::dropResults() {
  bool changed = false;
  for (size_t f = 0; f < best.functions.size(); ++f)
    for (size_t i = best.functions[f].results.size(); i-- > 0;)
      changed |= attempt([&](GraphModule &module) {
        std::vector<GraphResult> &results = module.functions[f].results;
        if (results.size() < 2 || results[i].name == "loss" ||
            results[i].name == "logits")
          return false;
        // Without an objective there is nothing to differentiate.
        if (results[i].isObjective)
          for (GraphArgument &argument : module.functions[f].arguments)
            argument.differentiate = false;
        results.erase(results.begin() + i);
        return true;
      });
  return changed;
}

/// Arguments take the place of what an operation computes.
bool Shrinker::dropOps() {
  bool changed = false;
  for (size_t f = 0; f < best.functions.size(); ++f)
    for (size_t i = best.functions[f].ops.size(); i-- > 0;)
      changed |= attempt([&](GraphModule &module) {
        GraphFunction &function = module.functions[f];
        if (i >= function.ops.size())
          return false;
        GraphOp op = function.ops[i];
        function.ops.erase(function.ops.begin() + i);
        std::vector<bool> used = function.findUsed();
        for (ValueId value : op.results) {
          if (!used[value])
            continue;
          const GraphType &type = function.type(value);
          if (!isFloat(type.element) || type.isEmpty())
            return false;
          GraphArgument argument;
          argument.value = value;
          argument.name = "cut" + std::to_string(value) + "." + function.name;
          function.arguments.push_back(argument);
        }
        return true;
      });
  return changed;
}

bool Shrinker::dropArguments() {
  bool changed = false;
  for (size_t f = 0; f < best.functions.size(); ++f)
    for (size_t i = best.functions[f].arguments.size(); i-- > 0;)
      changed |= attempt([&](GraphModule &module) {
        GraphFunction &function = module.functions[f];
        if (function.findUsed()[function.arguments[i].value])
          return false;
        function.arguments.erase(function.arguments.begin() + i);
        return true;
      });
  return changed;
}

bool Shrinker::dropOptions() {
  bool changed = attempt([](GraphModule &module) {
    if (module.options.recompute == "none")
      return false;
    module.options.recompute = "none";
    module.options.recomputeBudget = 0;
    return true;
  });
  changed |= attempt([](GraphModule &module) {
    if (module.options.precision == "fp32")
      return false;
    module.options.precision = "fp32";
    return true;
  });
  changed |= attempt([](GraphModule &module) {
    if (!module.hasDims)
      return false;
    module.hasDims = false;
    module.options.microBatch = module.options.seqLen = 0;
    module.batch.actual = module.batch.written;
    module.sequence.actual = module.sequence.written;
    for (GraphFunction &function : module.functions)
      for (GraphValue &value : function.values)
        for (Dim &dim : value.type.shape)
          dim.actual = dim.written;
    return true;
  });
  return changed;
}

GraphModule Shrinker::run() {
  bool changed = true;
  while (changed && isTimeLeft()) {
    changed = dropFunctions();
    changed |= dropResults();
    changed |= dropOps();
    changed |= dropArguments();
    changed |= dropOptions();
  }
  return best;
}

GraphModule nsa::test::shrink(GraphModule module, Programs programs,
                              const Failure &failure, double seconds) {
  return Shrinker(std::move(module), programs, failure, seconds).run();
}
