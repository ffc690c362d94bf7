//===- OracleTest.cpp - the oracle notices what is wrong ------------------===//

#include "test/unit/RandomModules/Oracle.h"
#include "dialects/NN/NNDialect.h"
#include "dialects/NSA/NSADialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "test/unit/CompiledModule.h"
#include "test/unit/RandomModules/Check.h"
#include "test/unit/RandomModules/Writer.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

namespace {
/// A function in its own context.
class OracleTest : public testing::Test {
protected:
  OracleTest() {
    context.loadDialect<mlir::func::FuncDialect, NSADialect, nn::NNDialect>();
  }

  mlir::func::FuncOp parse(const char *text) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module);
    return *module->getOps<mlir::func::FuncOp>().begin();
  }

  Tensor normal(std::vector<int64_t> shape) {
    Tensor tensor(std::move(shape));
    std::normal_distribution<double> distribution;
    for (double &x : tensor.data)
      x = distribution(random);
    return tensor;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::mt19937_64 random{testSeed()};
};
} // namespace

// One kernel in fp32 may be off by about 1e-5 of the largest element, a chain
// by not much more, and what is left of a cancellation by what was cancelled.
TEST_F(OracleTest, Tolerances_FollowTheErrorsOfKernels) {
  Oracle one(parse("func.func @f(%x: tensor<64xf32>) -> tensor<64xf32> {\n"
                   "  %y = nn.silu %x : (tensor<64xf32>) -> tensor<64xf32>\n"
                   "  return %y : tensor<64xf32>\n}"));
  Tensor x = normal({64});
  ASSERT_TRUE(succeeded(one.evaluate({x})));
  double top = magnitude(one.getResults()[0]);
  EXPECT_GE(one.getTolerance(0, 1.0, 1), 1e-5 * top);
  EXPECT_LE(one.getTolerance(0, 1.0, 1), 1.01e-5 * top);

  Oracle narrow(
      parse("func.func @f(%x: tensor<64xbf16>) -> tensor<64xbf16> {\n"
            "  %y = nn.silu %x : (tensor<64xbf16>) -> tensor<64xbf16>\n"
            "  return %y : tensor<64xbf16>\n}"));
  ASSERT_TRUE(succeeded(narrow.evaluate({x})));
  EXPECT_GE(narrow.getTolerance(0, 1.0, 1), 0x1p-9 * top);
  EXPECT_LE(narrow.getTolerance(0, 1.0, 1), 2.1 * 0x1p-8 * top);
}

// A row that is read 64 times is rounded to the same number 64 times.
TEST_F(OracleTest, EqualNumbers_HaveEqualErrors) {
  Oracle oracle(parse(
      "func.func @f(%ids: tensor<64xi32>, %table: tensor<1x1xf32>,\n"
      "             %ones: tensor<1x64xbf16>) -> tensor<1x1xf32> {\n"
      "  %rows = nn.embedding %table, %ids\n"
      "      : (tensor<1x1xf32>, tensor<64xi32>) -> tensor<64x1xf32>\n"
      "  %narrow = nn.cast %rows to bf16\n"
      "      : (tensor<64x1xf32>) -> tensor<64x1xbf16>\n"
      "  %sum = nn.matmul %ones, %narrow {result_type = f32}\n"
      "      : (tensor<1x64xbf16>, tensor<64x1xbf16>) -> tensor<1x1xf32>\n"
      "  return %sum : tensor<1x1xf32>\n}"));
  Tensor ids({64}), table({1, 1}), ones({1, 64});
  // Rounded to 1.
  double error = 0.98 * 0x1p-8;
  table.data[0] = 1.0 + error;
  ones.data.assign(64, 1.0);
  ASSERT_TRUE(succeeded(oracle.evaluate({ids, table, ones})));
  EXPECT_GE(oracle.getTolerance(0, 64 * error, 1), 64 * error);
  EXPECT_LE(oracle.getTolerance(0, 64 * error, 1), 2.1 * 64 * 0x1p-8);
}

// The gradient of a hidden row is rounded before it is multiplied again.
TEST_F(OracleTest, HiddenRowsOfACompression_AreRounded) {
  Oracle oracle(parse(
      "func.func @f(%dy: tensor<1x3x1x8xbf16>, %x: tensor<1x8x1x8xbf16>,\n"
      "             %w: tensor<1x32x8xbf16>, %w2: tensor<1x8x8xbf16>)\n"
      "    -> tensor<1x32x8xf32> {\n"
      "  %dx, %dw, %dw2 = nsa.compress_backward mlp %dy, %x, %w, %w2\n"
      "      {block = 4 : i64, stride = 2 : i64} : (tensor<1x3x1x8xbf16>,\n"
      "      tensor<1x8x1x8xbf16>, tensor<1x32x8xbf16>, tensor<1x8x8xbf16>)\n"
      "      -> (tensor<1x8x1x8xbf16>, tensor<1x32x8xf32>,\n"
      "          tensor<1x8x8xf32>)\n"
      "  return %dw : tensor<1x32x8xf32>\n}"));
  ASSERT_TRUE(
      succeeded(oracle.evaluate({normal({1, 3, 1, 8}), normal({1, 8, 1, 8}),
                                 normal({1, 32, 8}), normal({1, 8, 8})})));
  double top = magnitude(oracle.getResults()[0]);
  EXPECT_GE(oracle.getTolerance(0, 1.0, 1), 0x1p-12 * top);
  EXPECT_LE(oracle.getTolerance(0, 1.0, 1), 0x1p-6 * top);
}

// With 1 of 3 free blocks to choose, any other block is a bad choice unless
// errors can make its score the best.
TEST_F(OracleTest, OtherBlocks_AreABadChoice) {
  Oracle oracle(parse(
      "func.func @f(%q: tensor<1x32x1x8xf32>, %k: tensor<1x15x1x8xf32>,\n"
      "             %v: tensor<1x15x1x8xf32>) -> tensor<1x1x32x2xi32> {\n"
      "  %o, %lse = nsa.compressed_attention %q, %k, %v\n"
      "      {block = 4 : i64, stride = 2 : i64}\n"
      "      : (tensor<1x32x1x8xf32>, tensor<1x15x1x8xf32>,\n"
      "         tensor<1x15x1x8xf32>)\n"
      "      -> (tensor<1x32x1x8xf32>, tensor<1x1x32xf32>)\n"
      "  %i = nsa.select %q, %k, %lse {block = 4 : i64, stride = 2 : i64,\n"
      "      select_block = 8 : i64, count = 2 : i64, initial = 0 : i64,\n"
      "      local = 1 : i64} : (tensor<1x32x1x8xf32>, tensor<1x15x1x8xf32>,\n"
      "      tensor<1x1x32xf32>) -> tensor<1x1x32x2xi32>\n"
      "  return %i : tensor<1x1x32x2xi32>\n}"));
  ASSERT_TRUE(succeeded(oracle.evaluate(
      {normal({1, 32, 1, 8}), normal({1, 15, 1, 8}), normal({1, 15, 1, 8})})));
  oracle.addErrors(3, 1);
  const Selection &selection = oracle.getSelections()[0];
  Tensor indices = selection.indices;
  EXPECT_EQ(oracle.findBadChoice(selection, indices), "");
  // The last token has blocks 0 to 3 and must take 3.
  const double *scores = selection.scores.row({0, 0, 31});
  double best = *std::max_element(scores, scores + 3);
  auto expected = std::count_if(scores, scores + 3, [&](double score) {
    return best - score > selection.deviation;
  });
  double *row = indices.row({0, 0, 31});
  long bad = 0;
  for (double block : {0.0, 1.0, 2.0}) {
    row[0] = block;
    bad += oracle.findBadChoice(selection, indices) ==
           "not the best blocks at token 31";
  }
  EXPECT_EQ(bad, expected);
  row[1] = row[0];
  EXPECT_EQ(oracle.findBadChoice(selection, indices),
            "no list of blocks at token 31");
  row[0] = 1.0;
  EXPECT_EQ(oracle.findBadChoice(selection, indices),
            "without forced block 3 at token 31");
}

// What goes wrong while a module is made up would end a run of the others.
TEST(Generator, EverySeed_MakesAModule) {
  for (uint64_t seed = 0; seed < 10000; ++seed)
    EXPECT_GT(generateModule(seed).countOps(), 0u) << "seed " << seed;
}

// What the shrinker leaves of a module that does not compile is small.
TEST(Shrink, Shrunk_StillFails) {
  GraphModule module;
  GraphFunction function;
  function.name = "wrong";
  function.values.push_back({{{4, 4}, DataType::F32}});
  function.arguments.push_back({0, "x", "input", {}});
  ValueId last = 0;
  for (int i = 0; i < 5; ++i) {
    // The third operation says another result type than it has.
    GraphType type{{4, i == 2 ? 5 : 4}, DataType::F32};
    function.values.push_back({type});
    function.ops.push_back({"nn.silu", {last}, {last + 1}, "", "", -1});
    ++last;
  }
  function.results.push_back({last, "y", ""});
  module.functions = {function, function};
  module.functions[1].name = "other";
  Coverage ignored;
  std::optional<Failure> failure =
      checkModule(module, Programs::Sample, ignored);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, "parse");
  EXPECT_NE(failure->message.find("inferred type"), std::string::npos);
  GraphModule small = shrink(module, Programs::Sample, *failure, 20.0);
  EXPECT_LE(small.countOps(), 2u) << print(small);
}
