//===- CompiledModule.cpp - compiled MLIR with tensors as doubles ---------===//

#include "test/unit/CompiledModule.h"
#include "lib/Support/Float16.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace nsa;
using namespace nsa::test;

uint64_t nsa::test::testSeed() {
  static const uint64_t seed = [] {
    const char *text = std::getenv("NSA_TEST_SEED");
    uint64_t value =
        text ? std::strtoull(text, nullptr, 10) : std::random_device()();
    std::printf("NSA_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

size_t nsa::test::sweepCount(size_t full, size_t sample) {
  if (const char *text = std::getenv("NSA_SWEEP_COUNT"))
    return std::strtoull(text, nullptr, 10);
  const char *suite = std::getenv("NSA_TEST_SUITE");
  return suite && std::string(suite) == "full" ? full : sample;
}

bool nsa::test::isSame(const Tensor &x, const Tensor &y) {
  return x.data.size() == y.data.size() &&
         std::memcmp(x.data.data(), y.data.data(),
                     x.data.size() * sizeof(double)) == 0;
}

double nsa::test::distance(const Tensor &x, const Tensor &y) {
  EXPECT_EQ(x.data.size(), y.data.size());
  if (x.data.size() != y.data.size())
    return std::numeric_limits<double>::quiet_NaN();
  double worst = 0.0;
  for (size_t i = 0; i < x.data.size(); ++i) {
    if (x.data[i] == y.data[i])
      continue;
    double gap = std::fabs(x.data[i] - y.data[i]);
    if (std::isnan(gap))
      return gap;
    worst = std::max(worst, gap);
  }
  return worst;
}

double nsa::test::magnitude(const Tensor &x) {
  double top = 0.0;
  for (double value : x.data)
    if (std::isfinite(value))
      top = std::max(top, std::fabs(value));
  return top;
}

double nsa::test::roundTo(DataType type, double x) {
  auto single = static_cast<float>(x);
  if (type == DataType::BF16)
    return bf16ToFloat(floatToBF16(single));
  return type == DataType::F16 ? f16ToFloat(floatToF16(single)) : single;
}

Result<CompiledArtifact>
nsa::test::compileHere(const std::string &text,
                       const CompilerOptions &options) {
  return compile(text, "test.mlir", options);
}

RuntimeOptions CompiledModule::poisoned() {
  RuntimeOptions options;
  options.poison = true;
  options.threads = 2;
  return options;
}

Result<CompiledModule> CompiledModule::load(const std::string &text,
                                            const CompilerOptions &compiler,
                                            const RuntimeOptions &runtime,
                                            const Compile &compile) {
  CompilerOptions options = compiler;
  // Kernels of a few elements are slow in one way or another.
  options.allowSlowPaths = {"all"};
  Result<CompiledArtifact> compiled =
      compile ? compile(text, options) : compileHere(text, options);
  if (!compiled)
    return compiled.takeError();
  return load(*compiled, runtime);
}

Result<CompiledModule> CompiledModule::load(const CompiledArtifact &compiled,
                                            const RuntimeOptions &runtime) {
  Result<Artifact> artifact =
      Artifact::fromBytes(compiled.bytes.data(), compiled.bytes.size());
  if (!artifact)
    return artifact.takeError();
  return load(*artifact, runtime);
}

Result<CompiledModule> CompiledModule::load(const Artifact &artifact,
                                            const RuntimeOptions &runtime) {
  Result<Program> program = Program::create(artifact, runtime);
  if (!program)
    return program.takeError();
  return CompiledModule(std::move(*program));
}

void CompiledModule::set(const std::string &name, const Tensor &value) {
  const TensorView *view = program.findTensor(name);
  ASSERT_NE(view, nullptr) << name;
  ASSERT_EQ(view->elements(), value.data.size()) << name;
  for (size_t i = 0; i < value.data.size(); ++i)
    switch (view->type) {
    case DataType::BF16:
      view->as<uint16_t>()[i] = floatToBF16(static_cast<float>(value.data[i]));
      break;
    case DataType::F16:
      view->as<uint16_t>()[i] = floatToF16(static_cast<float>(value.data[i]));
      break;
    case DataType::I32:
      view->as<int32_t>()[i] = static_cast<int32_t>(value.data[i]);
      break;
    default:
      view->as<float>()[i] = static_cast<float>(value.data[i]);
    }
}

Tensor CompiledModule::get(const std::string &name) const {
  const TensorView *view = program.findTensor(name);
  EXPECT_NE(view, nullptr) << name;
  if (!view)
    return {};
  Tensor value(std::vector<int64_t>(view->shape.begin(), view->shape.end()));
  for (size_t i = 0; i < value.data.size(); ++i)
    switch (view->type) {
    case DataType::BF16:
      value.data[i] = bf16ToFloat(view->as<uint16_t>()[i]);
      break;
    case DataType::F16:
      value.data[i] = f16ToFloat(view->as<uint16_t>()[i]);
      break;
    case DataType::I32:
      value.data[i] = view->as<int32_t>()[i];
      break;
    default:
      value.data[i] = view->as<float>()[i];
    }
  return value;
}

void CompiledModule::run(const std::string &name) {
  Status status = program.run(name);
  ASSERT_TRUE(status.ok()) << name << ": " << status.message();
}
