//===- ExtentsTest.cpp - one artefact for every batch and length ----------===//
//
// Modules with `?` for batch and sequence, compiled once, against modules with
// numbers: every output has the same bits where the tiles are the same.
//
//===----------------------------------------------------------------------===//

#include "test/unit/CompiledModule.h"

#include <gtest/gtest.h>
#include <random>

using namespace nsa;
using namespace nsa::test;
using reference::Tensor;

namespace {

struct Shape {
  uint64_t batch, sequence;
};

/// An argument or result: its name and its type, where B, T and N stand for the
/// batch, the length and the number of compressed blocks.
struct Named {
  std::string name, type;
};

/// A function with `?`, or with numbers.
struct Module {
  std::vector<Named> in, out;
  std::string body;
  /// Arguments to differentiate by; none for forward alone.
  std::vector<std::string> by = {};
  uint64_t block = 8, stride = 4;

  uint64_t blocks(uint64_t sequence) const {
    return sequence < block ? 0 : (sequence - block) / stride + 1;
  }
  std::string fill(const std::string &text,
                   std::optional<Shape> shape = std::nullopt) const {
    std::string filled;
    for (size_t i = 0; i < text.size(); ++i) {
      bool isLetter = i + 1 < text.size() && text[i + 1] == 'x' && i > 0 &&
                      (text[i - 1] == '<' || text[i - 1] == 'x');
      char c = isLetter ? text[i] : ' ';
      if (c != 'B' && c != 'T' && c != 'N')
        filled += text[i];
      else if (!shape)
        filled += '?';
      else
        filled += std::to_string(c == 'B'   ? shape->batch
                                 : c == 'T' ? shape->sequence
                                            : blocks(shape->sequence));
    }
    return filled;
  }
  std::string text(std::optional<Shape> shape = std::nullopt) const {
    auto contains = [&](const std::string &name) {
      return std::find(by.begin(), by.end(), name) != by.end();
    };
    std::string text = "func.func @f(", types, values;
    for (const Named &one : in)
      text += (text.back() == '(' ? "%" : ", %") + one.name + ": " + one.type +
              " {nn.name = \"" + one.name + "\"" +
              (contains(one.name) ? ", nn.differentiate" : "") + "}";
    text += ") -> (";
    for (const Named &one : out) {
      bool isFirst = text.back() == '(';
      text += (isFirst ? "" : ", ") + one.type + " {nn.name = \"" + one.name +
              "_out\"" + (isFirst && !by.empty() ? ", nn.objective" : "") + "}";
      types += (types.empty() ? "" : ", ") + one.type;
      values += (values.empty() ? "%" : ", %") + one.name;
    }
    text += ") {\n" + body + "  return " + values + " : " + types + "\n}\n";
    return fill(text, shape);
  }
};

/// Values that depend on the name alone, and on the place in the shape.
Tensor makeInput(const TensorView &view) {
  std::mt19937_64 random(std::hash<std::string>()(view.name));
  std::normal_distribution<double> normal;
  Tensor value(std::vector<int64_t>(view.shape.begin(), view.shape.end()));
  for (double &x : value.data)
    x = normal(random);
  return value;
}

void setInputs(CompiledModule &module) {
  for (const TensorView &view : module.getProgram().tensors())
    if (view.role == TensorRole::Input)
      module.set(view.name, makeInput(view));
}

Result<Artifact> compileOpen(const Module &module) {
  CompilerOptions options;
  options.allowSlowPaths = {"all"};
  Result<CompiledArtifact> compiled = compileHere(module.text(), options);
  if (!compiled)
    return compiled.takeError();
  return Artifact::fromBytes(compiled->bytes.data(), compiled->bytes.size());
}

/// Numbers in place of `?`, with tiles of `tile` queries and keys, or those
/// that the compiler chooses for 0.
Result<CompiledModule> loadFixed(const Module &module, Shape shape, int tile) {
  CompilerOptions options;
  if (tile)
    for (const char *name : {"forward-queries", "forward-keys",
                             "backward-queries", "backward-keys"})
      options.tileSizes.push_back(name + ("=" + std::to_string(tile)));
  return CompiledModule::load(module.text(shape), options);
}

enum class Compare { Bits, Numbers };

void expectAlike(const std::string &name, const Tensor &own,
                 const Tensor &fixed, Compare compare) {
  if (compare == Compare::Bits) {
    EXPECT_TRUE(isSame(own, fixed)) << name;
    return;
  }
  ASSERT_EQ(own.shape, fixed.shape) << name;
  // Inputs are about 1.
  double most = 1, difference = 0;
  for (size_t i = 0; i < own.data.size(); ++i) {
    if (own.data[i] == fixed.data[i])
      continue;
    most = std::max(most, std::abs(fixed.data[i]));
    difference = std::max(difference, std::abs(own.data[i] - fixed.data[i]));
  }
  EXPECT_LE(difference, 1e-5 * most) << name;
}

/// Runs one artefact at all shapes and compares with one artefact each.
void check(const Module &module, const std::vector<Shape> &shapes, int tile = 0,
           Compare compare = Compare::Bits) {
  Result<Artifact> open = compileOpen(module);
  ASSERT_TRUE(bool(open)) << open.message() << "\n" << module.text();
  ASSERT_TRUE(open->needsExtents());
  for (Shape shape : shapes) {
    SCOPED_TRACE("batch " + std::to_string(shape.batch) + ", sequence " +
                 std::to_string(shape.sequence));
    Result<Artifact> artifact =
        open->withExtents({shape.batch, shape.sequence});
    ASSERT_TRUE(bool(artifact)) << artifact.message();
    Result<CompiledModule> own = CompiledModule::load(*artifact);
    ASSERT_TRUE(bool(own)) << own.message();
    Result<CompiledModule> fixed = loadFixed(module, shape, tile);
    ASSERT_TRUE(bool(fixed)) << fixed.message() << module.text(shape);
    setInputs(*own);
    setInputs(*fixed);
    own->run("f");
    fixed->run("f");
    for (const TensorView &view : fixed->getProgram().tensors())
      if (view.role == TensorRole::Output)
        expectAlike(view.name, own->get(view.name), fixed->get(view.name),
                    compare);
  }
}

const std::vector<Shape> manyShapes = {{1, 64}, {3, 65}, {2, 127}, {1, 200}};

std::string q = "tensor<BxTx4x16xf32>", k = "tensor<BxTx2x16xf32>";
std::string lse = "tensor<Bx4xTxf32>", kc = "tensor<BxNx2x16xf32>";
std::string indices = "tensor<Bx2xTx4xi32>", gates = "tensor<BxTx4x3xf32>";

Module attention(const std::string &visibility) {
  return {{{"q", q}, {"k", k}, {"v", k}},
          {{"o", q}, {"lse", lse}},
          "  %o, %lse = nsa.attention %q, %k, %v visible(" + visibility +
              ") : " + q + ", " + k + ", " + k + "\n"};
}

/// All branches with their gates, and the gradients of everything. What of it
/// is fused is the compiler's affair.
Module allBranches() {
  std::string blocks = "{block = 8 : i64, stride = 4 : i64}";
  std::string qkv = q + ", " + k + ", " + k;
  Module module = {
      {{"q", q}, {"k", k}, {"v", k}, {"gates", gates}},
      {{"z", q}},
      "  %kc = nsa.compress mean %k " + blocks + " : (" + k + ") -> " + kc +
          "\n  %vc = nsa.compress mean %v " + blocks + " : (" + k + ") -> " +
          kc + "\n  %oc, %lc = nsa.compressed_attention %q, %kc, %vc " +
          blocks + " : (" + q + ", " + kc + ", " + kc + ") -> (" + q + ", " +
          lse +
          ")\n  %i = nsa.select %q, %kc, %lc {block = 8 : i64, stride = "
          "4 : i64, select_block = 16 : i64, count = 4 : i64} : (" +
          q + ", " + kc + ", " + lse + ") -> " + indices +
          "\n  %os, %ls = nsa.selected_attention %q, %k, %v, %i "
          "{select_block = 16 : i64} : (" +
          qkv + ", " + indices + ") -> (" + q + ", " + lse +
          ")\n  %ow, %lw = nsa.window_attention %q, %k, %v {window = 32 : "
          "i64} : (" +
          qkv + ") -> (" + q + ", " + lse +
          ")\n  %o = nsa.combine %gates, %oc, %os, %ow : (" + gates + ", " + q +
          ", " + q + ", " + q + ") -> " + q + "\n  %z = nn.silu %o : (" + q +
          ") -> " + q + "\n"};
  module.by = {"q", "k", "v", "gates"};
  return module;
}

} // namespace

TEST(Extents, ElementwiseAnyShapeHasBitsOfFixedShape) {
  check({{{"x", q}, {"y", q}},
         {{"z", q}},
         "  %s = nn.silu %x : (" + q + ") -> " + q +
             "\n  %z = nn.add %s, %y : (" + q + ", " + q + ") -> " + q + "\n"},
        {{1, 1}, {2, 3}, {5, 77}, {1, 1000}});
}

TEST(Extents, WindowAttentionAnyShapeHasBitsOfFixedShape) {
  check(attention("#nsa.window<32>"), manyShapes, /*tile=*/32);
}

TEST(Extents, CausalAttentionAnyShapeHasBitsOfFixedShape) {
  check(attention("#nsa.causal"), manyShapes, /*tile=*/64);
}

TEST(Extents, GradientsLongSequencesHaveBitsOfFixedShape) {
  check(allBranches(), {{1, 4201}});
}

TEST(Extents, GradientsShortSequencesHaveNumbersOfFixedShape) {
  check(allBranches(), {{1, 1}, {3, 8}, {2, 33}}, /*tile=*/0, Compare::Numbers);
}

TEST(Extents, EmptyTensorsRun) {
  Result<Artifact> open = compileOpen(allBranches());
  ASSERT_TRUE(bool(open)) << open.message();
  for (Shape shape : {Shape{0, 5}, Shape{3, 0}}) {
    Result<Artifact> artifact =
        open->withExtents({shape.batch, shape.sequence});
    ASSERT_TRUE(bool(artifact)) << artifact.message();
    Result<CompiledModule> module = CompiledModule::load(*artifact);
    ASSERT_TRUE(bool(module)) << module.message();
    module->run("f");
    EXPECT_TRUE(module->get("grad.q").data.empty());
  }
}

TEST(Extents, ShapesOfTensorsGiveTheExtents) {
  Result<Artifact> open = compileOpen(attention("#nsa.causal"));
  ASSERT_TRUE(bool(open)) << open.message();
  EXPECT_EQ(open->extentNames(), (std::vector<std::string>{"batch", "seq"}));
  Result<Program> program = Program::create(*open);
  ASSERT_FALSE(bool(program));
  EXPECT_NE(program.message().find("'batch', 'seq' are not given"),
            std::string::npos)
      << program.message();
  Result<Artifact> given = open->withShapes({{"q", {2, 9, 4, 16}}});
  ASSERT_TRUE(bool(given)) << given.message();
  EXPECT_FALSE(given->needsExtents());
  EXPECT_FALSE(bool(given->withExtents({2, 9})));
  Result<Artifact> torn =
      open->withShapes({{"q", {2, 9, 4, 16}}, {"k", {2, 8, 2, 16}}});
  ASSERT_FALSE(bool(torn));
  EXPECT_NE(torn.message().find("'seq' is 9 in 'q', but 8 in 'k'"),
            std::string::npos)
      << torn.message();
  EXPECT_FALSE(bool(open->withShapes({})));
  Result<Artifact> large = open->withExtents({1u << 20, 1u << 20});
  ASSERT_FALSE(bool(large));
  EXPECT_NE(large.message().find("batch 1048576, seq 1048576"),
            std::string::npos)
      << large.message();
}
