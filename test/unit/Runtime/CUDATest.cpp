//===- CUDATest.cpp - programs on a stand-in for a GPU --------------------===//

#include "test/unit/Runtime/CUDATest.h"
#include "runtime/CUDA/GPU.h"
#include "test/unit/Expect.h"
#include "test/unit/Runtime/ArtifactBuilder.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <sstream>
#include <tuple>
#include <utility>

using namespace nsa;

namespace {

void set(Program &program, const char *name, float value) {
  const TensorView *view = program.findTensor(name);
  std::fill(view->as<float>(), view->as<float>() + view->elements(), value);
}

/// A step of several passes: accumulate(x, y) adds x to a sum; update(hyper)
/// gives the sum out and clears it. As the compiler does, the outputs lie
/// after the inputs, with those of other entries between them.
std::string makeStep() {
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.binary();
  unsigned sum = b.tensor("sum", DataType::F32, {16}, TensorRole::State);
  unsigned x = b.tensor("x", DataType::F32, {16}, TensorRole::Input);
  unsigned y = b.tensor("y", DataType::F32, {3}, TensorRole::Input);
  unsigned hyper = b.tensor("hyper", DataType::F32, {1}, TensorRole::Input);
  unsigned loss = b.tensor("loss", DataType::F32, {16}, TensorRole::Output);
  unsigned other = b.tensor("other", DataType::F32, {4}, TensorRole::Output);
  unsigned norm = b.tensor("norm", DataType::F32, {1}, TensorRole::Output);
  unsigned add = b.kernel("add", "test_add", 1, {64, 64, 64}, 1);
  b.entry("accumulate", {x, y}, {},
          {b.launch(add, {b.of(sum), b.of(x), b.of(sum)})});
  b.entry("eval", {x}, {other}, {b.fill(b.of(other), 5)});
  b.entry("update", {hyper}, {norm, loss},
          {b.copy(b.of(sum), b.of(loss)), b.copy(b.of(hyper), b.of(norm)),
           b.fill(b.of(sum), 0)});
  return b.finish();
}

void startStep(Program &program, int passes, float first) {
  for (int pass = 0; pass < passes; ++pass) {
    set(program, "x", first + float(pass));
    ASSERT_TRUE(program.start(*program.findEntry("accumulate")).ok());
  }
  set(program, "hyper", first);
  ASSERT_TRUE(program.start(*program.findEntry("update")).ok());
  // Only what they held at the start counts.
  set(program, "x", NAN);
  set(program, "hyper", NAN);
}

} // namespace

TEST_F(CUDATest, EveryKindOfCommand_Runs) {
  Program gpu = load(makeTestArtifact("sm_90a"));
  options.blasLibrary.clear();
  Program cpu = load(makeTestArtifact());
  for (Program *program : {&gpu, &cpu}) {
    ASSERT_TRUE(program->run("init").ok());
    const TensorView *x = program->findTensor("x");
    for (uint64_t i = 0; i < x->elements(); ++i)
      x->as<float>()[i] = float(i) - 7;
  }
  // The second run records a graph, the third replays it.
  for (int run = 0; run < 3; ++run) {
    set(gpu, "y", NAN);
    for (Program *program : {&gpu, &cpu}) {
      ASSERT_TRUE(program->run("eval").ok());
      ASSERT_TRUE(program->run("ids").ok());
    }
    std::vector<float> a = values(gpu, "y"), b = values(cpu, "y");
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 1e-4);
    EXPECT_EQ(values(gpu, "loss")[0], a[0]);
    EXPECT_EQ(values(gpu, "ids"), values(cpu, "ids"));
  }
  EXPECT_EQ(values(gpu, "w"), values(cpu, "w"));
}

/// The entry `main`: sum = sum + x twice, after a fill.
static std::string makeLaunches(const std::string &overlapped) {
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.overlappedEntry = overlapped;
  b.binary();
  unsigned x = b.tensor("x", DataType::F32, {16}, TensorRole::Input);
  unsigned sum = b.tensor("sum", DataType::F32, {16}, TensorRole::Output);
  unsigned add = b.kernel("add", "test_add", 1, {64, 64, 64}, 1);
  auto launch = [&] { return b.launch(add, {b.of(sum), b.of(x), b.of(sum)}); };
  b.entry("main", {x}, {sum}, {b.fill(b.of(sum), 1), launch(), launch()});
  return b.finish();
}

static unsigned countEarly(const std::string &log) {
  unsigned count = 0;
  for (size_t at = log.find("cuLaunchKernelEx"); at != std::string::npos;
       at = log.find("cuLaunchKernelEx", at + 1))
    ++count;
  return count;
}

TEST_F(CUDATest, OverlappedEntry_LaunchesAfterLaunchesBeginEarly) {
  for (const char *entry : {"main", "", "other"}) {
    Program program = load(makeLaunches(entry));
    set(program, "x", 2);
    takeLog();
    ASSERT_TRUE(program.run("main").ok());
    EXPECT_EQ(countEarly(takeLog()), *entry == 'm' ? 1U : 0U) << entry;
    EXPECT_EQ(values(program, "sum"), std::vector<float>(16, 5));
  }
}

TEST_F(CUDATest, OverlappedEntry_MeasuredLaunchesWaitForEachOther) {
  options.profile = true;
  Program program = load(makeLaunches("main"));
  takeLog();
  ASSERT_TRUE(program.run("main").ok());
  EXPECT_EQ(countEarly(takeLog()), 0U);
}

TEST_F(CUDATest, Step_WaitsOnceAndCopiesOneBlockBack) {
  Program program = load(makeStep());
  for (int step = 0; step < 4; ++step) {
    takeLog();
    startStep(program, 3, float(step));
    std::string started = takeLog();
    EXPECT_FALSE(contains(started, "Synchronize"));
    EXPECT_FALSE(contains(started, "DtoH"));
    EXPECT_FALSE(contains(started, "pageable"));
    // The first step has as much pinned memory made as its passes need.
    EXPECT_EQ(started.find("Alloc") == std::string::npos, step > 0) << started;
    ASSERT_TRUE(program.finish(*program.findEntry("update")).ok());
    // From the first element of `loss` to the one of `norm`.
    EXPECT_EQ(takeLog(), "cuMemcpyDtoHAsync 132 pinned\n"
                         "cuStreamSynchronize\n");
    EXPECT_EQ(values(program, "loss"),
              std::vector<float>(16, 3 * float(step) + 3));
    EXPECT_EQ(values(program, "norm")[0], float(step));
    // What lies between them belongs to another entry.
    EXPECT_EQ(values(program, "other")[0], step > 0 ? 5.0f : 0.0f);
    ASSERT_TRUE(program.run("eval").ok());
    set(program, "other", 5);
  }
}

TEST_F(CUDATest, PinnedHost_ReceivesStatesFromPinnedMemory) {
  Program program = load(makeStep());
  startStep(program, 1, 4);
  const TensorView *sum = program.findTensor("sum");
  takeLog();
  ASSERT_TRUE(program.toHost(*sum).ok());
  EXPECT_EQ(takeLog(), "cuMemcpyDtoHAsync 64 pageable\ncuStreamSynchronize\n");
  ASSERT_TRUE(program.pinHost().ok());
  EXPECT_EQ(takeLog().substr(0, 18), "cuMemHostRegister ");
  ASSERT_TRUE(program.pinHost().ok());
  EXPECT_EQ(takeLog(), "") << "it was pinned before";
  ASSERT_TRUE(program.toHost(*sum).ok());
  EXPECT_EQ(takeLog(), "cuMemcpyDtoHAsync 64 pinned\ncuStreamSynchronize\n");
}

TEST_F(CUDATest, LargeOutput_IsNotCopiedOnceMoreOnTheHost) {
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.binary();
  unsigned logits =
      b.tensor("logits", DataType::F32, {4, 100000}, TensorRole::Output);
  unsigned next = b.tensor("next", DataType::F32, {4}, TensorRole::Output);
  b.entry("decode", {}, {logits, next},
          {b.fill(b.of(logits), 5), b.fill(b.of(next), 6)});
  Program program = load(b.finish());
  ASSERT_TRUE(program.run("decode").ok());
  EXPECT_TRUE(contains(takeLog(), "cuMemHostRegister "));
  ASSERT_TRUE(program.start(*program.findEntry("decode")).ok());
  takeLog();
  ASSERT_TRUE(program.finish(*program.findEntry("decode")).ok());
  EXPECT_EQ(takeLog(), "cuMemcpyDtoHAsync 16 pinned\n"
                       "cuMemcpyDtoHAsync 1600000 pinned\n"
                       "cuStreamSynchronize\n");
  EXPECT_EQ(values(program, "logits"), std::vector<float>(400000, 5));
  EXPECT_EQ(values(program, "next"), std::vector<float>(4, 6));
}

TEST_F(CUDATest, InputsSideBySide_AreOneCopy) {
  Program program = load(makeStep());
  startStep(program, 1, 0);
  startStep(program, 1, 0);
  ASSERT_TRUE(program.finish(*program.findEntry("update")).ok());
  takeLog();
  startStep(program, 1, 0);
  EXPECT_EQ(takeLog(), "cuMemcpyHtoDAsync 76 pinned\n"
                       "cuGraphLaunch\n"
                       "cuMemcpyHtoDAsync 4 pinned\n"
                       "cuGraphLaunch\n");
}

//===----------------------------------------------------------------------===//
// Tensor maps
//===----------------------------------------------------------------------===//

namespace {

/// An entry whose one kernel gives out what it is launched with besides `seen`:
/// the address of columns of a bf16 matrix, and two tensor maps of them.
std::string makeMapped() {
  using artifact::Rows;
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.binary();
  unsigned x = b.tensor("x", DataType::BF16, {4, 2, 96}, TensorRole::Input);
  unsigned seen = b.tensor("seen", DataType::BF16, {132}, TensorRole::Output);
  ArtifactBuilder::Slice whole = b.of(x);
  ArtifactBuilder::Slice columns(whole.segment(), whole.offset() + 64, 1472);
  unsigned kernel = b.kernel(
      "maps", "test_maps", 1, {1472, 264}, 1, {Rows(64, 96), Rows(132, 132)},
      {{0, {64, 2, 4}, {192, 384}, {64, 1, 4}, 128}, {0, {64}, {}, {16}, 0}},
      DataType::BF16);
  b.entry("main", {x}, {seen}, {b.launch(kernel, {columns, b.of(seen)})});
  return b.finish();
}

struct Seen {
  uint64_t address;
  FakeTensorMap maps[2];
};

Seen seenBy(const Program &program) {
  Seen seen;
  const char *data = program.findTensor("seen")->as<char>();
  std::memcpy(&seen.address, data, sizeof seen.address);
  for (unsigned i = 0; i < 2; ++i)
    std::memcpy(&seen.maps[i], data + 8 + 128 * i, sizeof seen.maps[i]);
  return seen;
}

template <typename T, size_t n>
std::vector<T> listOf(const T (&values)[n]) {
  return {values, values + n};
}

} // namespace

TEST_F(CUDATest, Launches_PassTensorMapsAfterTheArguments) {
  Program program = load(makeMapped());
  // The second run records a graph, the third replays it.
  for (int run = 0; run < 3; ++run) {
    const TensorView *view = program.findTensor("seen");
    std::memset(view->as<char>(), 0, view->bytes);
    ASSERT_TRUE(program.run("main").ok());
    Seen seen = seenBy(program);
    const FakeTensorMap &wide = seen.maps[0], &narrow = seen.maps[1];
    EXPECT_NE(seen.address, 0u);
    EXPECT_EQ(wide.address, seen.address);
    EXPECT_EQ(narrow.address, seen.address);
    using Longs = std::vector<uint64_t>;
    using Ints = std::vector<uint32_t>;
    EXPECT_EQ(wide.rank, 3);
    EXPECT_EQ(listOf(wide.extents), (Longs{64, 2, 4, 0, 0}));
    EXPECT_EQ(listOf(wide.strides), (Longs{192, 384, 0, 0}));
    EXPECT_EQ(listOf(wide.box), (Ints{64, 1, 4, 0, 0}));
    EXPECT_EQ(listOf(wide.steps), (Ints{1, 1, 1, 0, 0}));
    // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, ..._SWIZZLE_128B, ..._L2_256B.
    EXPECT_EQ(wide.type, 9);
    EXPECT_EQ(wide.swizzle, 3);
    EXPECT_EQ(wide.promotion, 3);
    EXPECT_EQ(wide.interleave, 0);
    EXPECT_EQ(wide.fill, 0);
    EXPECT_EQ(narrow.rank, 1);
    EXPECT_EQ(listOf(narrow.extents), (Longs{64, 0, 0, 0, 0}));
    EXPECT_EQ(listOf(narrow.box), (Ints{16, 0, 0, 0, 0}));
    EXPECT_EQ(narrow.swizzle, 0);
  }
}

TEST_F(CUDATest, ErrorOfATensorMap_NamesIt) {
  fakeCUDAFail("cuTensorMapEncodeTiled", 2);
  EXPECT_EQ(create(makeMapped()).message(),
            "test.nsax: entry 'main': command 0 (launch @maps): tensor map 1 "
            "of argument 0: cuTensorMapEncodeTiled: an illegal memory access "
            "was encountered (CUDA_ERROR_ILLEGAL_ADDRESS), from "
            "model.mlir:1:3");
}

TEST_F(CUDATest, OldDrivers_RunWhatNeedsNoTensorMaps) {
  const cuda::Driver *opened = take(cuda::Driver::open());
  auto *driver = const_cast<cuda::Driver *>(opened);
  auto encode = std::exchange(driver->TensorMapEncodeTiled, nullptr);
  EXPECT_EQ(create(makeMapped()).message(),
            "test.nsax: entry 'main': command 0 (launch @maps): needs tensor "
            "maps, but the CUDA driver is too old: it has no "
            "cuTensorMapEncodeTiled, from model.mlir:1:3");
  EXPECT_TRUE(create(makeStep()).ok());
  driver->TensorMapEncodeTiled = encode;
}

//===----------------------------------------------------------------------===//
// Memory and time
//===----------------------------------------------------------------------===//

TEST_F(CUDATest, Allocation_IsWhatWasPlanned) {
  Program program = load(makeTestArtifact("sm_90a"));
  std::istringstream log(takeLog());
  std::string line;
  uint64_t allocated = 0;
  while (std::getline(log, line))
    if (line.rfind("cuMemAlloc ", 0) == 0)
      allocated += std::stoull(line.substr(line.find(' ')));
  MemoryUse use = program.memory();
  EXPECT_GT(allocated, 0u);
  EXPECT_EQ(use.plannedBytes(), allocated);
  EXPECT_EQ(use.allocated, allocated);
  EXPECT_EQ(use.inUse, allocated);
  fakeCUDAUse(1 << 20);
  EXPECT_EQ(program.memory().inUse, allocated + (1 << 20));
}

TEST_F(CUDATest, Profiles_HaveTheTimesOfTheGPU) {
  options.profile = true;
  Program program = load(makeTestArtifact("sm_90a"));
  const EntryInfo *entry = program.findEntry("eval");
  uint64_t end = 0;
  for (int run = 0; run < 3; ++run) {
    ASSERT_TRUE(program.run(*entry).ok());
    // However fast the host is, what the GPU does follows one another.
    EXPECT_GE(program.lastRun(*entry)[0].start, end);
    end = program.lastRun(*entry)[3].start;
  }
  std::vector<CommandProfile> profile = program.profile(*entry);
  const std::vector<CommandSpan> &spans = program.lastRun(*entry);
  ASSERT_EQ(spans.size(), 4u);
  // A kernel takes a millisecond there.
  EXPECT_NEAR(double(profile[2].nanoseconds), 3e6, 10);
  EXPECT_NEAR(double(spans[2].nanoseconds), 1e6, 10);
  EXPECT_NEAR(double(spans[3].start - spans[2].start), 1e6, 10);
  EXPECT_LT(profile[3].nanoseconds, 10000u);
  EXPECT_FALSE(profile[2].hasHalf);
}

TEST_F(CUDATest, Peaks_AreThoseOfTheGPU) {
  Program program = load(makeTestArtifact("sm_90a"));
  uint64_t before = program.memory().inUse;
  std::optional<GPUPeaks> peaks = take(program.measureGPU());
  ASSERT_TRUE(peaks.has_value());
  EXPECT_EQ(peaks->name, "Fake H100, CUDA 12.8");
  EXPECT_EQ(program.gpu(), "Fake H100, CUDA 12.8");
  EXPECT_NEAR(peaks->copy / kFakeCopySpeed, 1, 1e-3);
  EXPECT_NEAR(peaks->flops / kFakeFloatSpeed, 1, 1e-3);
  EXPECT_NEAR(peaks->halfFlops / kFakeHalfSpeed, 1, 1e-3);
  EXPECT_EQ(program.memory().inUse, before);
  fakeCUDAFail("cuMemAlloc", 1);
  EXPECT_EQ(program.measureGPU().message().rfind(
                "the GPU cannot be measured: cuMemAlloc: ", 0),
            0u);
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

TEST_F(CUDATest, NoGraph_NamesTheFirstCommandThatIsNotFinite) {
  options.noGraph = true;
  Program program = load(makeTestArtifact("sm_90a"));
  EXPECT_EQ(program.run("poles").message(),
            "entry 'poles', command 3 (launch @pole): wrote nan to element 0 "
            "of its float output 0, from model.mlir:12:3");
  ASSERT_TRUE(program.run("init").ok());
  EXPECT_TRUE(program.run("eval").ok());
  set(program, "x", NAN);
  std::string message = program.run("eval").message();
  EXPECT_TRUE(contains(message, "command 1 (gemm 4x16x8): wrote nan"));
}

TEST_F(CUDATest, FiniteChecks_SkipOtherColumns) {
  options.checkFinite = options.poison = true;
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.binary();
  unsigned in = b.tensor("in", DataType::F32, {1}, TensorRole::Input);
  ArtifactBuilder::Slice scratch = b.arena(64);
  ArtifactBuilder::Slice column(scratch.segment(), scratch.offset() + 4, 52);
  unsigned kernel = b.kernel("column", "test_column", 4, {4, 52}, 1,
                             {artifact::Rows(1, 1), artifact::Rows(1, 4)});
  b.entry("main", {in}, {}, {b.launch(kernel, {b.of(in), column})});
  Program program = load(b.finish());
  set(program, "in", 1);
  EXPECT_TRUE(program.run("main").ok());
  set(program, "in", 2e38f);
  EXPECT_EQ(program.run("main").message(),
            "entry 'main', command 0 (launch @column): wrote inf to element 2 "
            "of its float output 0, from model.mlir:1:3");
}

TEST_F(CUDATest, NoGraph_SelectedBlockBeyondToken_IsRefused) {
  options.noGraph = true;
  Program program = load(makeSelectionArtifact("sm_90a"));
  int32_t good[] = {0, -1, 0, 1}, bad[] = {0, 0, 2, 1};
  const TensorView &indices = *program.findTensor("indices");
  std::copy_n(good, 4, indices.as<int32_t>());
  EXPECT_TRUE(program.run("main").ok());
  std::copy_n(bad, 4, indices.as<int32_t>());
  EXPECT_EQ(program.run("main").message(),
            "entry 'main', command 0 (launch @column): element 2 of input "
            "'indices' selects block 2 for token 2, expected -1 to 1, the "
            "block of the token, of 2 blocks of 2 tokens, from "
            "model.mlir:1:3");
}

TEST_F(CUDATest, NoGraph_NamesTheCommandOfADriverError) {
  options.noGraph = true;
  Program program = load(makeTestArtifact("sm_90a"));
  ASSERT_TRUE(program.run("eval").ok());
  takeLog();
  // After the inputs, command 0 and the check of what it wrote.
  fakeCUDAFail("cuStreamSynchronize", 3);
  EXPECT_EQ(program.run("eval").message(),
            "entry 'eval', command 1 (gemm 4x16x8): cuStreamSynchronize: an "
            "illegal memory access was encountered "
            "(CUDA_ERROR_ILLEGAL_ADDRESS), from model.mlir:5:3");
  fakeCUDAReset();
  fakeCUDAFail("cuLaunchKernel", 1);
  EXPECT_EQ(program.run("eval").message(),
            "entry 'eval', command 2 (launch @add_rows): cuLaunchKernel: an "
            "illegal memory access was encountered "
            "(CUDA_ERROR_ILLEGAL_ADDRESS), from model.mlir:6:3");
}

TEST_F(CUDATest, ErrorOfAGraph_BelongsToNoCommand) {
  Program program = load(makeTestArtifact("sm_90a"));
  fakeCUDAFail("cuStreamSynchronize", 1);
  EXPECT_EQ(program.run("eval").message(),
            "entry 'eval': cuStreamSynchronize: an illegal memory access was "
            "encountered (CUDA_ERROR_ILLEGAL_ADDRESS); --no-graph names the "
            "command that failed");
}

TEST_F(CUDATest, BatchOfMatmuls_HasAFactorAndAnAddend) {
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.binary();
  unsigned x = b.tensor("x", DataType::F32, {2, 1, 2}, TensorRole::Input);
  unsigned y = b.tensor("y", DataType::F32, {2, 2, 2}, TensorRole::Input);
  unsigned z = b.tensor("z", DataType::F32, {2, 1, 2}, TensorRole::Input);
  unsigned out = b.tensor("out", DataType::F32, {2, 1, 2}, TensorRole::Output);
  artifact::Slice addend = b.of(z);
  b.entry("main", {x, y, z}, {out},
          {b.gemm(1, 2, 2, b.of(x), b.of(y), b.of(out), /*beta=*/10,
                  DataType::F32, /*transposeLhs=*/false, /*transposeRhs=*/true,
                  /*alpha=*/2, &addend, /*batch=*/2)});
  Program program = load(b.finish());
  auto fill = [&](const char *name, std::vector<float> values) {
    std::copy(values.begin(), values.end(),
              program.findTensor(name)->as<float>());
  };
  fill("x", {1, 2, 3, 4});
  fill("y", {1, 0, 0, 1, 1, 1, 2, 0});
  fill("z", {1, 2, 3, 4});
  ASSERT_TRUE(program.run("main").ok());
  const float *got = program.findTensor("out")->as<float>();
  EXPECT_EQ(std::vector<float>(got, got + 4),
            (std::vector<float>{12, 24, 44, 52}));
}

TEST_F(CUDATest, MatmulWithoutAlgorithm_IsNamed) {
  fakeCUDAFail("cublasLtMatmulAlgoGetHeuristic", 1);
  EXPECT_EQ(create(makeTestArtifact("sm_90a")).message(),
            "test.nsax: entry 'eval': command 1 (gemm 4x16x8): cuBLASLt has no "
            "algorithm for a matmul of 4x8 and 8x16 (status 15), from "
            "model.mlir:5:3");
}

TEST_F(CUDATest, OtherChips_AreRefused) {
  EXPECT_EQ(create(makeTestArtifact("sm_80")).message(),
            "test.nsax: is for the target 'sm_80', without PTX for later GPUs; "
            "the Fake H100 has compute capability 9.0");
  setenv("FAKE_CUDA_CAPABILITY", "100", 1);
  EXPECT_EQ(create(makeTestArtifact(
                       "sm_90a", {artifact::cubinFormat, artifact::ptxFormat}))
                .message(),
            "test.nsax: is for the target 'sm_90a'; the Fake H100 has compute "
            "capability 10.0");
  setenv("FAKE_CUDA_CAPABILITY", "80", 1);
  EXPECT_EQ(create(makeTestArtifact(
                       "sm_86", {artifact::cubinFormat, artifact::ptxFormat}))
                .message(),
            "test.nsax: is for the target 'sm_86'; the Fake H100 has compute "
            "capability 8.0");
  unsetenv("FAKE_CUDA_CAPABILITY");
}

TEST_F(CUDATest, Text_RunsOnLaterChips) {
  Program program = load(makeTestArtifact("sm_86", {artifact::ptxFormat}));
  EXPECT_TRUE(program.run("ids").ok());
}

// Only the driver's code of PTX is looked at for spills: that tells which form
// was taken.
TEST_F(CUDATest, CubinWithText_IsTextOnLaterChips) {
  const std::string program =
      makeTestArtifact("sm_80", {artifact::cubinFormat, artifact::ptxFormat});
  for (auto [capability, isText] :
       {std::pair("80", false), {"86", false}, {"90", true}, {"100", true}}) {
    setenv("FAKE_CUDA_CAPABILITY", capability, 1);
    fakeCUDAReset();
    fakeCUDASpill("test_add", 48);
    testing::internal::CaptureStderr();
    Program loaded = load(program);
    EXPECT_EQ(!testing::internal::GetCapturedStderr().empty(), isText)
        << capability;
    EXPECT_TRUE(loaded.run("ids").ok());
  }
  unsetenv("FAKE_CUDA_CAPABILITY");
}

TEST_F(CUDATest, TheTargetOfAGPUIsTheBestThatRunsThere) {
  for (auto [capability, name, isText] : {std::tuple("90", "sm_90a", false),
                                          {"89", "sm_89", false},
                                          {"86", "sm_86", false},
                                          {"80", "sm_80", false},
                                          {"100", "sm_100", false},
                                          {"103", "sm_103", false},
                                          {"110", "sm_103", true},
                                          {"121", "sm_120", false}}) {
    setenv("FAKE_CUDA_CAPABILITY", capability, 1);
    cuda::GPU::Target target = take(cuda::GPU::findTarget(0));
    EXPECT_EQ(target.name, name) << capability;
    EXPECT_EQ(target.isText, isText) << capability;
  }
  setenv("FAKE_CUDA_CAPABILITY", "75", 1);
  std::string message = cuda::GPU::findTarget(0).message();
  unsetenv("FAKE_CUDA_CAPABILITY");
  EXPECT_TRUE(contains(message,
                       "has compute capability 7.5, artefacts are for sm_80, "
                       "sm_86, sm_89, sm_90, sm_90a, sm_100, sm_103, sm_120"));
}

// As a cubin, its spills were checked when it was made.
TEST_F(CUDATest, LocalMemoryOfText_IsAWarning) {
  auto messages = [&](const char *format) {
    fakeCUDAReset();
    fakeCUDASpill("test_add", 48);
    testing::internal::CaptureStderr();
    load(makeTestArtifact("sm_90a", {format}));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(messages(artifact::ptxFormat),
            "warning: kernel 'add_rows' keeps 48 bytes of each thread in local "
            "memory, as the GPU's driver compiled it from PTX: it may be "
            "slow\n");
  EXPECT_EQ(messages(artifact::cubinFormat), "");
}
