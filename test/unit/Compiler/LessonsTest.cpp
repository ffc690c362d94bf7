//===- LessonsTest.cpp - what an earlier system taught --------------------===//
//
// Properties of compiled models, each named after the failure that it rules
// out.
//
//===----------------------------------------------------------------------===//

#include "nsa/Compiler/Compiler.h"
#include "nsa/Runtime/Runtime.h"
#include "test/unit/Compiler/SmallModel.h"
#include "test/unit/Expect.h"

#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>
#include <set>

using namespace nsa;
using namespace nsa::test;

static CompileReport estimateModel(const std::vector<std::string> &overrides,
                                   const CompilerOptions &options = {}) {
  Result<CompileReport> report =
      estimate(modelText(overrides), "model.mlir", options);
  if (report.ok())
    return *report;
  ADD_FAILURE() << report.message();
  return {};
}

// Lesson 2: the host's work in a step grew with the sequence.
TEST(Lessons, CommandsPerLayer_AreConstantInLengthAndBatch) {
  // Gradients are reduced in buckets by their bytes; here in one.
  CompilerOptions options;
  options.bucketMiB = 1024;
  auto commands = [&](int layers, int length, int batch) {
    return estimateModel({"model.n_layers=" + std::to_string(layers),
                          "train.seq_len=" + std::to_string(length),
                          "train.batch_size=" + std::to_string(batch),
                          "train.micro_batch=" + std::to_string(batch)},
                         options)
        .commands;
  };
  uint64_t two = commands(2, 512, 1);
  EXPECT_GT(two, 0u);
  EXPECT_EQ(commands(2, 2048, 1), two);
  EXPECT_EQ(commands(2, 8192, 1), two);
  EXPECT_EQ(commands(2, 512, 8), two);
  // And every eight layers add the same number: sums over rows are made for
  // eight tensors at a time.
  uint64_t ten = commands(10, 512, 1), eighteen = commands(18, 512, 1);
  EXPECT_EQ(eighteen - ten, ten - two);
}

#ifndef NSA_SANITIZED
static std::atomic<size_t> allocations{0};

void *operator new(size_t size) {
  ++allocations;
  if (void *memory = std::malloc(size ? size : 1))
    return memory;
  std::abort();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

TEST(Lessons, Step_AllocatesNothing) {
  CompilerOptions options;
  options.precision = "bf16";
  options.allowSlowPaths = {"all"};
  Result<CompiledArtifact> compiled =
      compile(modelText({}), "model.mlir", options);
  ASSERT_TRUE(compiled.ok()) << compiled.message();
  Result<Artifact> artifact =
      Artifact::fromBytes(compiled->bytes.data(), compiled->bytes.size());
  ASSERT_TRUE(artifact.ok()) << artifact.message();
  Result<Program> program = Program::create(*artifact);
  ASSERT_TRUE(program.ok()) << program.message();
  ASSERT_TRUE(program->run("init").ok());
  const EntryInfo *step = program->findEntry("step");
  ASSERT_NE(step, nullptr);
  size_t before = allocations;
  bool passed = program->run(*step).ok();
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_TRUE(passed);
}
#endif

// Lesson 4: switching something off had no effect.
TEST(Lessons, EveryCompilerOption_ShowsInTheArtefact) {
  std::vector<CompilerOptions> variants(12);
  variants[1].cpu = "x86-64-v2";
  variants[2].microBatch = 3;
  variants[3].seqLen = 40;
  variants[4].precision = "bf16";
  variants[5].fuse = false;
  variants[6].recompute = variants[7].recompute = "block";
  variants[7].recomputeBudget = 2;
  variants[8].logitsMiB = 1;
  variants[9].allowSlowPaths = {"copy"};
  variants[10].bucketMiB = 1;
  variants[11].reducePrecision = "bf16";
  std::string text =
      modelText({"model.attention=window", "model.vocab_size=1024"});
  std::set<std::string> distinct;
  uint64_t plainCommands = 0;
  for (const CompilerOptions &options : variants) {
    Result<CompiledArtifact> compiled = compile(text, "model.mlir", options);
    ASSERT_TRUE(compiled.ok()) << compiled.message();
    Result<Artifact> artifact =
        Artifact::fromBytes(compiled->bytes.data(), compiled->bytes.size());
    ASSERT_TRUE(artifact.ok()) << artifact.message();
    ASSERT_NE((*artifact)->options(), nullptr);
    std::string listed;
    for (const artifact::Option *option : *(*artifact)->options())
      listed += option->key()->str() + "=" + option->value()->str() + "\n";
    EXPECT_TRUE(distinct.insert(listed).second) << listed;
    // Not only noted, but acted on.
    Result<Program> program = Program::create(*artifact);
    ASSERT_TRUE(program.ok()) << program.message();
    const TensorView *tokens = program->findTensor("tokens");
    EXPECT_EQ(tokens->shape[0], options.microBatch ? 3u : 2u);
    EXPECT_EQ(tokens->shape[1], options.seqLen ? 40u : 70u);
    uint64_t commands = compiled->report.commands;
    if (plainCommands == 0)
      plainCommands = commands;
    // Casts, chunks, unfused and recomputed operations and buckets of gradients
    // are commands of their own.
    bool longer = !options.fuse || options.precision == "bf16" ||
                  options.logitsMiB == 1 || options.bucketMiB == 1 ||
                  options.reducePrecision == "bf16" ||
                  (options.recompute == "block" && !options.recomputeBudget);
    EXPECT_EQ(commands > plainCommands, longer) << listed;
    EXPECT_TRUE(contains((*artifact)->cpu()->str(), options.cpu));
  }
}

TEST(Lessons, ImpossibleOptions_AreErrors) {
  std::string text = modelText({"model.attention=window"});
  std::vector<CompilerOptions> variants(9);
  variants[0].target = "cuda";
  variants[1].cpu = "x86-64-v9";
  variants[2].precision = "fp8";
  variants[3].microBatch = -1;
  variants[4].recompute = "all";
  variants[5].recomputeBudget = -1;
  variants[6].logitsMiB = 0;
  variants[7].allowSlowPaths = {"slow"};
  variants[8].reducePrecision = "fp8";
  for (const CompilerOptions &options : variants)
    EXPECT_FALSE(compile(text, "model.mlir", options).ok());
}

// Lesson 17: 20 GB at 2,048 tokens, for masks of quadratic size.
TEST(Lessons, ActivationMemory_IsLinearInTheLength) {
  for (const char *phi : {"nsa.phi=mean", "nsa.phi=linear"}) {
    uint64_t previous = 0;
    for (int64_t length : {512, 1024, 2048, 4096, 8192}) {
      CompileReport report = estimateModel(
          {phi, "train.seq_len=" + std::to_string(length), "nsa.w=64"});
      uint64_t bytes = report.arenaBytes + report.workspaceBytes;
      ASSERT_GT(bytes, 0u);
      if (previous) {
        EXPECT_LE(double(bytes), 2.1 * double(previous)) << length << " tokens";
        EXPECT_GE(double(bytes), 1.8 * double(previous)) << length << " tokens";
      }
      previous = bytes;
    }
  }
}
