//===- CUDASessionTest.cpp - arrays of callers on a GPU -------------------===//

#include "nsa/Runtime/Session.h"
#include "test/unit/Expect.h"
#include "test/unit/Runtime/ArtifactBuilder.h"
#include "test/unit/Runtime/CUDATest.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsa;

namespace {

/// eval: y = w times x, added to itself; loss is its first element.
std::string makeEvaluation() {
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.binary();
  unsigned w = b.tensor("w", DataType::F32, {8, 16}, TensorRole::Parameter,
                        artifact::InitKind::Normal, 0.5);
  unsigned x = b.tensor("x", DataType::F32, {4, 8}, TensorRole::Input);
  unsigned y = b.tensor("y", DataType::F32, {4, 16}, TensorRole::Output);
  unsigned loss = b.tensor("loss", DataType::F32, {}, TensorRole::Output);
  unsigned add = b.kernel("add_rows", "test_add", 4, {256, 256, 256}, 1);
  ArtifactBuilder::Slice product = b.arena(256);
  b.entry("init", {}, {w}, {b.initialize(w)});
  b.entry("eval", {x}, {y, loss},
          {b.gemm(4, 16, 8, b.of(x), b.of(w), product),
           b.launch(add, {product, product, b.of(y)}),
           b.copy({1, b.of(y).offset(), 4}, b.of(loss))});
  return b.finish();
}

} // namespace

extern "C" {
int cuCtxSetCurrent(void *context);
int cuCtxGetCurrent(void **context);
int cuCtxSynchronize();
}

namespace {

/// Arrays of its entry; the stand-in's GPU is the host's memory.
struct DeviceArrays {
  explicit DeviceArrays(float first) {
    for (int i = 0; i < 32; ++i)
      x[i] = first + float(i);
    std::fill(std::begin(y), std::end(y), NAN);
  }
  /// What was put on a stream writes them until it has run.
  ~DeviceArrays() { cuCtxSynchronize(); }
  std::vector<Argument> arguments() {
    Device gpu{Device::Kind::CUDA, 0};
    return {{"x", {x, DataType::F32, {4, 8}, {}, gpu}},
            {"y", {y, DataType::F32, {4, 16}, {}, gpu}},
            {"loss", {loss, DataType::F32, {}, {}, gpu}}};
  }
  alignas(256) float x[32], y[64], loss[1] = {NAN};
};

class CUDASessionTest : public CUDATest {
protected:
  std::unique_ptr<Session> create() {
    std::string bytes = makeEvaluation();
    Result<Artifact> artifact =
        Artifact::fromBytes(bytes.data(), bytes.size(), "test.nsax");
    Result<std::unique_ptr<Session>> session =
        Session::create(*artifact, options);
    EXPECT_TRUE(session.ok()) << session.message();
    return std::move(*session);
  }

  std::unique_ptr<Session> open() {
    std::unique_ptr<Session> session = create();
    EXPECT_TRUE(session->call("init", {}).ok());
    return session;
  }

  /// A program that its callers give all memory.
  std::unique_ptr<Session> openWithoutMemory() {
    options.externalMemory = true;
    return create();
  }

  /// What its entry runs on.
  static std::vector<Binding> bind(Session &session, DeviceArrays &arrays,
                                   float *w) {
    Result<std::vector<Binding>> bindings =
        session.bind(evaluation(session), arrays.arguments());
    EXPECT_TRUE(bindings.ok()) << bindings.message();
    bindings->push_back({0, w});
    return std::move(*bindings);
  }

  static const EntryInfo &evaluation(const Session &session) {
    return *session.program().findEntry("eval");
  }

  /// What the same program gives on its own memory.
  std::vector<float> expected(const DeviceArrays &arrays) {
    Program program = load(makeEvaluation());
    EXPECT_TRUE(program.run("init").ok());
    std::copy(std::begin(arrays.x), std::end(arrays.x),
              program.findTensor("x")->as<float>());
    EXPECT_TRUE(program.run("eval").ok());
    return values(program, "y");
  }
};

} // namespace

TEST_F(CUDASessionTest, Call_UsesArraysOnTheGPUWithoutCopies) {
  std::unique_ptr<Session> session = open();
  DeviceArrays first(-7), second(3);
  // Equal arrays replay a graph at last, others have none.
  std::vector<DeviceArrays *> calls(12, &first);
  calls.insert(calls.end(), {&second, &first});
  for (DeviceArrays *arrays : calls) {
    std::fill(std::begin(arrays->y), std::end(arrays->y), NAN);
    takeLog();
    ASSERT_TRUE(session->call("eval", arrays->arguments()).ok());
    std::string log = takeLog();
    EXPECT_FALSE(contains(log, "HtoD"));
    EXPECT_FALSE(contains(log, "DtoH"));
    EXPECT_EQ(std::vector<float>(arrays->y, arrays->y + 64), expected(*arrays));
    EXPECT_EQ(arrays->loss[0], arrays->y[0]);
  }
}

TEST_F(CUDASessionTest, CallInAChild_IsAnError) {
  std::unique_ptr<Session> session = open();
  pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    DeviceArrays arrays(1);
    Status status = session->call("eval", arrays.arguments());
    bool isNamed =
        !status && status.message().find("forked from") != std::string::npos;
    ::_exit(isNamed ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(CUDASessionTest, CallOnAStream_DoesNotWait) {
  std::unique_ptr<Session> session = open();
  DeviceArrays first(-7), second(3);
  for (int i = 0; i < 3; ++i)
    for (DeviceArrays *arrays : {&first, &second}) {
      takeLog();
      ASSERT_TRUE(session->call("eval", arrays->arguments(), 4096).ok());
      // The first call changes what is copied to the GPU.
      if (std::string log = takeLog(); i > 0) {
        EXPECT_FALSE(contains(log, "Synchronize"));
        EXPECT_FALSE(contains(log, "Alloc"));
      }
    }
  ASSERT_TRUE(session->call("init", {}).ok());
  EXPECT_EQ(std::vector<float>(first.y, first.y + 64), expected(first));
  EXPECT_EQ(std::vector<float>(second.y, second.y + 64), expected(second));
}

TEST_F(CUDASessionTest, CallOnAStreamThatRecords_BelongsToItsGraph) {
  std::unique_ptr<Session> session = open();
  DeviceArrays arrays(0);
  std::string before, log;
  for (int i = 0; i < 12; ++i) {
    before = log;
    fakeCUDAReset();
    fakeCUDARecord(i == 11);
    ASSERT_TRUE(session->call("eval", arrays.arguments(), 4096).ok());
    log = takeLog();
  }
  EXPECT_TRUE(contains(before, "cuGraphLaunch"));
  EXPECT_FALSE(contains(log, "cuGraphLaunch"));
  EXPECT_TRUE(contains(log, "cuLaunchKernel"));
  fakeCUDARecord(false);
}

TEST_F(CUDASessionTest, ExternalMemory_NothingIsAllocated) {
  takeLog();
  std::unique_ptr<Session> session = openWithoutMemory();
  const EntryInfo &eval = evaluation(*session);
  alignas(256) float w[128];
  std::fill(std::begin(w), std::end(w), 0.5f);
  std::vector<char> scratch(session->program().scratchBytes());
  DeviceArrays first(-7), second(3);
  for (int i = 0; i < 12; ++i)
    for (DeviceArrays *arrays : {&first, &second}) {
      std::vector<Binding> bindings = bind(*session, *arrays, w);
      ASSERT_TRUE(succeeds(
          session->run(eval, bindings, std::nullopt, {}, scratch.data())));
    }
  EXPECT_FALSE(contains(takeLog(), "Alloc"));
  float sum = 0;
  for (int i = 0; i < 8; ++i)
    sum += second.x[i];
  EXPECT_EQ(second.y[0], sum);
  EXPECT_EQ(second.loss[0], sum);
}

TEST_F(CUDASessionTest, ExternalMemoryOnAStream_FailingCommandIsNamed) {
  std::unique_ptr<Session> session = openWithoutMemory();
  const EntryInfo &eval = evaluation(*session);
  alignas(256) float w[128] = {};
  std::vector<char> scratch(session->program().scratchBytes());
  DeviceArrays arrays(0);
  std::vector<Binding> bindings = bind(*session, arrays, w);
  fakeCUDAFail("cuLaunchKernel", 1);
  std::string message =
      session->run(eval, bindings, 4096, {}, scratch.data()).message();
  EXPECT_TRUE(contains(message, "launch @add_rows"));
  EXPECT_TRUE(contains(message, "cuLaunchKernel: an illegal memory access"));
  fakeCUDAReset();
  std::vector<Binding> without(bindings.begin(), bindings.end() - 1);
  message = session->run(eval, without, 4096, {}, scratch.data()).message();
  EXPECT_TRUE(contains(message,
                       "bytes of a program without memory for which none was "
                       "given"));
}

TEST_F(CUDASessionTest, ExternalMemoryOnAStream_OnlyLaunches) {
  std::unique_ptr<Session> session = openWithoutMemory();
  const EntryInfo &eval = evaluation(*session);
  alignas(256) float w[128];
  std::fill(std::begin(w), std::end(w), 0.5f);
  std::vector<char> scratches[] = {
      std::vector<char>(session->program().scratchBytes()),
      std::vector<char>(session->program().scratchBytes())};
  DeviceArrays first(-7), second(3);
  for (int i = 0; i < 12; ++i)
    for (DeviceArrays *arrays : {&first, &second}) {
      std::vector<Binding> bindings = bind(*session, *arrays, w);
      std::fill(std::begin(arrays->y), std::end(arrays->y), NAN);
      takeLog();
      ASSERT_TRUE(succeeds(session->run(eval, bindings, 4096, {},
                                        scratches[arrays == &second].data())));
      if (i == 0)
        continue;
      std::string log = takeLog();
      EXPECT_TRUE(contains(log, "cuLaunchKernel"));
      for (const char *other : {"Synchronize", "Alloc", "Graph", "Capture"})
        EXPECT_FALSE(contains(log, other));
    }
  // All streams are one there: this waits for them.
  cuCtxSynchronize();
  for (DeviceArrays *arrays : {&first, &second}) {
    for (int i = 0; i < 64; ++i) {
      const float *row = arrays->x + i / 16 * 8;
      EXPECT_EQ(arrays->y[i], std::accumulate(row, row + 8, 0.0f)) << i;
    }
    EXPECT_EQ(arrays->loss[0], arrays->y[0]);
  }
}

TEST_F(CUDASessionTest, OwnMemoryAfterArrays_IsUsedAgain) {
  std::unique_ptr<Session> session = open();
  DeviceArrays arrays(5);
  ASSERT_TRUE(session->call("eval", arrays.arguments()).ok());
  const EntryInfo *eval = session->program().findEntry("eval");
  ASSERT_TRUE(session
                  ->use(eval,
                        [&](Program &program) {
                          std::copy(std::begin(arrays.x), std::end(arrays.x),
                                    program.findTensor("x")->as<float>());
                          std::fill(std::begin(arrays.x), std::end(arrays.x),
                                    NAN);
                          return program.run(*eval);
                        })
                  .ok());
  EXPECT_EQ(values(session->program(), "y"),
            std::vector<float>(arrays.y, arrays.y + 64));
}

TEST_F(CUDASessionTest, ContextOfTheThread_IsFoundAgain) {
  int other = 0;
  void *current = nullptr;
  ASSERT_EQ(cuCtxSetCurrent(&other), 0);
  {
    std::unique_ptr<Session> session = open();
    cuCtxGetCurrent(&current);
    EXPECT_EQ(current, &other);
    DeviceArrays arrays(0);
    ASSERT_TRUE(session->call("eval", arrays.arguments(), 0).ok());
    ASSERT_TRUE(session->call("eval", arrays.arguments()).ok());
    cuCtxGetCurrent(&current);
    EXPECT_EQ(current, &other);
  }
  cuCtxGetCurrent(&current);
  EXPECT_EQ(current, &other);
  cuCtxSetCurrent(nullptr);
}

TEST_F(CUDASessionTest, AddressOfAnotherAlignmentOrDevice_IsRefused) {
  std::unique_ptr<Session> session = open();
  DeviceArrays arrays(0);
  std::vector<Argument> arguments = arrays.arguments();
  arguments[0].array.data = arrays.x + 4;
  EXPECT_TRUE(failsWith(session->call("eval", arguments),
                        "argument 'x' begins 16 bytes past a multiple of 256 "
                        "bytes, expected 0"));
  arguments = arrays.arguments();
  arguments[1].array.device = {};
  EXPECT_TRUE(failsWith(session->call("eval", arguments),
                        "argument 'y' lies on cpu, expected cuda:0"));
}
