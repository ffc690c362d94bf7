//===- GemmTest.cpp - matmuls against a plain loop ------------------------===//

#include "runtime/CPU/Gemm.h"
#include "lib/Support/Float16.h"
#include "nsa/Runtime/Runtime.h"
#include "test/unit/Runtime/ArtifactBuilder.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace nsa;

namespace {

struct Case {
  uint64_t m, n, k;
  bool transposeLhs, transposeRhs;
  float beta;
  DataType type;
  float alpha = 1;
  /// What is added lies apart.
  bool isApart = false;
  uint64_t batch = 1;
};

std::ostream &operator<<(std::ostream &out, const Case &c) {
  return out << c.m << "x" << c.n << "x" << c.k
             << (c.transposeLhs ? " T" : " N") << (c.transposeRhs ? "T" : "N")
             << " beta " << c.beta << " " << typeName(c.type) << " alpha "
             << c.alpha << (c.isApart ? " apart" : "") << " x " << c.batch;
}

float get(const TensorView &view, uint64_t i) {
  if (view.type == DataType::F32)
    return view.as<float>()[i];
  uint16_t bits = view.as<uint16_t>()[i];
  return view.type == DataType::BF16 ? bf16ToFloat(bits) : f16ToFloat(bits);
}

void set(const TensorView &view, uint64_t i, float value) {
  if (view.type == DataType::F32)
    view.as<float>()[i] = value;
  else
    view.as<uint16_t>()[i] =
        view.type == DataType::BF16 ? floatToBF16(value) : floatToF16(value);
}

/// A program of one gemm, with numbers of a fixed seed in its tensors.
Program makeGemm(const Case &c, int threads) {
  ArtifactBuilder b;
  unsigned lhs =
      b.tensor("lhs", c.type, {c.batch, c.m, c.k}, TensorRole::Input);
  unsigned rhs =
      b.tensor("rhs", c.type, {c.batch, c.k, c.n}, TensorRole::Input);
  unsigned addend =
      b.tensor("addend", c.type, {c.batch, c.m, c.n}, TensorRole::Input);
  unsigned out =
      b.tensor("out", c.type, {c.batch, c.m, c.n}, TensorRole::State);
  artifact::Slice apart = b.of(addend);
  b.entry("main", {lhs, rhs, addend}, {out},
          {b.gemm(c.m, c.n, c.k, b.of(lhs), b.of(rhs), b.of(out), c.beta,
                  c.type, c.transposeLhs, c.transposeRhs, c.alpha,
                  c.isApart ? &apart : nullptr, c.batch)});
  std::string bytes = b.finish();
  RuntimeOptions options;
  options.threads = threads;
  options.poison = true;
  Result<Artifact> artifact = Artifact::fromBytes(bytes.data(), bytes.size());
  EXPECT_TRUE(artifact.ok()) << artifact.message();
  Result<Program> program = Program::create(*artifact, options);
  EXPECT_TRUE(program.ok()) << program.message();
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const TensorView &view : program->tensors())
    for (uint64_t i = 0; i < view.elements(); ++i)
      set(view, i, uniform(random));
  // A GEMM that is not added to must not read what was there.
  if (c.beta == 0 || c.isApart)
    for (uint64_t i = 0; i < program->findTensor("out")->elements(); ++i)
      set(*program->findTensor("out"), i, NAN);
  return std::move(*program);
}

class Gemm : public testing::TestWithParam<Case> {};

} // namespace

TEST_P(Gemm, AnyShape_MatchesAPlainLoop) {
  const Case &c = GetParam();
  Program program = makeGemm(c, 2);
  const TensorView &lhs = *program.findTensor("lhs");
  const TensorView &rhs = *program.findTensor("rhs");
  const TensorView &out = *program.findTensor("out");
  const TensorView &addend = c.isApart ? *program.findTensor("addend") : out;
  std::vector<double> expected(c.batch * c.m * c.n);
  for (uint64_t at = 0; at < expected.size(); ++at) {
    uint64_t matrix = at / (c.m * c.n), i = at / c.n % c.m, j = at % c.n;
    uint64_t left = matrix * c.m * c.k, right = matrix * c.k * c.n;
    double sum = 0;
    for (uint64_t k = 0; k < c.k; ++k)
      sum += double(get(lhs,
                        left + (c.transposeLhs ? k * c.m + i : i * c.k + k))) *
             get(rhs, right + (c.transposeRhs ? j * c.k + k : k * c.n + j));
    expected[at] = c.alpha * sum + (c.beta == 0 ? 0 : c.beta * get(addend, at));
  }
  ASSERT_TRUE(program.run("main").ok());
  double tolerance = c.type == DataType::F32 ? 1e-5 : 5e-3;
  for (uint64_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(get(out, i), expected[i],
                tolerance * (1 + std::fabs(expected[i])))
        << c << " at " << i;
}

TEST_P(Gemm, AnyNumberOfThreads_BitsAreTheSame) {
  const Case &c = GetParam();
  std::string first;
  for (int threads : {1, 2, 5}) {
    Program program = makeGemm(c, threads);
    for (int repeat = 0; repeat < 2 && (c.beta == 0 || c.isApart); ++repeat)
      ASSERT_TRUE(program.run("main").ok());
    const TensorView &out = *program.findTensor("out");
    std::string bytes(out.as<char>(), out.bytes);
    if (threads == 1)
      first = bytes;
    EXPECT_EQ(first, bytes) << threads << " threads, " << c;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Gemm,
    testing::Values(
        Case{1, 1, 1, false, false, 0, DataType::F32},
        Case{5, 7, 3, false, true, 0, DataType::F32},
        Case{300, 520, 40, false, false, 0, DataType::F32},
        Case{300, 520, 40, true, false, 1, DataType::F32},
        Case{1, 1030, 64, false, true, 0.5f, DataType::F32},
        Case{130, 70, 600, true, true, 0, DataType::F32},
        Case{4, 6, 0, false, false, 0, DataType::F32},
        Case{4, 6, 0, false, false, 2, DataType::F32},
        Case{0, 6, 3, false, false, 0, DataType::F32},
        Case{4, 0, 3, false, false, 0, DataType::F32},
        Case{65, 129, 33, false, false, 0, DataType::BF16},
        Case{65, 129, 33, true, true, 1, DataType::BF16},
        Case{300, 520, 40, false, true, 0, DataType::F16},
        Case{33, 17, 9, true, false, 0, DataType::F32, 2, false, 5},
        Case{300, 520, 40, false, true, 0.5f, DataType::F32, -3, true, 3},
        Case{64, 129, 33, false, false, 3, DataType::BF16, 0.5f, true, 4},
        Case{4, 6, 0, false, false, 2, DataType::F32, 1, true, 3},
        Case{5, 7, 3, true, true, 1, DataType::F32, 2, false, 2}));

TEST(GemmSplit, AnySize_IsCoveredOnce) {
  for (int64_t m : {0, 1, 16, 255, 256, 257, 2048, 50000})
    for (int64_t n : {0, 1, 100, 512, 768, 3072})
      for (int64_t k : {0, 1, 128, 4096}) {
        GemmSplit split = GemmSplit::of(m, n, k);
        EXPECT_EQ(split.rowBlocks, m ? (m - 1) / split.rowStep + 1 : 0);
        EXPECT_EQ(split.columnBlocks, n ? (n - 1) / split.columnStep + 1 : 0);
        EXPECT_LE(split.rowStep, 256);
        EXPECT_LE(split.columnStep, 512);
        EXPECT_GE(split.rowStep, 16);
      }
}

TEST(GemmSplit, SmallMatmul_IsNotShared) {
  GemmSplit tall = GemmSplit::of(2048, 128, 128);
  EXPECT_GE(tall.rowBlocks * tall.columnBlocks, 8);
  GemmSplit row = GemmSplit::of(1, 4096, 512);
  EXPECT_GE(row.columnBlocks, 2);
  GemmSplit tiny = GemmSplit::of(64, 64, 16);
  EXPECT_EQ(tiny.rowBlocks * tiny.columnBlocks, 1);
}

TEST(GemmWorkspace, NarrowOperands_HaveRoom) {
  EXPECT_EQ(
      gemmWorkspace(4, 4, 4, DataType::F32, DataType::F32, DataType::F32).bytes,
      0u);
  GemmWorkspace mixed =
      gemmWorkspace(3, 5, 7, DataType::BF16, DataType::F32, DataType::BF16);
  EXPECT_EQ(mixed.lhs, 0u);
  EXPECT_EQ(mixed.out, 128u);
  EXPECT_EQ(mixed.bytes, 192u);
}
