//===- ProgramTest.cpp - loading and running programs ---------------------===//

#include "nsa/Runtime/Runtime.h"
#include "runtime/CPU/Blas.h"
#include "runtime/CPU/CPUExecutable.h"
#include "runtime/CPU/CPUFeatures.h"
#include "test/unit/Expect.h"
#include "test/unit/Runtime/ArtifactBuilder.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>

using namespace nsa;

namespace {

Artifact open(const std::string &bytes) {
  Result<Artifact> artifact =
      Artifact::fromBytes(bytes.data(), bytes.size(), "test.nsax");
  EXPECT_TRUE(artifact.ok()) << artifact.message();
  return *artifact;
}

Program load(const std::string &bytes, const RuntimeOptions &options = {}) {
  Result<Program> program = Program::create(open(bytes), options);
  EXPECT_TRUE(program.ok()) << program.message();
  return std::move(*program);
}

void expectLoadError(const std::string &bytes, const RuntimeOptions &options,
                     const std::string &part) {
  Result<Program> program = Program::create(open(bytes), options);
  EXPECT_TRUE(failsWith(program, part));
  EXPECT_EQ(program.message().rfind("test.nsax: ", 0), 0u) << program.message();
}

/// All elements of an f32 tensor.
std::vector<float> values(const Program &program, const char *name) {
  const TensorView *view = program.findTensor(name);
  return {view->as<float>(), view->as<float>() + view->elements()};
}

void setRamp(Program &program, const char *name) {
  const TensorView *view = program.findTensor(name);
  for (uint64_t i = 0; i < view->elements(); ++i)
    view->as<float>()[i] = float(i) - 7;
}

} // namespace

TEST(Program, TensorsAndEntries_AreListed) {
  Program program = load(makeTestArtifact());
  ASSERT_EQ(program.entries().size(), 4u);
  EXPECT_EQ(program.entries()[1].name, "eval");
  EXPECT_EQ(program.entries()[1].commands, 4u);
  const TensorView *w = program.findTensor("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->shape, (std::vector<uint64_t>{8, 16}));
  EXPECT_EQ(w->role, TensorRole::Parameter);
  EXPECT_EQ(w->bytes, 512u);
  EXPECT_EQ(uintptr_t(w->data) % 64, 0u);
  EXPECT_GE(program.memory().allocated, 512u);
  EXPECT_EQ(program.findTensor("nothing"), nullptr);
  EXPECT_EQ(program.tensor("bais").message(),
            "unknown tensor 'bais'; did you mean 'bias'?");
  EXPECT_EQ(program.run("evil").message(),
            "unknown entry 'evil'; did you mean 'eval'?");
}

TEST(Program, EveryKindOfCommand_Runs) {
  Program program = load(makeTestArtifact());
  ASSERT_TRUE(program.run("init").ok());
  setRamp(program, "x");
  ASSERT_TRUE(program.run("eval").ok());
  std::vector<float> x = values(program, "x"), w = values(program, "w"),
                     y = values(program, "y");
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 16; ++j) {
      double sum = 3;
      for (int k = 0; k < 8; ++k)
        sum += double(x[i * 8 + k]) * w[k * 16 + j];
      EXPECT_NEAR(y[i * 16 + j], sum, 1e-4);
    }
  EXPECT_EQ(*program.findTensor("loss")->as<float>(), y[0]);
}

TEST(Program, EveryProgramOfAGrid_RunsOnce) {
  for (int threads : {1, 2, 3, 8}) {
    RuntimeOptions options;
    options.threads = threads;
    Program program = load(makeTestArtifact(), options);
    EXPECT_EQ(program.threads(), threads);
    ASSERT_TRUE(program.run("ids").ok());
    std::vector<float> ids = values(program, "ids");
    for (size_t i = 0; i < ids.size(); ++i)
      ASSERT_EQ(ids[i], float(i));
  }
}

TEST(Program, State_SurvivesAndProgramsMove) {
  Program first = load(makeTestArtifact());
  ASSERT_TRUE(first.run("init").ok());
  std::vector<float> w = values(first, "w");
  Program second = std::move(first);
  EXPECT_EQ(values(second, "w"), w);
  EXPECT_TRUE(second.run("ids").ok());
}

TEST(Program, TwoPrograms_HaveTheirOwnKernelsAndMemory) {
  Program first = load(makeTestArtifact());
  {
    Program second = load(makeTestArtifact());
    ASSERT_TRUE(second.run("ids").ok());
    EXPECT_EQ(values(first, "ids")[5], 0);
  }
  ASSERT_TRUE(first.run("ids").ok());
  EXPECT_EQ(values(first, "ids")[5], 5);
}

TEST(Program, Seeds_DecideInitialValues) {
  RuntimeOptions options;
  std::vector<float> seeds[2];
  for (uint64_t seed : {0, 1}) {
    options.seed = seed;
    Program program = load(makeTestArtifact(), options);
    ASSERT_TRUE(program.run("init").ok());
    seeds[seed] = values(program, "w");
  }
  EXPECT_NE(seeds[0], seeds[1]);
}

TEST(Program, Kernels_HaveALargeStack) {
  ArtifactBuilder b;
  b.binary();
  unsigned out = b.tensor("out", DataType::F32, {64}, TensorRole::Output);
  unsigned kernel = b.kernel("stack", "test_stack", 64, {256}, 1);
  b.entry("main", {}, {out}, {b.launch(kernel, {b.of(out)})});
  Program program = load(b.finish());
  EXPECT_TRUE(program.run("main").ok());
}

TEST(Program, CheckFinite_NamesCommandAndLocation) {
  RuntimeOptions options;
  options.checkFinite = true;
  Program program = load(makeTestArtifact(), options);
  // -inf, from command 1, is the log-sum-exp of an empty row.
  EXPECT_EQ(program.run("poles").message(),
            "entry 'poles', command 3 (launch @pole): wrote nan to element 0 "
            "of its float output 0, from model.mlir:12:3");
  setRamp(program, "x");
  ASSERT_TRUE(program.run("init").ok());
  EXPECT_TRUE(program.run("eval").ok());
  program.findTensor("x")->as<float>()[3] = NAN;
  std::string message = program.run("eval").message();
  EXPECT_TRUE(contains(message, "command 1 (gemm 4x16x8): wrote nan"));
}

/// A file's name can hold any character; a message stays one line of text.
TEST(Program, LocationsOfSeveralLines_MakeOneLine) {
  RuntimeOptions options;
  options.checkFinite = true;
  ArtifactBuilder b;
  b.source = "a\nb\x1b[2J.mlir";
  unsigned out = b.tensor("out", DataType::F32, {1}, TensorRole::Output);
  b.entry("main", {}, {out}, {b.fill(b.of(out), INFINITY)});
  Program program = load(b.finish(), options);
  EXPECT_EQ(program.run("main").message(),
            "entry 'main', command 0 (fill): wrote inf to element 0 of its "
            "float output 0, from a?b?[2J.mlir:1:3");
}

/// What lies between the columns that a kernel writes is not its output.
TEST(Program, CheckFinite_SkipsOtherColumns) {
  RuntimeOptions options;
  options.checkFinite = options.poison = true;
  ArtifactBuilder b;
  b.binary();
  unsigned in = b.tensor("in", DataType::F32, {1}, TensorRole::Input);
  ArtifactBuilder::Slice scratch = b.arena(64);
  ArtifactBuilder::Slice column(scratch.segment(), scratch.offset() + 4, 52);
  unsigned kernel = b.kernel("column", "test_column", 4, {4, 52}, 1,
                             {artifact::Rows(1, 1), artifact::Rows(1, 4)});
  b.entry("main", {in}, {}, {b.launch(kernel, {b.of(in), column})});
  Program program = load(b.finish(), options);
  program.findTensor("in")->as<float>()[0] = 1;
  EXPECT_TRUE(program.run("main").ok());
  program.findTensor("in")->as<float>()[0] = 2e38f;
  EXPECT_EQ(program.run("main").message(),
            "entry 'main', command 0 (launch @column): wrote inf to element 2 "
            "of its float output 0, from model.mlir:1:3");
}

TEST(Program, CheckFinite_SelectedBlockBeyondToken_IsRefused) {
  RuntimeOptions options;
  options.checkFinite = true;
  Program program = load(makeSelectionArtifact(), options);
  auto *indices = program.findTensor("indices")->as<int32_t>();
  auto run = [&](std::vector<int32_t> values) {
    std::copy(values.begin(), values.end(), indices);
    Status status = program.run("main");
    return status ? std::string() : status.message();
  };
  EXPECT_EQ(run({0, -1, 0, 1}), "");
  EXPECT_EQ(run({0, 0, 2, 1}),
            "entry 'main', command 0 (launch @column): element 2 of input "
            "'indices' selects block 2 for token 2, expected -1 to 1, the "
            "block of the token, of 2 blocks of 2 tokens, from "
            "model.mlir:1:3");
  EXPECT_TRUE(contains(run({0, 1, 0, 0}),
                       "selects block 1 for token 1, expected -1 "
                       "to 0"));
  EXPECT_TRUE(contains(run({0, 0, 0, -2}), "selects block -2 for token 3"));
  Program unchecked = load(makeSelectionArtifact());
  unchecked.findTensor("indices")->as<int32_t>()[0] = 9;
  EXPECT_TRUE(unchecked.run("main").ok());
}

TEST(Program, Poison_FillsWhatARunMustWrite) {
  RuntimeOptions options;
  options.poison = true;
  ArtifactBuilder b;
  unsigned out = b.tensor("out", DataType::F32, {4}, TensorRole::Output);
  unsigned kept = b.tensor("kept", DataType::F32, {4}, TensorRole::State);
  ArtifactBuilder::Slice scratch = b.arena(16);
  b.entry("leak", {kept}, {out}, {b.copy(scratch, b.of(out))});
  b.entry("none", {kept}, {out, kept}, {});
  Program program = load(b.finish(), options);
  for (const char *entry : {"leak", "none"}) {
    program.findTensor("out")->as<float>()[0] = 1;
    ASSERT_TRUE(program.run(entry).ok());
    EXPECT_TRUE(std::isnan(values(program, "out")[0])) << entry;
    EXPECT_EQ(values(program, "kept")[0], 0) << entry;
  }
}

TEST(Program, Profile_CountsNanoseconds) {
  RuntimeOptions options;
  options.profile = true;
  Program program = load(makeTestArtifact(), options);
  const EntryInfo *entry = program.findEntry("eval");
  EXPECT_EQ(program.profile(*entry)[1].nanoseconds, 0u);
  ASSERT_TRUE(program.run(*entry).ok());
  std::vector<CommandProfile> profile = program.profile(*entry);
  ASSERT_EQ(profile.size(), 4u);
  EXPECT_GT(profile[1].nanoseconds, 0u);
  EXPECT_EQ(profile[1].command, "gemm 4x16x8");
  EXPECT_EQ(profile[1].flops, 2u * 4 * 16 * 8);
  EXPECT_EQ(profile[2].command, "launch @add_rows");
}

//===----------------------------------------------------------------------===//
// What a machine cannot run
//===----------------------------------------------------------------------===//

TEST(Program, OtherTargets_AreRefused) {
  ArtifactBuilder b;
  b.target = "sm_70";
  expectLoadError(b.finish(), {},
                  "is for the target 'sm_70', this runtime has: cpu, sm_80, "
                  "sm_86, sm_89, sm_90, sm_90a, sm_100, sm_103, sm_120");
}

TEST(Program, MissingProcessorFeatures_AreNamed) {
  ArtifactBuilder b;
  b.features = {"avx2", "sse4.1", "avx512f", "bmi"};
  Artifact artifact = open(b.finish());
  std::set<std::string> flags = parseCPUFlags(
      "processor\t: 0\nflags\t\t: fpu sse4_1 avx2\nbugs\t: spectre\n");
  EXPECT_EQ(flags.size(), 3u);
  EXPECT_EQ(checkProcessor(artifact.root(), flags).message(),
            "is compiled for the processor 'x86-64-v3'; this one lacks "
            "avx512f, bmi");
  flags.insert({"avx512f", "bmi1"});
  EXPECT_TRUE(checkProcessor(artifact.root(), flags).ok());
  ArtifactBuilder unknown;
  unknown.features = {"quantum"};
  expectLoadError(unknown.finish(), {}, "this one lacks quantum");
}

TEST(Program, MissingOpenBLAS_NamesWhatWasSearched) {
  RuntimeOptions options;
  options.blasLibrary = "/nowhere/libopenblas.so";
  expectLoadError(makeTestArtifact(), options, "/nowhere/libopenblas.so");
  options.blasLibrary = "/";
  expectLoadError(makeTestArtifact(), options, "//libopenblas.so.0");
  options.blasLibrary = NSA_TEST_KERNELS;
  expectLoadError(makeTestArtifact(), options, "is not OpenBLAS");
  ArtifactBuilder b;
  b.entry("main", {}, {}, {b.fill(b.arena(64), 1)});
  options.blasLibrary = "/nowhere";
  EXPECT_TRUE(Program::create(open(b.finish()), options).ok());
}

TEST(Program, OpenBLAS_RunsTheKernelsOfThisProcessor) {
  EXPECT_EQ(pickBlasCore({"sse2", "avx", "fma"}), "");
  EXPECT_EQ(pickBlasCore({"avx", "avx2", "fma", "avx512f"}), "Haswell");
  EXPECT_EQ(pickBlasCore({"avx2", "fma", "avx512f", "avx512cd", "avx512bw",
                          "avx512dq", "avx512vl", "amx_tile"}),
            "SkylakeX");
  if (std::getenv("OPENBLAS_CORETYPE"))
    GTEST_SKIP() << "OPENBLAS_CORETYPE names the kernels";
  std::string best = pickBlasCore(hostCPUFlags());
  if (best.empty())
    GTEST_SKIP() << "OpenBLAS chooses for itself on this processor";
  Program program = take(Program::create(open(makeTestArtifact())));
  EXPECT_EQ(program.gemmLibrary(), "OpenBLAS (" + best + ")");
  EXPECT_EQ(std::getenv("OPENBLAS_CORETYPE"), nullptr);
}

TEST(Program, Binaries_AreChecked) {
  ArtifactBuilder none;
  none.kernel("k", "test_add", 1, {}, 0);
  expectLoadError(none.finish(), {},
                  "has no binary of the format objects-x86-64, "
                  "which this version runs; compile it again");
  ArtifactBuilder symbol;
  symbol.binary();
  symbol.kernel("k", "test_missing", 1, {}, 0);
  expectLoadError(symbol.finish(), {},
                  "kernel 'k' is the symbol 'test_missing', which its binary "
                  "does not define");
  ArtifactBuilder text;
  text.binary("/proc/self/comm");
  text.kernel("k", "test_add", 1, {}, 0);
  expectLoadError(text.finish(), {}, "its binary is not an archive of objects");
}

TEST(Program, TooLittleMemory_IsAnError) {
  ArtifactBuilder b;
  b.arena(uint64_t(1) << 47);
  expectLoadError(b.finish(), {}, "no memory for 140737488355328 bytes");
  ArtifactBuilder more;
  more.arena(uint64_t(1) << 50);
  std::string bytes = more.finish();
  EXPECT_FALSE(Artifact::fromBytes(bytes.data(), bytes.size()).ok());
}

TEST(Program, ThreadCounts_AreBounded) {
  RuntimeOptions options;
  options.threads = -1;
  expectLoadError(makeTestArtifact(), options, "cannot run on -1 threads");
}
