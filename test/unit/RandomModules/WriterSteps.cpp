//===- WriterSteps.cpp - the steps by which a function grows --------------===//

#include "test/unit/RandomModules/Writer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace nsa;
using namespace nsa::test;

static constexpr double kMaxScale = 8.0;

static std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6e", value);
  return text;
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

void FunctionWriter::addStep() {
  ValueId x = anyFloat();
  if (scale(x) > kMaxScale)
    return;
  std::optional<ValueId> y = findLike(type(x));
  if (y && scale(*y) <= kMaxScale)
    add(x, *y);
}

void FunctionWriter::siluStep() {
  ValueId x = anyFloat();
  emit("nn.silu", {x}, type(x), scale(x));
}

void FunctionWriter::swigluStep() {
  ValueId gate = anyFloat();
  ValueId up = findLike(type(gate)).value_or(gate);
  if (scale(gate) * scale(up) <= kMaxScale)
    emit("nn.swiglu", {gate, up}, type(gate), scale(gate) * scale(up));
}

void FunctionWriter::castStep() {
  ValueId x = anyFloat();
  DataType target = random.chance(0.15)           ? element(x)
                    : element(x) == DataType::F32 ? DataType::BF16
                                                  : DataType::F32;
  emit("nn.cast", {x}, {type(x).shape, target}, scale(x), "",
       std::string(" to ") + typeName(target));
}

void FunctionWriter::fillStep() {
  GraphType like = type(anyFloat());
  // No dimension that follows an option.
  if (!std::all_of(like.shape.begin(), like.shape.end(), [&](const Dim &dim) {
        return dim.isFixed() && !(dim == module.batch) &&
               !(dim == module.sequence);
      }))
    return;
  double value = random.chance(0.4) ? 0.0 : double(random.between(-4, 4)) / 4;
  ValueId filled = emit("nn.fill " + number(value), {}, like, std::fabs(value));
  function.ops.back().activeOperand = -2;
  std::optional<ValueId> other = findLike(type(filled));
  if (other && random.chance(0.7))
    random.chance(0.5) ? add(filled, *other) : add(*other, filled);
}

void FunctionWriter::barrierStep() {
  ValueId x = anyFloat();
  emit("nn.recompute_barrier", {x}, type(x), scale(x));
}

//===----------------------------------------------------------------------===//
// Products, norms, heads
//===----------------------------------------------------------------------===//

void FunctionWriter::projectStep() {
  ValueId x = anyFloat();
  if (type(x).rank() == 0 || !type(x).last().isFixed())
    return;
  int64_t columns = random.chance(0.5) ? type(x).last().actual : width();
  ValueId y = project(x, columns);
  // Several products of one operand are what merging looks for.
  for (int64_t more = random.below(3); more > 0; --more)
    project(x, random.chance(0.5) ? type(y).last().actual : width());
}

void FunctionWriter::productStep() {
  ValueId lhs = anyFloat();
  if (type(lhs).rank() == 0 || scale(lhs) > kMaxScale)
    return;
  GraphType a = type(lhs);
  // lhs^T . rhs with the same rows is what a weight's gradient is; lhs . rhs^T
  // and lhs^T . rhs^T are for matrices where a gradient must have their shape.
  bool transposeLhs = random.chance(0.6);
  bool transposeRhs = random.chance(0.3);
  bool matrices = differentiates() && (!transposeLhs || transposeRhs);
  if (matrices && transposeLhs && a.rank() != 2)
    return;
  auto fits = [&](const GraphValue &value) {
    const GraphType &b = value.type;
    if (b.rank() == 0 || b.isEmpty() || b.element != a.element ||
        value.scale > kMaxScale || (matrices && b.rank() != 2))
      return false;
    if (transposeRhs)
      return transposeLhs ? a.leading() == std::vector<Dim>{b.last()}
                          : b.last() == a.last();
    return transposeLhs ? a.leading() == b.leading()
                        : b.leading() == std::vector<Dim>{a.last()};
  };
  std::optional<ValueId> rhs = find(fits);
  if (!rhs)
    return;
  GraphType b = type(*rhs);
  double columns = double(transposeRhs ? b.rows() : b.last().actual);
  double rows = double(transposeLhs ? a.last().actual : a.rows());
  double depth = double(a.elements()) / rows;
  if (rows * columns > 40000 || !affords(rows * columns * depth))
    return;
  // The sum over the rows is large: norms bring it back.
  ValueId y = matmul(lhs, *rhs, transposeLhs, transposeRhs);
  if (scale(y) > kMaxScale && !type(y).last().isFixed())
    return;
  if (scale(y) > kMaxScale || random.chance(0.3))
    if (type(y).last().isFixed())
      norm(y);
}

void FunctionWriter::normStep() {
  ValueId x = anyFloat();
  if (type(x).rank() > 0 && type(x).last().isFixed())
    norm(x);
}

void FunctionWriter::headsStep() {
  if (random.chance(0.4)) {
    mergeHeads(headed());
    return;
  }
  ValueId x = activation();
  int64_t channels = type(x).last().actual;
  std::vector<int64_t> divisors;
  for (int64_t heads = 1; heads <= channels; ++heads)
    if (channels % heads == 0)
      divisors.push_back(heads);
  splitHeads(x, random.pick(divisors));
}

void FunctionWriter::rotaryStep() {
  ValueId x = headed();
  if (type(x).last().actual % 2 == 0)
    rotate(x, random.between(1, 3));
}

void FunctionWriter::gateStep() { gates(activation(), random.between(1, 4)); }

void FunctionWriter::embeddingStep() {
  int64_t vocab = random.between(2, 70);
  std::vector<Dim> shape = {module.batch, module.sequence};
  if (random.chance(0.2))
    shape = {random.between(1, 20)};
  bool outside = random.chance(0.08);
  hasZeroRows |= outside;
  ValueId ids = argument({shape, DataType::I32},
                         {Fill::Ids, outside ? 1.0 : 0.0, vocab}, "ids");
  ValueId table = weight({vocab, width()}, compute, 1.0);
  shape.push_back(type(table).last());
  emit("nn.embedding", {table, ids}, {shape, compute}, 1.0);
}

void FunctionWriter::repeatStep() {
  if (function.ops.empty())
    return;
  GraphOp op = random.pick(function.ops);
  std::vector<ValueId> results;
  for (ValueId old : op.results) {
    GraphValue like = function.values[old];
    function.values.push_back(like);
    results.push_back(static_cast<ValueId>(function.values.size() - 1));
    work += 3.0 * static_cast<double>(like.type.elements());
  }
  op.results = results;
  bool mustShow =
      std::find(exposed.begin(), exposed.end(), op.results[0]) != exposed.end();
  function.ops.push_back(op);
  if (mustShow)
    exposed.push_back(results[0]);
}

void FunctionWriter::layerStep() {
  ValueId x = activation();
  int64_t channels = type(x).last().actual;
  ValueId normed = random.chance(0.9) ? norm(x) : x;
  ValueId mixed = project(mergeHeads(attention(normed)), channels);
  if (type(mixed) == type(x))
    x = add(x, mixed);
  if (random.chance(0.2))
    return;
  normed = random.chance(0.9) ? norm(x) : x;
  ValueId out = feedForward(normed, channels);
  if (type(out) == type(x))
    add(x, out);
}

void FunctionWriter::crossEntropyStep() {
  ValueId x = anyFloat();
  if (type(x).rank() == 0 || !type(x).last().isFixed() ||
      !canBeArgument({type(x).leading(), DataType::I32}))
    return;
  if (type(x).last().actual < 2 || scale(x) > kMaxScale || random.chance(0.5))
    x = project(scale(x) > kMaxScale ? norm(x) : x, random.between(2, 70));
  if (type(x).last().actual >= 2)
    crossEntropy(x);
}

//===----------------------------------------------------------------------===//
// Operations that differentiation makes, written by hand
//===----------------------------------------------------------------------===//

void FunctionWriter::normBackward() {
  ValueId x = anyFloat();
  if (type(x).rank() == 0 || !type(x).last().isFixed() || scale(x) > kMaxScale)
    return;
  ValueId dy = findLike(type(x)).value_or(x);
  ValueId w = vector(type(x).last(), 1.0);
  auto rstd = findLike({type(x).leading(), DataType::F32});
  if (!rstd)
    return;
  double size = scale(dy) * (1.0 + scale(x) * scale(*rstd)) * scale(*rstd);
  emit("nn.rms_norm_backward", {dy, x, w, *rstd}, type(x), size);
  emitStatistic({{type(x).last()}, DataType::F32},
                size * std::sqrt(double(type(x).rows())));
}

void FunctionWriter::gateBackward() {
  auto found = find([&](const GraphValue &value) {
    return value.type.rank() == 4 && value.type.last() == Dim(3) &&
           value.type.element == DataType::F32;
  });
  if (!found || scale(*found) > 1.0)
    return;
  ValueId dy = findLike(type(*found)).value_or(*found);
  std::vector<Dim> shape = type(dy).shape;
  DataType narrow = random.chance(0.5) ? DataType::F32 : DataType::BF16;
  Dim channels = shape[2] * shape[3];
  std::string op = random.chance(0.5) ? "nn.gate_backward sigmoid"
                                      : "nn.gate_backward softmax";
  emit(op, {dy, *found}, {{shape[0], shape[1], channels}, narrow}, scale(dy),
       std::string("logits_type = ") + typeName(narrow));
  emitStatistic({{channels}, DataType::F32},
                scale(dy) *
                    std::sqrt(double(shape[0].actual * shape[1].actual)));
}

void FunctionWriter::lossBackward() {
  ValueId x = anyFloat();
  if (type(x).rank() == 0 || scale(x) > 4.0)
    return;
  GraphType rows{type(x).leading(), DataType::F32};
  auto lse = findLike(rows);
  if (!lse || !type(x).last().isFixed() || !canBeArgument(rows))
    return;
  ValueId targets =
      argument({rows.shape, DataType::I32},
               {Fill::Targets, 0.0, type(x).last().actual}, "targets");
  ValueId loss =
      findLike({{}, DataType::F32}).value_or(weight({}, DataType::F32, 1.0));
  ValueId count =
      argument({{}, DataType::F32}, {Fill::Positive, 1.0, 0}, "count");
  emit("nn.cross_entropy_backward", {loss, x, targets, *lse, count}, type(x),
       scale(loss) * 10.0);
}

void FunctionWriter::backwardStep() {
  ValueId x = anyFloat();
  ValueId y = findLike(type(x)).value_or(x);
  ValueId z = findLike(type(x)).value_or(x);
  switch (random.below(7)) {
  case 0:
    if (scale(x) * scale(y) <= kMaxScale)
      emit("nn.silu_backward", {x, y}, type(x), scale(x) * (1 + scale(y)));
    return;
  case 1:
    if (scale(x) * scale(y) * scale(z) > kMaxScale)
      return;
    emit("nn.swiglu_backward", {x, y, z}, type(x),
         scale(x) * scale(y) * scale(z));
    emitStatistic(type(x), scale(x) * scale(y));
    return;
  case 2:
    return normBackward();
  case 3:
    return gateBackward();
  case 4:
    return lossBackward();
  case 5:
    return compressBackward();
  default:
    break;
  }
  if (type(x).rank() == 0 || !type(x).last().isFixed())
    return;
  GraphType rows{type(x).leading(), DataType::I32};
  if (!canBeArgument(rows))
    return;
  int64_t vocab = random.between(2, 40);
  ValueId ids =
      argument(rows, {Fill::Ids, random.chance(0.2) ? 1.0 : 0.0, vocab}, "ids");
  emit("nn.embedding_backward", {x, ids},
       {{vocab, type(x).last()}, DataType::F32}, scale(x) * 2.0,
       "vocab = " + std::to_string(vocab) + " : i64");
}

//===----------------------------------------------------------------------===//
// Updates of arguments
//===----------------------------------------------------------------------===//

void FunctionWriter::optimizerStep() {
  std::vector<ValueId> gradients;
  for (int64_t count = random.between(1, 4); count > 0; --count) {
    auto found = find([&](const GraphValue &value) {
      return value.type.element == DataType::F32 && canBeArgument(value.type);
    });
    gradients.push_back(found ? *found
                              : weight({width(), width()}, DataType::F32, 1.0));
  }
  ValueId norm = emit("nn.gradient_norm", gradients, {{}, DataType::F32}, 30.0);
  ValueId loss = findLike({{}, DataType::F32}).value_or(norm);
  ValueId hyper =
      argument({{8}, DataType::F32}, {Fill::Hyper, 1.0, 0}, "hyper");
  for (ValueId gradient : gradients) {
    GraphType like = type(gradient);
    ValueId w = weight(like.shape, like.element, 1.0);
    ValueId m = argument(like, {Fill::Normal, 0.1, 0}, "m");
    ValueId v = argument(like, {Fill::Positive, 1.0, 0}, "v");
    ValueId next = emit("nn.adamw", {w, m, v, gradient, norm, loss, hyper},
                        like, 1.0, random.chance(0.5) ? "decay" : "");
    ValueId nextM = emitStatistic(like, 1.0), nextV = emitStatistic(like, 1.0);
    for (Update update : {Update{next, w}, Update{nextM, m}, Update{nextV, v}})
      if (random.chance(0.85))
        updates.push_back(update);
  }
}

void FunctionWriter::stateStep() {
  ValueId x = anyFloat();
  if (!canBeArgument(type(x)) || scale(x) > kMaxScale)
    return;
  ValueId state = argument(type(x), {Fill::Normal, 1.0, 0}, "s");
  ValueId next = random.chance(0.7) ? add(state, x) : x;
  if (random.chance(0.1))
    next = argument(type(x), {Fill::Normal, 1.0, 0}, "s");
  updates.push_back({next, state});
}
