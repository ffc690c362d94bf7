//===- SmallModel.cpp - a small model, compiled ---------------------------===//

#include "test/unit/Compiler/SmallModel.h"
#include "dialects/NN/NNDialect.h"
#include "dialects/NSA/NSADialect.h"
#include "lib/Frontend/ModelBuilder.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Transforms/Passes.h"

#include <gtest/gtest.h>
#include <map>

using namespace nsa;
using namespace nsa::test;

/// One context for all models: it outlives every module.
static mlir::MLIRContext &getContext() {
  static mlir::MLIRContext context;
  context.loadDialect<mlir::func::FuncDialect, NSADialect, nn::NNDialect>();
  return context;
}

static mlir::OwningOpRef<mlir::ModuleOp>
build(const std::vector<std::string> &overrides) {
  Result<RunConfig> config =
      parseConfig("model: {dim: 32, n_layers: 2, n_heads: 4, "
                  "n_kv_groups: 2, d_k: 8, d_v: 8, init_std: 0.2}\n"
                  "nsa: {l: 8, d: 4, l_sel: 16, n_sel: 3, w: 12}\n"
                  "train: {seq_len: 70, batch_size: 2, micro_batch: 2}\n",
                  "test.yaml", overrides);
  EXPECT_TRUE(config.ok()) << config.message();
  return buildModel(&getContext(), config.ok() ? *config : RunConfig());
}

/// The model as one function.
static mlir::OwningOpRef<mlir::ModuleOp>
buildFunction(const std::vector<std::string> &overrides) {
  mlir::OwningOpRef<mlir::ModuleOp> module = build(overrides);
  mlir::PassManager manager(&getContext());
  manager.addPass(createExpandModel());
  EXPECT_TRUE(mlir::succeeded(manager.run(*module)));
  return module;
}

static std::string print(mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  return text;
}

std::string nsa::test::modelText(const std::vector<std::string> &overrides) {
  return print(*build(overrides));
}

std::vector<std::string> nsa::test::linearModel() {
  return {"nsa.phi=linear", "nsa.gate=softmax", "model.mlp=swiglu",
          "model.d_v=12",   "nsa.n_initial=0",  "nsa.n_local=1"};
}

std::vector<std::string> nsa::test::mlpModel() {
  return {"nsa.phi=mlp", "nsa.phi_pos=true", "nsa.gate=softmax",
          "model.mlp=swiglu", "model.d_v=12"};
}

/// Compiles a module, or takes what the same text gave before.
static Result<Program> compileAndLoad(const std::string &text,
                                      const std::string &precision,
                                      uint64_t seed, bool fuse) {
  static std::map<std::string, std::string> compiledBefore;
  std::string &bytes =
      compiledBefore[precision + (fuse ? "" : " apart") + text];
  if (bytes.empty()) {
    CompilerOptions options;
    options.precision = precision;
    options.fuse = fuse;
    // Kernels of a few elements are slow in one way or another.
    options.allowSlowPaths = {"all"};
    Result<CompiledArtifact> compiled =
        nsa::compile(text, "model.mlir", options);
    if (!compiled.ok())
      return compiled.takeError();
    bytes = std::move(compiled->bytes);
  }
  Result<Artifact> artifact = Artifact::fromBytes(bytes.data(), bytes.size());
  if (!artifact.ok())
    return artifact.takeError();
  RuntimeOptions runtime;
  runtime.seed = seed;
  runtime.poison = true;
  return Program::create(*artifact, runtime);
}

SmallModel::SmallModel(const std::vector<std::string> &overrides,
                       const std::string &precision, uint64_t seed, bool fuse)
    : random(seed) {
  Result<Program> loaded =
      compileAndLoad(print(*buildFunction(overrides)), precision, seed, fuse);
  if (!loaded.ok()) {
    ADD_FAILURE() << loaded.message();
    return;
  }
  program.emplace(std::move(*loaded));
  run("init");
  fillInputs();
}

void SmallModel::run(const std::string &entry) {
  Status status = program->run(entry);
  EXPECT_TRUE(status.ok()) << entry << ": " << status.message();
}

const TensorView &SmallModel::tensor(const std::string &name) const {
  static const TensorView none;
  const TensorView *view = program->findTensor(name);
  EXPECT_NE(view, nullptr) << name;
  return view ? *view : none;
}

void SmallModel::fillInputs() {
  for (const char *input : {"tokens", "targets"}) {
    const TensorView &view = tensor(input);
    for (size_t i = 0; i < view.elements(); ++i)
      view.as<int32_t>()[i] = static_cast<int32_t>(random() % 256);
  }
  const TensorView *start = program->findTensor("start");
  if (!start)
    return;
  int32_t at = 0, begin = 0;
  for (int32_t length : {32, 1, 7, 13, 17, 64, 6})
    for (int32_t i = 0; i < length; ++i, ++at) {
      if (i == 0)
        begin = at % 70;
      start->as<int32_t>()[at] = begin;
    }
}
