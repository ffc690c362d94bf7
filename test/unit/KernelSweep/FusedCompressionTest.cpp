//===- FusedCompressionTest.cpp - keys and values compressed at once ------===//
//
// What selection reads must not depend on fusion: the fused operations give,
// bit by bit, what the operations give that they stand for. Those are compared
// with the reference by KernelSweepTest and by the Python tests.
//
//===----------------------------------------------------------------------===//

#include "test/unit/CompiledModule.h"

#include <gtest/gtest.h>
#include <random>
#include <sstream>

using namespace nsa;
using namespace nsa::test;
using reference::Tensor;

namespace {

struct Shape {
  std::string kind, element;
  bool positions = false;
  int64_t batch = 2, sequence = 65, heads = 2, dk = 16, dv = 24;
  int64_t block = 8, stride = 4;

  int64_t rows() const {
    return sequence >= block ? (sequence - block) / stride + 1 : 0;
  }
};

std::string tensor(const std::vector<int64_t> &shape,
                   const std::string &element) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + element + ">";
}

/// The operands of compression: k, v, the parameters of both, the table.
struct Operands {
  explicit Operands(const Shape &s);

  void add(const std::string &name, std::vector<int64_t> shape,
           const std::string &element) {
    names.push_back(name);
    shapes.push_back(shape);
    types.push_back(tensor(shape, element));
  }
  /// Those whose names begin so, as " (%a, %b)" or nothing.
  std::string list(const std::string &prefix) const;
  std::string typesOf(const std::string &prefix) const;
  std::string arguments() const;

  std::vector<std::string> names, types;
  std::vector<std::vector<int64_t>> shapes;
  std::string k, v, kc, vc, table;
};

Operands::Operands(const Shape &s) {
  k = tensor({s.batch, s.sequence, s.heads, s.dk}, s.element);
  v = tensor({s.batch, s.sequence, s.heads, s.dv}, s.element);
  kc = tensor({s.batch, s.rows(), s.heads, s.dk}, s.element);
  vc = tensor({s.batch, s.rows(), s.heads, s.dv}, s.element);
  table = tensor({s.sequence, s.dk / 2, 2}, "f32");
  add("k", {s.batch, s.sequence, s.heads, s.dk}, s.element);
  add("v", {s.batch, s.sequence, s.heads, s.dv}, s.element);
  add("dkc", {s.batch, s.rows(), s.heads, s.dk}, s.element);
  add("dvc", {s.batch, s.rows(), s.heads, s.dv}, s.element);
  add("table", {s.sequence, s.dk / 2, 2}, "f32");
  for (auto [prefix, width] : {std::pair("pk", s.dk), std::pair("pv", s.dv)}) {
    std::string name = prefix;
    if (s.kind != "mean")
      add(name + "0", {s.heads, s.block * width, width}, s.element);
    if (s.kind == "mlp")
      add(name + "1", {s.heads, width, width}, s.element);
    if (s.positions)
      add(name + "2", {s.heads, s.block, width}, s.element);
  }
}

std::string Operands::list(const std::string &prefix) const {
  std::string text;
  for (const std::string &name : names)
    if (name.rfind(prefix, 0) == 0)
      text += (text.empty() ? "%" : ", %") + name;
  return text;
}

std::string Operands::typesOf(const std::string &prefix) const {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i].rfind(prefix, 0) == 0)
      text += ", " + types[i];
  return text;
}

std::string Operands::arguments() const {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i ? ", %" : "%") + names[i] + ": " + types[i] + " {nn.name = \"" +
            names[i] + "\", nn.role = \"input\"}";
  return text;
}

/// The entries "both" and "each", with results "both.0", "each.0", ...
std::string moduleText(const Shape &s, const Operands &in) {
  std::string sizes = "{block = " + std::to_string(s.block) +
                      " : i64, stride = " + std::to_string(s.stride) +
                      " : i64}";
  std::string pk = in.list("pk"), pv = in.list("pv");
  std::vector<std::string> results = {in.kc, in.vc, in.k, in.v};
  std::string gradTypes;
  for (size_t i = 0; i < in.names.size(); ++i)
    if (in.names[i][0] == 'p') {
      results.push_back(tensor(in.shapes[i], "f32"));
      gradTypes += ", " + results.back();
    }
  size_t parameters = results.size() - 4;
  auto inParentheses = [](const std::string &list) {
    return list.empty() ? "" : " (" + list + ")";
  };
  auto after = [](const std::string &list) {
    return list.empty() ? "" : ", " + list;
  };
  auto write = [&](const std::string &name, const std::string &body) {
    std::string outs, values, types;
    for (size_t i = 0; i < results.size(); ++i) {
      std::string comma = i ? ", " : "";
      outs += comma + results[i] + " {nn.name = \"" + name + "." +
              std::to_string(i) + "\"}";
      values += comma + "%r" + std::to_string(i);
      types += comma + results[i];
    }
    return "func.func @" + name + "(" + in.arguments() + ") -> (" + outs +
           ") {\n" + body + "  return " + values + " : " + types + "\n}\n";
  };
  std::string grads, keyGrads, valueGrads, keyTypes, valueTypes;
  for (size_t i = 0; i < parameters; ++i) {
    std::string value = ", %r" + std::to_string(4 + i);
    grads += value;
    (i < parameters / 2 ? keyGrads : valueGrads) += value;
    (i < parameters / 2 ? keyTypes : valueTypes) += ", " + results[4 + i];
  }
  std::string both =
      "  %r0, %r1 = nsa.compress_key_value " + s.kind + " %k" +
      inParentheses(pk) + ", %v" + inParentheses(pv) + " rotary %table " +
      sizes + " : (" + in.k + ", " + in.v + in.typesOf("p") + ", " + in.table +
      ") -> (" + in.kc + ", " + in.vc + ")\n  %r2, %r3" + grads +
      " = nsa.compress_key_value_backward " + s.kind + " %dkc, %dvc, %k" +
      inParentheses(pk) + ", %v" + inParentheses(pv) + " " + sizes + " : (" +
      in.kc + ", " + in.vc + ", " + in.k + ", " + in.v + in.typesOf("p") +
      ") -> (" + in.k + ", " + in.v + gradTypes + ")\n";
  std::string each =
      "  %kc = nsa.compress " + s.kind + " %k" + after(pk) + " " + sizes +
      " : (" + in.k + in.typesOf("pk") + ") -> " + in.kc +
      "\n  %r0 = nn.rotary %kc, %table {stride = " + std::to_string(s.stride) +
      " : i64} : (" + in.kc + ", " + in.table + ") -> " + in.kc +
      "\n  %r1 = nsa.compress " + s.kind + " %v" + after(pv) + " " + sizes +
      " : (" + in.v + in.typesOf("pv") + ") -> " + in.vc + "\n  %r2" +
      keyGrads + " = nsa.compress_backward " + s.kind + " %dkc, %k" +
      after(pk) + " " + sizes + " : (" + in.kc + ", " + in.k +
      in.typesOf("pk") + ") -> (" + in.k + keyTypes + ")\n  %r3" + valueGrads +
      " = nsa.compress_backward " + s.kind + " %dvc, %v" + after(pv) + " " +
      sizes + " : (" + in.vc + ", " + in.v + in.typesOf("pv") + ") -> (" +
      in.v + valueTypes + ")\n";
  return write("both", both) + write("each", each);
}

void check(const Shape &s) {
  Operands in(s);
  std::string text = moduleText(s, in);
  Result<CompiledModule> loaded = CompiledModule::load(text);
  ASSERT_TRUE(bool(loaded)) << loaded.message() << "\n" << text;
  std::mt19937_64 random(testSeed());
  std::normal_distribution<double> distribution;
  for (size_t i = 0; i < in.names.size(); ++i) {
    Tensor value(in.shapes[i]);
    for (double &x : value.data)
      x = distribution(random);
    loaded->set(in.names[i], value);
  }
  loaded->run("both");
  loaded->run("each");
  size_t results = 4;
  for (const std::string &name : in.names)
    results += name[0] == 'p';
  for (size_t i = 0; i < results; ++i) {
    Tensor both = loaded->get("both." + std::to_string(i));
    EXPECT_EQ(both.data, loaded->get("each." + std::to_string(i)).data)
        << s.kind << " " << s.element << " S=" << s.sequence << " result " << i;
    for (double x : both.data)
      ASSERT_TRUE(std::isfinite(x));
  }
}

} // namespace

TEST(FusedCompression, KeysAndValues_AreBitwiseThoseApart) {
  for (const char *element : {"f32", "bf16"}) {
    check({"mean", element});
    check({"linear", element});
    check({"mlp", element, /*positions=*/true});
  }
}

TEST(FusedCompression, ShortSequence_HasNoRows) {
  Shape s = {"mean", "f32"};
  s.sequence = 7;
  check(s);
  s.kind = "linear";
  s.positions = true;
  check(s);
}
