//===- WriterAttention.cpp - attention of random legal parameters ---------===//

#include "test/unit/RandomModules/Writer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace nsa;
using namespace nsa::test;

struct FunctionWriter::Geometry {
  int64_t kvHeads = 1, group = 1, dk = 16, dv = 16;
  int64_t l = 8, d = 4, lSel = 16, count = 4, window = 16;
  int64_t initial = 1, local = 2;

  int64_t heads() const { return kvHeads * group; }
  std::string blocks() const {
    return "block = " + std::to_string(l) +
           " : i64, stride = " + std::to_string(d) + " : i64";
  }
  int64_t compressed(int64_t sequence) const {
    return sequence >= l ? (sequence - l) / d + 1 : 0;
  }
  Dim compressed(const Dim &sequence) const {
    return {compressed(sequence.written), compressed(sequence.actual)};
  }
};

static std::string attribute(const char *key, int64_t value) {
  return std::string(key) + " = " + std::to_string(value) + " : i64";
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

FunctionWriter::Geometry FunctionWriter::chooseGeometry() {
  Geometry g;
  g.kvHeads = random.between(1, 3);
  g.group = random.pick(std::vector<int64_t>{1, 1, 2, 2, 3, 4, 5, 8});
  auto headWidth = [&] {
    return random.chance(0.4)   ? 16
           : random.chance(0.8) ? random.between(1, 33)
                                : random.pick(std::vector<int64_t>{32, 48, 64});
  };
  g.dk = headWidth();
  g.dv = random.chance(0.5) ? g.dk : headWidth();
  // d divides l and l', and l <= l'.
  g.d = random.pick(std::vector<int64_t>{1, 2, 3, 4, 4, 5, 8, 8, 16});
  g.l = g.d * random.between(1, 4);
  g.lSel = g.l + g.d * random.pick(std::vector<int64_t>{0, 0, 1, 2, 4});
  int64_t sequence = module.sequence.actual;
  int64_t blocks = (sequence + g.lSel - 1) / g.lSel;
  g.count =
      random.chance(0.2) ? blocks + random.between(0, 3) : random.between(1, 5);
  g.window = random.chance(0.2) ? sequence + random.between(0, 9)
                                : random.between(1, 40);
  g.initial = random.chance(0.7) ? 1 : random.between(0, 2);
  g.local = random.chance(0.7) ? 2 : random.between(1, 3);
  return g;
}

FunctionWriter::Geometry FunctionWriter::chooseGeometry(ValueId q) {
  Geometry g = chooseGeometry();
  int64_t heads = type(q).shape[2].actual;
  while (heads % g.kvHeads != 0)
    --g.kvHeads;
  g.group = heads / g.kvHeads;
  g.dk = type(q).last().actual;
  return g;
}

//===----------------------------------------------------------------------===//
// Heads, keys and gates
//===----------------------------------------------------------------------===//

ValueId FunctionWriter::heads(ValueId x, int64_t count, int64_t width) {
  GraphType wanted{{module.batch, module.sequence, count, width}, element(x)};
  std::optional<ValueId> found;
  if (random.chance(0.2))
    found = findLike(wanted);
  if (found && scale(*found) <= 4.0)
    return *found;
  if (random.chance(0.15) ||
      !affords(double(type(x).elements() * count * width)))
    return argument(wanted, {Fill::Normal, 1.0, 0}, "h");
  ValueId projected = project(x, count * width);
  if (type(projected).element != wanted.element ||
      type(projected).last().actual != count * width)
    return argument(wanted, {Fill::Normal, 1.0, 0}, "h");
  ValueId split = splitHeads(projected, count);
  if (width % 2 == 0 && random.chance(0.3))
    split = rotate(split, 1);
  return split;
}

ValueId FunctionWriter::compress(ValueId x, const Geometry &g) {
  GraphType compressed = type(x);
  int64_t heads = compressed.shape[2].actual, width = compressed.last().actual;
  compressed.shape[1] = g.compressed(compressed.shape[1]);
  double work = double(compressed.elements() * g.l * width);
  if (random.chance(0.5) || !affords(work))
    return emit("nsa.compress mean", {x}, compressed, scale(x), g.blocks());
  auto matrices = [&](int64_t depth) {
    return weight({heads, depth, width}, element(x),
                  1.0 / std::sqrt(double(depth)));
  };
  std::vector<ValueId> operands = {x, matrices(g.l * width)};
  bool hidden = random.chance(0.5);
  if (hidden)
    operands.push_back(matrices(width));
  if (random.chance(0.5))
    operands.push_back(weight({heads, g.l, width}, element(x), 0.5));
  return emit(hidden ? "nsa.compress mlp" : "nsa.compress linear", operands,
              compressed, scale(x), g.blocks());
}

ValueId FunctionWriter::gates(ValueId x, int64_t heads) {
  GraphType wanted{{module.batch, module.sequence, heads, 3}, DataType::F32};
  if (random.chance(0.15))
    if (auto found = findLike(wanted); found && scale(*found) <= 4.0)
      return *found;
  ValueId logits = project(x, 3 * heads);
  if (type(logits).last().actual != 3 * heads)
    return argument(wanted, {Fill::Normal, 1.0, 0}, "g");
  std::vector<ValueId> operands = {logits};
  if (random.chance(0.6))
    operands.push_back(vector(3 * heads, 0.5));
  return emit(random.chance(0.6) ? "nn.gate sigmoid" : "nn.gate softmax",
              operands, wanted, 0.5);
}

//===----------------------------------------------------------------------===//
// Branches
//===----------------------------------------------------------------------===//

FunctionWriter::Attended FunctionWriter::attend(const std::string &op,
                                                std::vector<ValueId> operands,
                                                const Geometry &g, double keys,
                                                const std::string &attributes) {
  ValueId q = operands[0], v = operands[2];
  GraphType output = type(q), lse = type(q);
  output.shape.back() = type(v).last();
  lse.shape = {output.shape[0], output.shape[2], output.shape[1]};
  lse.element = DataType::F32;
  work += double(type(q).rows()) * keys * double(g.dk + g.dv);
  std::string all = attributes;
  if (random.chance(0.15))
    all += ", scale = 2.500000e-01 : f64";
  Attended attended;
  attended.output = emit(op, operands, output, scale(v), all);
  attended.lse = emitStatistic(lse, 2.0);
  return attended;
}

ValueId FunctionWriter::select(ValueId q, ValueId keys, ValueId lse,
                               const Geometry &g) {
  GraphType indices{{module.batch, g.kvHeads, module.sequence, g.count},
                    DataType::I32};
  ValueId chosen = emit("nsa.select", {q, keys, lse}, indices, 0.0,
                        g.blocks() + ", " + attribute("select_block", g.lSel) +
                            ", " + attribute("count", g.count) + ", " +
                            attribute("initial", g.initial) + ", " +
                            attribute("local", g.local));
  function.ops.back().activeOperand = -2;
  // A choice among blocks of nearly equal score is one that bf16 may change.
  bool narrow = element(q) == DataType::BF16 ||
                (kind == Kind::Training && module.options.precision == "bf16");
  if (narrow || random.chance(0.2))
    exposed.push_back(chosen);
  return chosen;
}

FunctionWriter::Attended
FunctionWriter::compressedBranch(ValueId x, ValueId q, const Geometry &g,
                                 std::optional<ValueId> &keys) {
  Dim rows = g.compressed(module.sequence);
  bool asArgument = rows.isFixed() && random.chance(0.15);
  auto compressed = [&](int64_t width) {
    if (asArgument)
      return argument({{module.batch, rows, g.kvHeads, width}, element(q)},
                      {Fill::Normal, 1.0, 0}, "c");
    return compress(heads(x, g.kvHeads, width), g);
  };
  keys = compressed(g.dk);
  if (g.dk % 2 == 0 && random.chance(0.4))
    keys = rotate(*keys, g.d);
  ValueId values = compressed(g.dv);
  Attended attended = attend("nsa.compressed_attention", {q, *keys, values}, g,
                             double(rows.actual) / 2, g.blocks());
  function.values[attended.lse].mayBeInfinite = true;
  return attended;
}

ValueId FunctionWriter::selectedBranch(ValueId x, ValueId q,
                                       const Geometry &g) {
  std::optional<ValueId> keys;
  ValueId indices;
  int64_t sequence = module.sequence.actual;
  int64_t blocks = (sequence + g.lSel - 1) / g.lSel;
  bool competes = blocks > g.count && g.count > g.initial + g.local;
  if (random.chance(0.3) || (competes && hasZeroRows)) {
    indices = argument(
        {{module.batch, g.kvHeads, module.sequence, g.count}, DataType::I32},
        {Fill::Indices, 0.0, g.lSel}, "indices");
  } else {
    Attended cmp = compressedBranch(x, q, g, keys);
    indices = select(q, *keys, cmp.lse, g);
  }
  ValueId k = heads(x, g.kvHeads, g.dk), v = heads(x, g.kvHeads, g.dv);
  double reach = double(std::min(g.count * g.lSel, sequence));
  return attend("nsa.selected_attention", {q, k, v, indices}, g, reach,
                attribute("select_block", g.lSel))
      .output;
}

ValueId FunctionWriter::windowBranch(ValueId x, ValueId q, const Geometry &g) {
  ValueId k = heads(x, g.kvHeads, g.dk), v = heads(x, g.kvHeads, g.dv);
  double reach = double(std::min(g.window, module.sequence.actual));
  return attend("nsa.window_attention", {q, k, v}, g, reach,
                attribute("window", g.window))
      .output;
}

/// One branch, or the combination of all three.
ValueId FunctionWriter::attention(ValueId x) {
  if (scale(x) > 4.0)
    x = norm(x);
  Geometry g = chooseGeometry();
  ValueId q = heads(x, g.heads(), g.dk);
  if (work > 1e6 || random.chance(0.3))
    return windowBranch(x, q, g);
  std::optional<ValueId> keys;
  if (random.chance(0.2))
    return compressedBranch(x, q, g, keys).output;
  if (random.chance(0.2))
    return selectedBranch(x, q, g);
  if (random.chance(0.5)) {
    // The whole operation: the compressed branch also selects.
    Attended cmp = compressedBranch(x, q, g, keys);
    int64_t sequence = module.sequence.actual;
    int64_t blocks = (sequence + g.lSel - 1) / g.lSel;
    if (hasZeroRows && g.count < blocks)
      g.count = blocks;
    ValueId indices = select(q, *keys, cmp.lse, g);
    ValueId k = heads(x, g.kvHeads, g.dk), v = heads(x, g.kvHeads, g.dv);
    ValueId slc = attend("nsa.selected_attention", {q, k, v, indices}, g,
                         double(std::min(g.count * g.lSel, sequence)),
                         attribute("select_block", g.lSel))
                      .output;
    ValueId win = windowBranch(x, q, g);
    ValueId gate = gates(x, g.heads());
    return emit("nsa.combine", {gate, cmp.output, slc, win}, type(win), 1.0);
  }
  // Any three branches, some of them the same.
  std::vector<ValueId> branches = {windowBranch(x, q, g)};
  branches.push_back(random.chance(0.5) ? compressedBranch(x, q, g, keys).output
                                        : branches[0]);
  branches.push_back(random.chance(0.5) ? selectedBranch(x, q, g)
                                        : random.pick(branches));
  ValueId gate = gates(x, g.heads());
  return emit("nsa.combine",
              {gate, random.pick(branches), random.pick(branches),
               random.pick(branches)},
              type(branches[0]), 1.0);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void FunctionWriter::compressStep() {
  ValueId x = headed();
  compress(x, chooseGeometry(x));
}

void FunctionWriter::compressBackward() {
  ValueId x = headed();
  Geometry g = chooseGeometry(x);
  GraphType compressed = type(compress(x, g));
  GraphOp forward = function.ops.back();
  auto dy = findLike(compressed);
  if (!dy)
    return;
  std::vector<ValueId> operands = {*dy, x};
  operands.insert(operands.end(), forward.operands.begin() + 1,
                  forward.operands.end());
  std::string kind = forward.name.substr(forward.name.find(' '));
  emit("nsa.compress_backward" + kind, operands, type(x), scale(*dy),
       forward.attributes);
  for (size_t i = 2; i < operands.size(); ++i)
    emitStatistic({type(operands[i]).shape, DataType::F32},
                  std::sqrt(double(compressed.shape[1].actual)));
}

void FunctionWriter::attentionStep() {
  ValueId x = activation();
  if (work > 1e6)
    return;
  if (random.chance(0.3)) {
    // From a query that is there.
    ValueId q = headed();
    if (scale(q) <= 4.0 && element(q) == element(x) && scale(x) <= 4.0) {
      Geometry g = chooseGeometry(q);
      random.chance(0.5) ? windowBranch(x, q, g) : selectedBranch(x, q, g);
      return;
    }
  }
  attention(x);
}
