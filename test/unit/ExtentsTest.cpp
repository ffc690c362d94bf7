//===- ExtentsTest.cpp - one artefact for every batch and length ----------===//
//
// Modules with `?` for batch and sequence, compiled once, against modules with
// numbers: every output has the same bits where the tiles are the same.
//
//===----------------------------------------------------------------------===//

#include "test/unit/OpenModule.h"

#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;

namespace {

const std::vector<Shape> manyShapes = {{1, 64}, {3, 65}, {2, 127}, {1, 200}};

const OpenTypes types(2, 16, "f32");

/// Tiles of `size` queries and keys.
std::vector<std::string> tilesOf(int size) {
  std::vector<std::string> tiles;
  for (const char *name :
       {"forward-queries", "forward-keys", "backward-queries", "backward-keys"})
    tiles.push_back(name + ("=" + std::to_string(size)));
  return tiles;
}

OpenModule allBranches() {
  return openBranches(types, {"q", "k", "v", "gates"});
}

} // namespace

TEST(Extents, ElementwiseAnyShapeHasBitsOfFixedShape) {
  const std::string &q = types.q;
  checkOpen({{{"x", q}, {"y", q}},
             {{"z", q}},
             "  %s = nn.silu %x : (" + q + ") -> " + q +
                 "\n  %z = nn.add %s, %y : (" + q + ", " + q + ") -> " + q +
                 "\n"},
            {{{1, 1}, {2, 3}, {5, 77}, {1, 1000}}});
}

TEST(Extents, WindowAttentionAnyShapeHasBitsOfFixedShape) {
  checkOpen(openAttention(types, "#nsa.window<32>"),
            {manyShapes, {}, tilesOf(32)});
}

TEST(Extents, CausalAttentionAnyShapeHasBitsOfFixedShape) {
  checkOpen(openAttention(types, "#nsa.causal"), {manyShapes, {}, tilesOf(64)});
}

TEST(Extents, GradientsLongSequencesHaveBitsOfFixedShape) {
  checkOpen(allBranches(), {{{1, 4201}}});
}

TEST(Extents, GradientsShortSequencesHaveNumbersOfFixedShape) {
  OpenCheck check = {{{1, 1}, {3, 8}, {2, 33}}};
  check.tolerance = 1e-5;
  checkOpen(allBranches(), check);
}

TEST(Extents, CompressedKeysAsArgumentsHaveBitsOfFixedShape) {
  const std::string &q = types.q, &kc = types.compressed, &lse = types.lse;
  std::string blocks = "block = 8 : i64, stride = 4 : i64";
  OpenModule module = {
      {{"q", q}, {"kc", kc}, {"vc", kc}},
      {{"oc", q}, {"lc", lse}, {"i", types.indices}},
      "  %oc, %lc = nsa.compressed_attention %q, %kc, %vc {" + blocks +
          "} : (" + q + ", " + kc + ", " + kc + ") -> (" + q + ", " + lse +
          ")\n  %i = nsa.select %q, %kc, %lc {" + blocks +
          ", select_block = 16 : i64, count = 4 : i64} : (" + q + ", " + kc +
          ", " + lse + ") -> " + types.indices + "\n"};
  std::vector<std::string> tiles = tilesOf(16);
  tiles.push_back("select-blocks=2");
  checkOpen(module, {{{1, 7}, {2, 33}, {1, 200}}, tiles});
}

// Short sequences have fewer parts of the gradient of a weight.
TEST(Extents, RowsHaveBitsOfFixedShape) {
  OpenModule module = {
      {{"x", "tensor<BxTx24xf32>"},
       {"w", "tensor<24xf32>"},
       {"l", "tensor<BxTx12xf32>"}},
      {{"y", "tensor<BxTx24xf32>"}, {"g", "tensor<BxTx4x3xf32>"}},
      "  %y, %r = nn.rms_norm %x, %w {eps = 1.0e-5 : f64} : "
      "(tensor<BxTx24xf32>, tensor<24xf32>) -> (tensor<BxTx24xf32>, "
      "tensor<BxTxf32>)\n  %g = nn.gate softmax %l : "
      "(tensor<BxTx12xf32>) -> tensor<BxTx4x3xf32>\n"};
  OpenCheck check = {{{1, 1}, {3, 70}, {2, 1000}}};
  checkOpen(module, check);
  module.by = {"x", "w"};
  check.tolerance = 1e-5;
  checkOpen(module, check);
}

TEST(Extents, RotaryAnyShapeHasBitsOfFixedShape) {
  std::string table = "tensor<Tx8x2xf32>";
  OpenModule module = {{{"x", types.q}, {"table", table}},
                       {{"y", types.q}},
                       "  %y = nn.rotary %x, %table : (" + types.q + ", " +
                           table + ") -> " + types.q + "\n",
                       {"x"}};
  checkOpen(module, {{{1, 1}, {3, 65}}});
}

TEST(Extents, RotaryGradientsHaveNumbersOfFixedShape) {
  OpenCheck check = {{{2, 33}}};
  check.tolerance = 1e-5;
  checkOpen(openRotaryBranches(types, 16, {"q", "k", "v", "gates"}), check);
}

TEST(Extents, EmptyTensorsRun) { checkEmpty(allBranches(), {}, "grad.q"); }

TEST(Extents, ShapesOfTensorsGiveTheExtents) {
  Result<Artifact> open = compileOpen(openAttention(types, "#nsa.causal"));
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
