//===- InitializeTest.cpp - initial values --------------------------------===//

#include "runtime/CPU/Initialize.h"
#include "lib/Support/Float16.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Philox.h"
#include "nsa/Runtime/Runtime.h"
#include "test/unit/Expect.h"
#include "test/unit/Runtime/ArtifactBuilder.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace nsa;
using artifact::InitKind;

namespace {

/// The initial bytes of one tensor.
std::string initialize(const std::string &name, DataType type,
                       const std::vector<uint64_t> &shape, InitKind kind,
                       double value, int threads = 2, uint64_t seed = 1) {
  ArtifactBuilder b;
  unsigned tensor =
      b.tensor(name, type, shape, TensorRole::Parameter, kind, value);
  b.entry("init", {}, {tensor}, {b.initialize(tensor)});
  std::string bytes = b.finish();
  RuntimeOptions options;
  options.threads = threads;
  options.seed = seed;
  Result<Artifact> artifact = Artifact::fromBytes(bytes.data(), bytes.size());
  EXPECT_TRUE(artifact.ok()) << artifact.message();
  Result<Program> program = Program::create(*artifact, options);
  EXPECT_TRUE(program.ok()) << program.message();
  EXPECT_TRUE(program->run("init").ok());
  const TensorView &view = program->tensors()[0];
  return std::string(view.as<char>(), view.bytes);
}

const float *floats(const std::string &bytes) {
  return reinterpret_cast<const float *>(bytes.data());
}

} // namespace

// The known answers of the authors' Random123 distribution.
TEST(Philox, KnownCounters_GiveKnownAnswers) {
  std::array<uint32_t, 4> zero = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c,
                                  0x9b00dbd8};
  EXPECT_EQ(philox(0, 0, 0), zero);
  std::array<uint32_t, 4> ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6,
                                  0x6d5451fd};
  EXPECT_EQ(philox(~uint64_t(0), ~uint64_t(0), ~uint64_t(0)), ones);
}

TEST(Initialize, Normal_HasItsMoments) {
  const size_t count = 100003;
  std::string bytes =
      initialize("w", DataType::F32, {count}, InitKind::Normal, 0.02);
  double sum = 0, squares = 0, fourth = 0;
  for (size_t i = 0; i < count; ++i) {
    double x = floats(bytes)[i] / 0.02;
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(squares / count, 1, 0.02);
  EXPECT_NEAR(fourth / count, 3, 0.15);
}

TEST(Initialize, Normal_IsAFunctionOfSeedNameAndPosition) {
  std::string bytes =
      initialize("w", DataType::F32, {10001}, InitKind::Normal, 2, 1, 42);
  EXPECT_EQ(initialize("w", DataType::F32, {10001}, InitKind::Normal, 2, 5, 42),
            bytes);
  for (size_t i : {0, 1, 4095, 4096, 10000})
    EXPECT_EQ(floats(bytes)[i],
              float(2 * normals(42, hashBytes("w"), i / 4)[i % 4]));
  EXPECT_NE(initialize("v", DataType::F32, {10001}, InitKind::Normal, 2, 1, 42),
            bytes);
  EXPECT_NE(initialize("w", DataType::F32, {10001}, InitKind::Normal, 2, 1, 43),
            bytes);
}

TEST(Initialize, NarrowNormals_AreRounded) {
  std::string wide =
      initialize("w", DataType::F32, {1001}, InitKind::Normal, 1);
  std::string narrow =
      initialize("w", DataType::BF16, {1001}, InitKind::Normal, 1);
  for (size_t i = 0; i < 1001; ++i)
    ASSERT_EQ(reinterpret_cast<const uint16_t *>(narrow.data())[i],
              floatToBF16(floats(wide)[i]));
}

TEST(Initialize, Rotary_IsCosAndSin) {
  const int length = 700, half = 8;
  std::string bytes = initialize("r", DataType::F32, {length, half, 2},
                                 InitKind::Rotary, 10000);
  for (int t : {0, 1, 31, 699})
    for (int i = 0; i < half; ++i) {
      double angle = t * std::pow(10000.0, -2.0 * i / (2 * half));
      EXPECT_EQ(floats(bytes)[(t * half + i) * 2], float(std::cos(angle)));
      EXPECT_EQ(floats(bytes)[(t * half + i) * 2 + 1], float(std::sin(angle)));
    }
}

TEST(Initialize, Frequencies_AreAnglesTimesAnAmplitudeWhereNotZero) {
  const int length = 50;
  const std::vector<double> frequencies = {0.5, 0.01, 0.0};
  ArtifactBuilder b;
  unsigned tensor =
      b.tensor("r", DataType::F32, {length, 3, 2}, TensorRole::Constant,
               InitKind::Frequencies, 1.5, frequencies);
  b.entry("init", {}, {tensor}, {b.initialize(tensor)});
  std::string bytes = b.finish();
  Artifact artifact = take(Artifact::fromBytes(bytes.data(), bytes.size()));
  Program program = take(Program::create(artifact));
  ASSERT_TRUE(program.run("init").ok());
  const float *table = program.tensors()[0].as<float>();
  for (int t : {0, 1, 49})
    for (int i = 0; i < 3; ++i) {
      double angle = t * frequencies[i];
      double amplitude = frequencies[i] == 0 ? 1 : 1.5;
      EXPECT_EQ(table[(t * 3 + i) * 2], float(amplitude * std::cos(angle)));
      EXPECT_EQ(table[(t * 3 + i) * 2 + 1], float(amplitude * std::sin(angle)));
    }
}

TEST(Initialize, ConstantsOfEveryType_AreRight) {
  EXPECT_EQ(
      floats(initialize("c", DataType::F32, {5}, InitKind::Constant, 0.25))[4],
      0.25f);
  std::string integers =
      initialize("c", DataType::I32, {5}, InitKind::Constant, -3);
  EXPECT_EQ(reinterpret_cast<const int32_t *>(integers.data())[4], -3);
  std::string wide =
      initialize("c", DataType::I64, {5}, InitKind::Constant, 1e15);
  EXPECT_EQ(reinterpret_cast<const int64_t *>(wide.data())[4],
            int64_t(1000000000000000));
}

//===----------------------------------------------------------------------===//
// 16-bit floats
//===----------------------------------------------------------------------===//

TEST(Float16, EveryHalf_Survives) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float half = f16ToFloat(uint16_t(bits)),
          brain = bf16ToFloat(uint16_t(bits));
    if (std::isnan(half))
      EXPECT_TRUE(std::isnan(f16ToFloat(floatToF16(half))));
    else
      EXPECT_EQ(floatToF16(half), bits);
    if (std::isnan(brain))
      EXPECT_TRUE(std::isnan(bf16ToFloat(floatToBF16(brain))));
    else
      EXPECT_EQ(floatToBF16(brain), bits);
  }
}

TEST(Float16, AnyFloat_RoundsToNearestEven) {
  EXPECT_EQ(floatToBF16(1.00390625f), 0x3F80); // halfway, to even
  EXPECT_EQ(floatToBF16(1.01171875f), 0x3F82); // halfway, to even
  EXPECT_EQ(floatToBF16(3.4e38f), 0x7F80);
  EXPECT_EQ(floatToF16(1.00048828125f), 0x3C00); // halfway, to even
  EXPECT_EQ(floatToF16(65519.0f), 0x7BFF);
  EXPECT_EQ(floatToF16(65520.0f), 0x7C00);
  EXPECT_EQ(floatToF16(0x1p-25f), 0x0000);
  EXPECT_EQ(floatToF16(0x1.8p-25f), 0x0001);
  EXPECT_EQ(floatToF16(-0x1p-24f), 0x8001);
}
