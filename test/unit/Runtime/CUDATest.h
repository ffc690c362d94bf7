//===- CUDATest.h - programs on a stand-in for a GPU ------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_RUNTIME_CUDATEST_H
#define NSA_TEST_UNIT_RUNTIME_CUDATEST_H

#include "nsa/Runtime/Runtime.h"
#include "test/unit/FakeCUDA/FakeCUDA.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace nsa {

class CUDATest : public ::testing::Test {
protected:
  void SetUp() override {
    fakeCUDAReset();
    options.blasLibrary = NSA_FAKE_CUDA;
  }

  Result<Program> create(const std::string &bytes) {
    Result<Artifact> artifact =
        Artifact::fromBytes(bytes.data(), bytes.size(), "test.nsax");
    EXPECT_TRUE(artifact.ok()) << artifact.message();
    return Program::create(*artifact, options);
  }
  Program load(const std::string &bytes) {
    Result<Program> program = create(bytes);
    EXPECT_TRUE(program.ok()) << program.message();
    return std::move(*program);
  }

  RuntimeOptions options;
};

/// What the GPU was asked to do since the last call.
inline std::string takeLog() {
  std::string log = fakeCUDALog();
  fakeCUDAReset();
  return log;
}

inline std::vector<float> values(const Program &program, const char *name) {
  const TensorView *view = program.findTensor(name);
  return {view->as<float>(), view->as<float>() + view->elements()};
}

} // namespace nsa

#endif // NSA_TEST_UNIT_RUNTIME_CUDATEST_H
