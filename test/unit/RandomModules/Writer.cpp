//===- Writer.cpp - values, choices and single operations -----------------===//

#include "test/unit/RandomModules/Writer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace nsa;
using namespace nsa::test;

/// Multiplications of one function: what the reference can repeat in a moment.
static constexpr double kMaxWork = 2e6;
/// Values larger than this are left alone by what would make them larger.
static constexpr double kMaxScale = 8.0;

FunctionWriter::FunctionWriter(GraphModule &module, GraphFunction &function,
                               Random &random, Kind kind)
    : module(module), function(function), random(random), kind(kind) {
  function.isTrainable = kind == Kind::Training;
  bool narrow = kind != Kind::Training && random.chance(0.3);
  compute = narrow ? DataType::BF16 : DataType::F32;
}

//===----------------------------------------------------------------------===//
// Values and operations
//===----------------------------------------------------------------------===//

ValueId FunctionWriter::value(GraphType type, double scale, bool isStatistic) {
  function.values.push_back({std::move(type), scale, isStatistic, false});
  return static_cast<ValueId>(function.values.size() - 1);
}

bool FunctionWriter::canBeArgument(const GraphType &type) const {
  return std::all_of(type.shape.begin(), type.shape.end(), [&](const Dim &dim) {
    return dim.isFixed() || dim == module.batch || dim == module.sequence;
  });
}

ValueId FunctionWriter::argument(const GraphType &type, const Fill &fill,
                                 const char *stem) {
  if (random.chance(0.25))
    for (const GraphArgument &other : function.arguments)
      if (function.type(other.value) == type && other.fill == fill)
        return other.value;
  GraphArgument argument;
  argument.value = value(type, fill.scale);
  argument.name = stem;
  argument.fill = fill;
  function.arguments.push_back(argument);
  return argument.value;
}

ValueId FunctionWriter::weight(const std::vector<Dim> &shape, DataType element,
                               double scale) {
  return argument({shape, element}, {Fill::Normal, scale, 0}, "w");
}

ValueId FunctionWriter::vector(const Dim &size, double scale) {
  return weight({size}, DataType::F32, scale);
}

ValueId FunctionWriter::emit(const std::string &name,
                             const std::vector<ValueId> &operands,
                             const GraphType &type, double scale,
                             const std::string &attributes,
                             const std::string &suffix) {
  ValueId result = value(type, scale);
  function.ops.push_back({name, operands, {result}, attributes, suffix, -1});
  work += static_cast<double>(type.elements());
  return result;
}

ValueId FunctionWriter::emitStatistic(const GraphType &type, double scale) {
  ValueId result = value(type, scale, /*isStatistic=*/true);
  function.ops.back().results.push_back(result);
  return result;
}

bool FunctionWriter::affords(double multiplications) {
  if (work + multiplications > kMaxWork)
    return false;
  work += multiplications;
  return true;
}

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

std::optional<ValueId> FunctionWriter::find(const Filter &filter) {
  std::vector<ValueId> candidates;
  for (ValueId id = 0; id < function.values.size(); ++id) {
    const GraphValue &value = function.values[id];
    if (isFloat(value.type.element) && !value.mayBeInfinite &&
        !(value.isStatistic && differentiates()) && filter(value))
      candidates.push_back(id);
  }
  if (candidates.empty())
    return std::nullopt;
  size_t recent = std::min<size_t>(candidates.size(), 4);
  if (random.chance(0.6))
    return candidates[candidates.size() - 1 - random.below(recent)];
  return random.pick(candidates);
}

std::optional<ValueId> FunctionWriter::findLike(const GraphType &type) {
  return find([&](const GraphValue &value) { return value.type == type; });
}

ValueId FunctionWriter::anyFloat() {
  auto found = find([](const GraphValue &value) {
    return !value.type.isEmpty() && value.type.elements() < 40000;
  });
  return found ? *found : activation();
}

int64_t FunctionWriter::width() {
  if (random.chance(0.5))
    return random.between(1, 33);
  return random.pick(std::vector<int64_t>{8, 16, 24, 32, 48, 64});
}

ValueId FunctionWriter::activation() {
  auto fits = [&](const GraphValue &value) {
    const std::vector<Dim> &shape = value.type.shape;
    return shape.size() == 3 && shape[0] == module.batch &&
           shape[1] == module.sequence && shape[2].isFixed();
  };
  std::optional<ValueId> found;
  if (!random.chance(0.1))
    found = find(fits);
  if (found)
    return *found;
  return argument({{module.batch, module.sequence, width()}, compute},
                  {Fill::Normal, 1.0, 0}, "x");
}

ValueId FunctionWriter::headed() {
  auto found = find([&](const GraphValue &value) {
    const std::vector<Dim> &shape = value.type.shape;
    return shape.size() == 4 && shape[0] == module.batch &&
           shape[1] == module.sequence && shape[3].isFixed();
  });
  if (found && !random.chance(0.1))
    return *found;
  return argument({{module.batch, module.sequence, random.between(1, 6),
                    random.chance(0.5) ? 16 : width()},
                   compute},
                  {Fill::Normal, 1.0, 0}, "h");
}

//===----------------------------------------------------------------------===//
// Operations on given values
//===----------------------------------------------------------------------===//

ValueId FunctionWriter::add(ValueId lhs, ValueId rhs) {
  double size =
      lhs == rhs ? 2 * scale(lhs) : std::hypot(scale(lhs), scale(rhs));
  return emit("nn.add", {lhs, rhs}, type(lhs), size);
}

ValueId FunctionWriter::matmul(ValueId lhs, ValueId rhs, bool transposeLhs,
                               bool transposeRhs) {
  GraphType a = type(lhs), b = type(rhs);
  auto product = [](const std::vector<Dim> &dims) {
    Dim result(1);
    for (const Dim &dim : dims)
      result = result * dim;
    return result;
  };
  std::vector<Dim> shape =
      transposeLhs ? std::vector<Dim>{a.last()} : a.leading();
  shape.push_back(transposeRhs ? product(b.leading()) : b.last());
  int64_t depth = transposeLhs ? a.rows() : a.last().actual;
  double size = scale(lhs) * scale(rhs) * std::sqrt(double(depth));
  GraphType result{shape, a.element};
  std::string attributes;
  auto note = [&](const std::string &text) {
    attributes += (attributes.empty() ? "" : ", ") + text;
  };
  if (transposeLhs)
    note("transpose_lhs");
  if (transposeRhs)
    note("transpose_rhs");
  if (random.chance(0.15)) {
    result.element = random.chance(0.7) ? DataType::F32 : DataType::BF16;
    note(std::string("result_type = ") + typeName(result.element));
  }
  std::vector<ValueId> operands = {lhs, rhs};
  if (random.chance(0.15))
    if (auto sum = findLike(result); sum && scale(*sum) < kMaxScale) {
      operands.push_back(*sum);
      size = std::hypot(size, scale(*sum));
    }
  return emit("nn.matmul", operands, result, size, attributes);
}

ValueId FunctionWriter::project(ValueId x, int64_t columns) {
  Dim depth = type(x).last();
  if (!affords(double(type(x).rows() * depth.actual * columns)))
    columns = 1;
  bool transposed = random.chance(0.2);
  std::vector<Dim> shape = transposed ? std::vector<Dim>{columns, depth}
                                      : std::vector<Dim>{depth, columns};
  DataType narrow = element(x);
  std::optional<ValueId> w;
  if (random.chance(0.1))
    w = findLike({shape, narrow});
  if (!w)
    w = weight(shape, narrow,
               1.0 / std::sqrt(std::max<double>(depth.actual, 1.0)));
  return matmul(x, *w, /*transposeLhs=*/false, transposed);
}

ValueId FunctionWriter::norm(ValueId x) {
  Dim channels = type(x).last();
  ValueId w = vector(channels, 1.0);
  std::string eps =
      random.chance(0.5) ? "eps = 1.0e-5 : f64" : "eps = 1.0e-2 : f64";
  // The norm of one element would be its sign: all but no gradient, and one
  // rounding error for all rows.
  if (channels.actual == 1)
    eps = "eps = 1.0 : f64";
  ValueId y = emit("nn.rms_norm", {x, w}, type(x), 1.0, eps);
  emitStatistic({type(x).leading(), DataType::F32}, 1.0);
  return y;
}

ValueId FunctionWriter::rotate(ValueId x, int64_t stride) {
  GraphType rotated = type(x);
  Dim pairs = rotated.last().actual / 2;
  Dim rows = rotated.shape[1];
  int64_t length =
      std::max<int64_t>(std::max(rows.written, rows.actual) - 1, 0) * stride +
      1;
  std::optional<ValueId> table;
  for (const GraphArgument &other : function.arguments)
    if (other.fill.kind == Fill::Rotary) {
      const std::vector<Dim> &shape = type(other.value).shape;
      if (shape[0].isFixed() && shape[0].actual >= length && shape[1] == pairs)
        table = other.value;
    }
  if (!table)
    table = argument({{length + random.below(3), pairs, 2}, DataType::F32},
                     {Fill::Rotary, 1.0, 0}, "rotary");
  std::string attributes;
  if (stride != 1 || random.chance(0.2))
    attributes = "stride = " + std::to_string(stride) + " : i64";
  if (random.chance(0.15))
    attributes += attributes.empty() ? "inverse" : ", inverse";
  ValueId y = emit("nn.rotary", {x, *table}, rotated, scale(x), attributes);
  function.ops.back().activeOperand = 0;
  return y;
}

ValueId FunctionWriter::splitHeads(ValueId x, int64_t heads) {
  GraphType split = type(x);
  int64_t channels = split.last().actual;
  split.shape.back() = heads;
  split.shape.push_back(channels / heads);
  return emit("nn.split_heads", {x}, split, scale(x),
              "heads = " + std::to_string(heads) + " : i64");
}

ValueId FunctionWriter::mergeHeads(ValueId x) {
  std::vector<Dim> shape = type(x).shape;
  return emit("nn.merge_heads", {x},
              {{shape[0], shape[1], shape[2] * shape[3]}, element(x)},
              scale(x));
}

ValueId FunctionWriter::crossEntropy(ValueId x) {
  GraphType rows{type(x).leading(), DataType::I32};
  ValueId targets =
      argument(rows, {Fill::Targets, 0.0, type(x).last().actual}, "targets");
  ValueId loss =
      emit("nn.cross_entropy", {x, targets}, {{}, DataType::F32}, 2.0);
  emitStatistic({type(x).leading(), DataType::F32}, 2.0);
  emitStatistic({{}, DataType::F32}, 10.0);
  losses.push_back(loss);
  logits.push_back(x);
  return loss;
}

ValueId FunctionWriter::feedForward(ValueId x, int64_t columns) {
  int64_t hidden = width();
  ValueId up = project(x, hidden);
  if (random.chance(0.6)) {
    ValueId gate = project(x, type(up).last().actual);
    if (type(gate) == type(up))
      up = emit("nn.swiglu", {gate, up}, type(up), scale(gate) * scale(up));
  } else {
    up = emit("nn.silu", {up}, type(up), scale(up));
  }
  return project(up, columns);
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

void FunctionWriter::write(size_t operations) {
  if (random.chance(0.5))
    embeddingStep();
  else
    activation();
  // Some steps add nothing where nothing fits.
  for (size_t tries = 0;
       tries < 3 * operations && function.ops.size() < operations; ++tries)
    step();
  finish();
}

void FunctionWriter::step() {
  struct Choice {
    int weight;
    Step step;
  };
  static const std::vector<Choice> everywhere = {
      {4, &FunctionWriter::addStep},
      {2, &FunctionWriter::siluStep},
      {2, &FunctionWriter::swigluStep},
      {4, &FunctionWriter::projectStep},
      {2, &FunctionWriter::productStep},
      {3, &FunctionWriter::normStep},
      {1, &FunctionWriter::castStep},
      {1, &FunctionWriter::fillStep},
      {2, &FunctionWriter::headsStep},
      {2, &FunctionWriter::rotaryStep},
      {1, &FunctionWriter::gateStep},
      {1, &FunctionWriter::embeddingStep},
      {1, &FunctionWriter::compressStep},
      {3, &FunctionWriter::attentionStep},
      {3, &FunctionWriter::layerStep},
      {1, &FunctionWriter::crossEntropyStep},
      {2, &FunctionWriter::repeatStep},
      {1, &FunctionWriter::stateStep},
  };
  static const std::vector<Choice> plainOnly = {
      {3, &FunctionWriter::backwardStep},
      {1, &FunctionWriter::barrierStep},
      {2, &FunctionWriter::optimizerStep},
  };
  std::vector<Choice> choices = everywhere;
  if (!differentiates())
    choices.insert(choices.end(), plainOnly.begin(), plainOnly.end());
  int total = 0;
  for (const Choice &choice : choices)
    total += choice.weight;
  int64_t at = random.below(total);
  for (const Choice &choice : choices) {
    at -= choice.weight;
    if (at < 0)
      return (this->*choice.step)();
  }
}
