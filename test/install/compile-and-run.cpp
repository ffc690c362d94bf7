//===- compile-and-run.cpp - compiler and runtime in another program ------===//

#include "nsa/Compiler/Compiler.h"
#include "nsa/Runtime/Runtime.h"

#include <cstdio>

static const char source[] = R"(
func.func @twice(%x: tensor<4xf32> {nn.name = "x"}) -> (tensor<4xf32> {nn.name = "y"}) {
  %y = nn.add %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
)";

static int fail(const std::string &message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return 1;
}

int main() {
  nsa::Result<nsa::CompiledArtifact> compiled =
      nsa::compile(source, "twice.mlir", {});
  if (!compiled)
    return fail(compiled.message());
  nsa::Result<nsa::Artifact> artifact =
      nsa::Artifact::fromBytes(compiled->bytes.data(), compiled->bytes.size());
  if (!artifact)
    return fail(artifact.message());
  nsa::Result<nsa::Program> program = nsa::Program::create(*artifact);
  if (!program)
    return fail(program.message());
  float *x = program->findTensor("x")->as<float>();
  for (int i = 0; i < 4; ++i)
    x[i] = static_cast<float>(i);
  if (nsa::Status status = program->run("twice"); !status)
    return fail(status.message());
  const float *y = program->findTensor("y")->as<float>();
  for (int i = 0; i < 4; ++i)
    if (y[i] != 2.0f * static_cast<float>(i))
      return fail("y[" + std::to_string(i) + "] is " + std::to_string(y[i]));
  return 0;
}
