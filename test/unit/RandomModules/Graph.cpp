//===- Graph.cpp - modules that a program can take apart ------------------===//

#include "test/unit/RandomModules/Graph.h"

#include <algorithm>
#include <sstream>

using namespace nsa;
using namespace nsa::test;

int64_t GraphType::elements() const {
  int64_t count = 1;
  for (const Dim &dim : shape)
    count *= dim.actual;
  return count;
}

int64_t GraphType::rows() const {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i)
    count *= shape[i].actual;
  return count;
}

bool GraphType::isEmpty() const {
  return std::any_of(shape.begin(), shape.end(), [](const Dim &dim) {
    return dim.written == 0 || dim.actual == 0;
  });
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

const GraphArgument *
GraphFunction::findArgument(const std::string &argumentName) const {
  for (const GraphArgument &argument : arguments)
    if (argument.name == argumentName)
      return &argument;
  return nullptr;
}

bool GraphFunction::hasGradients() const {
  return isTrainable ||
         std::any_of(results.begin(), results.end(),
                     [](const GraphResult &r) { return r.isObjective; });
}

std::vector<bool> GraphFunction::findActive(ValueId objective) const {
  std::vector<bool> active(values.size());
  active[objective] = true;
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    if (!active[op->results[0]] || op->activeOperand == -2)
      continue;
    for (size_t i = 0; i < op->operands.size(); ++i)
      if (op->activeOperand < 0 || op->activeOperand == static_cast<int>(i))
        if (isFloat(type(op->operands[i]).element))
          active[op->operands[i]] = true;
  }
  return active;
}

std::vector<bool> GraphFunction::findUsed() const {
  std::vector<bool> used(values.size());
  for (const GraphOp &op : ops)
    for (ValueId operand : op.operands)
      used[operand] = true;
  for (const GraphResult &result : results)
    used[result.value] = true;
  return used;
}

void GraphFunction::eraseDeadOps() {
  std::vector<bool> used(values.size());
  for (const GraphResult &result : results)
    used[result.value] = true;
  std::vector<GraphOp> kept;
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    if (std::none_of(op->results.begin(), op->results.end(),
                     [&](ValueId value) { return used[value]; }))
      continue;
    for (ValueId operand : op->operands)
      used[operand] = true;
    kept.push_back(*op);
  }
  ops.assign(kept.rbegin(), kept.rend());
}

size_t GraphModule::countOps() const {
  size_t count = 0;
  for (const GraphFunction &function : functions)
    count += function.ops.size();
  return count;
}

bool GraphModule::hasGradients() const {
  return std::any_of(functions.begin(), functions.end(),
                     [](const GraphFunction &f) { return f.hasGradients(); });
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

namespace {
class Printer {
public:
  explicit Printer(const GraphModule &module) : module(module) {}

  std::string print();

private:
  void printFunction(const GraphFunction &function);
  void printArgument(const GraphFunction &function, size_t index);
  void printResult(const GraphFunction &function, const GraphResult &result);
  void printOp(const GraphFunction &function, const GraphOp &op);
  void printType(const GraphType &type);
  void printTypes(const GraphFunction &function,
                  const std::vector<ValueId> &values);
  void printValues(const std::vector<ValueId> &values);
  /// The attributes collected since the last call, in braces.
  void printAttributes();
  void printDims(const GraphType &type);

  const GraphModule &module;
  std::vector<std::string> attributes;
  std::ostringstream text;
};
} // namespace

void Printer::printType(const GraphType &type) {
  text << "tensor<";
  for (const Dim &dim : type.shape)
    text << dim.written << "x";
  text << typeName(type.element) << ">";
}

void Printer::printTypes(const GraphFunction &function,
                         const std::vector<ValueId> &values) {
  text << "(";
  for (size_t i = 0; i < values.size(); ++i) {
    text << (i ? ", " : "");
    printType(function.type(values[i]));
  }
  text << ")";
}

void Printer::printValues(const std::vector<ValueId> &values) {
  for (size_t i = 0; i < values.size(); ++i)
    text << (i ? ", %" : "%") << values[i];
}

void Printer::printAttributes() {
  for (size_t i = 0; i < attributes.size(); ++i)
    text << (i ? ", " : " {") << attributes[i];
  if (!attributes.empty())
    text << "}";
  attributes.clear();
}

void Printer::printDims(const GraphType &type) {
  std::string dims;
  bool any = false;
  for (const Dim &dim : type.shape) {
    const char *name = dim == module.batch      ? "batch"
                       : dim == module.sequence ? "seq"
                                                : "";
    any |= *name != 0;
    dims += (dims.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  }
  if (any)
    attributes.push_back("nn.dims = [" + dims + "]");
}

static std::string printInit(const Fill &fill) {
  switch (fill.kind) {
  case Fill::Rotary:
    return "#nn.init<rotary, 100.0>";
  case Fill::Normal:
    return "#nn.init<normal, 0.5>";
  default:
    return "#nn.init<constant, 0.0>";
  }
}

void Printer::printArgument(const GraphFunction &function, size_t index) {
  const GraphArgument &argument = function.arguments[index];
  text << (index ? ",\n    %" : "%") << argument.value << ": ";
  printType(function.type(argument.value));
  if (!argument.name.empty())
    attributes.push_back("nn.name = \"" + argument.name + "\"");
  if (!argument.role.empty())
    attributes.push_back("nn.role = \"" + argument.role + "\"");
  if (argument.isPersistent())
    attributes.push_back("nn.init = " + printInit(argument.fill));
  if (argument.decay)
    attributes.push_back("nn.decay");
  if (argument.differentiate)
    attributes.push_back("nn.differentiate");
  if (module.hasDims)
    printDims(function.type(argument.value));
  printAttributes();
}

void Printer::printResult(const GraphFunction &function,
                          const GraphResult &result) {
  printType(function.type(result.value));
  if (!result.name.empty())
    attributes.push_back("nn.name = \"" + result.name + "\"");
  if (!result.alias.empty())
    attributes.push_back("nn.alias = \"" + result.alias + "\"");
  if (result.isObjective)
    attributes.push_back("nn.objective");
  printAttributes();
}

void Printer::printOp(const GraphFunction &function, const GraphOp &op) {
  text << "  ";
  printValues(op.results);
  text << " = " << op.name << (op.operands.empty() ? "" : " ");
  printValues(op.operands);
  text << op.suffix;
  if (!op.attributes.empty())
    attributes.push_back(op.attributes);
  printAttributes();
  text << " : ";
  if (op.name.rfind("nn.fill", 0) == 0) {
    printType(function.type(op.results[0]));
  } else {
    printTypes(function, op.operands);
    text << " -> ";
    printTypes(function, op.results);
  }
  text << "\n";
}

void Printer::printFunction(const GraphFunction &function) {
  text << "func.func @" << function.name << "(";
  for (size_t i = 0; i < function.arguments.size(); ++i)
    printArgument(function, i);
  text << ")\n    -> (";
  for (size_t i = 0; i < function.results.size(); ++i) {
    text << (i ? ",\n        " : "");
    printResult(function, function.results[i]);
  }
  text << ")" << (function.isTrainable ? " attributes {nn.train}" : "")
       << " {\n";
  for (const GraphOp &op : function.ops)
    printOp(function, op);
  std::vector<ValueId> values;
  values.reserve(function.results.size());
  for (const GraphResult &result : function.results)
    values.push_back(result.value);
  text << "  return";
  for (size_t i = 0; i < values.size(); ++i)
    text << (i ? ", %" : " %") << values[i];
  for (size_t i = 0; i < values.size(); ++i) {
    text << (i ? ", " : " : ");
    printType(function.type(values[i]));
  }
  text << "\n}\n";
}

std::string Printer::print() {
  text << "// seed " << module.seed << printOptions(module.options) << "\n";
  for (const GraphFunction &function : module.functions)
    printFunction(function);
  return text.str();
}

std::string nsa::test::print(const GraphModule &module) {
  return Printer(module).print();
}

std::string nsa::test::printOptions(const CompilerOptions &options) {
  std::string text;
  if (!options.precision.empty() && options.precision != "fp32")
    text += " --precision=" + options.precision;
  if (options.microBatch)
    text += " --micro-batch=" + std::to_string(options.microBatch);
  if (options.seqLen)
    text += " --seq-len=" + std::to_string(options.seqLen);
  if (options.recompute != "none")
    text += " --recompute=" + options.recompute;
  if (options.recomputeBudget)
    text += " --recompute-budget=" + std::to_string(options.recomputeBudget);
  if (!options.fuse)
    text += " --no-fuse";
  return text;
}
