//===- WideIndicesTest.cpp - tensors of more than 2^31 elements -----------===//
//
// Compiled for the processor. Only pages that something touches take memory.
//
//===----------------------------------------------------------------------===//

#include "nsa/Compiler/Compiler.h"
#include "nsa/Runtime/Runtime.h"

#include <climits>
#include <gtest/gtest.h>
#include <numeric>

using namespace nsa;

static Program compileProgram(const std::string &text) {
  Result<CompiledArtifact> compiled = compile(text, "wide.mlir", {});
  EXPECT_TRUE(compiled.ok()) << compiled.message();
  Result<Artifact> artifact =
      Artifact::fromBytes(compiled->bytes.data(), compiled->bytes.size());
  EXPECT_TRUE(artifact.ok()) << artifact.message();
  Result<Program> program = Program::create(*artifact);
  EXPECT_TRUE(program.ok()) << program.message();
  return std::move(*program);
}

TEST(WideIndices, EmbeddingBeyondTwoToTheThirtyFirst_TakesItsRow) {
  constexpr int64_t rows = 1048640, width = 2112;
  static_assert(rows * width > INT32_MAX);
  Program program = compileProgram(R"(
    func.func @main(
        %ids: tensor<1x4xi32> {nn.name = "ids", nn.role = "input"},
        %table: tensor<1048640x2112xf32> {nn.name = "table", nn.role = "input"})
        -> (tensor<1x4x2112xf32> {nn.name = "out"}) {
      %0 = nn.embedding %table, %ids
          : (tensor<1048640x2112xf32>, tensor<1x4xi32>) -> tensor<1x4x2112xf32>
      return %0 : tensor<1x4x2112xf32>
    })");
  // The first row of a 32-bit element, of a 32-bit byte, and the last ones.
  const int32_t ids[] = {0, 508400, 1016801, rows - 1};
  auto *table = program.findTensor("table")->as<float>();
  for (int32_t id : ids)
    std::iota(table + id * width, table + (id + 1) * width, float(id % 1000));
  std::copy_n(ids, 4, program.findTensor("ids")->as<int32_t>());
  ASSERT_TRUE(program.run("main").ok());
  const auto *out = program.findTensor("out")->as<float>();
  for (int i = 0; i < 4; ++i)
    for (int64_t at : {int64_t(0), width - 1})
      EXPECT_EQ(out[i * width + at], float(ids[i] % 1000) + float(at)) << i;
}

/// Attends to the last 32 of so many tokens of the second of two caches.
static std::vector<float> attendToEnd(int64_t tokens) {
  std::string cache = "tensor<2x" + std::to_string(tokens) + "x2x64xf32>";
  Program program = compileProgram(
      "func.func @main(%q: tensor<2x1x4x64xf32> {nn.name = \"q\", nn.role = "
      "\"input\"}, %k: " +
      cache + " {nn.name = \"k\", nn.role = \"input\"}, %v: " + cache +
      R"( {nn.name = "v", nn.role = "input"},
          %p: tensor<2xi32> {nn.name = "p", nn.role = "input"})
          -> (tensor<2x1x4x64xf32> {nn.name = "out"}, tensor<2x4x1xf32> {nn.name = "lse"}) {
        %o, %l = nsa.decode_attention %q, %k, %v at %p visible(#nsa.window<32>)
            : (tensor<2x1x4x64xf32>, )" +
      cache + ", " + cache + R"(, tensor<2xi32>)
            -> (tensor<2x1x4x64xf32>, tensor<2x4x1xf32>)
        return %o, %l : tensor<2x1x4x64xf32>, tensor<2x4x1xf32>
      })");
  auto fill = [](float *data, int64_t count, int step) {
    for (int64_t i = 0; i < count; ++i)
      data[i] = float((i * step) % 61) / 61 - 0.5f;
  };
  fill(program.findTensor("q")->as<float>(), 2 * 4 * 64, 7);
  for (auto [name, step] : {std::pair("k", 11), {"v", 13}})
    fill(program.findTensor(name)->as<float>() + (2 * tokens - 32) * 128,
         32 * 128, step);
  auto *positions = program.findTensor("p")->as<int32_t>();
  positions[0] = 0;
  positions[1] = int32_t(tokens - 1);
  EXPECT_TRUE(program.run("main").ok());
  const auto *out = program.findTensor("out")->as<float>() + 4 * 64;
  return {out, out + 4 * 64};
}

TEST(WideIndices, DecodeBeyondTwoToTheThirtyFirst_HasBitsOfShortCache) {
  constexpr int64_t tokens = 8388672;
  static_assert(2 * tokens * 128 > INT32_MAX);
  EXPECT_EQ(attendToEnd(tokens), attendToEnd(64));
}
