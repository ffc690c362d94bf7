//===- SessionTest.cpp - entries called with arrays -----------------------===//

#include "nsa/Runtime/Session.h"
#include "test/unit/Expect.h"
#include "test/unit/Runtime/ArtifactBuilder.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>

using namespace nsa;

namespace {

/// x, y and loss of the entry `eval`, in memory of the caller.
struct Arrays {
  explicit Arrays(float first) : x(32), y(64, -1), loss(1, -1) {
    std::iota(x.begin(), x.end(), first);
  }

  std::vector<Argument> arguments() {
    return {{"x", {x.data(), DataType::F32, {4, 8}}},
            {"y", {y.data(), DataType::F32, {4, 16}}},
            {"loss", {loss.data(), DataType::F32, {}}}};
  }

  std::vector<float> x, y, loss;
};

std::unique_ptr<Session> open(const RuntimeOptions &options = {}) {
  std::string bytes = makeTestArtifact();
  Result<Artifact> artifact =
      Artifact::fromBytes(bytes.data(), bytes.size(), "test.nsax");
  Result<std::unique_ptr<Session>> session =
      Session::create(*artifact, options);
  EXPECT_TRUE(session.ok()) << session.message();
  EXPECT_TRUE((*session)->call("init", {}).ok());
  return std::move(*session);
}

/// What the program gives in its own memory.
std::vector<float> evaluate(Session &session, const std::vector<float> &x) {
  std::vector<float> y(64);
  const EntryInfo *eval = session.program().findEntry("eval");
  Status status = session.use(eval, [&](Program &program) {
    std::copy(x.begin(), x.end(), program.findTensor("x")->as<float>());
    Status ran = program.run(*eval);
    std::copy_n(program.findTensor("y")->as<float>(), 64, y.begin());
    return ran;
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return y;
}

} // namespace

TEST(Session, CallWithArrays_ReadsAndWritesThem) {
  std::unique_ptr<Session> session = open();
  Arrays first(-7), second(3);
  for (Arrays *arrays : {&first, &second, &first}) {
    ASSERT_TRUE(session->call("eval", arrays->arguments()).ok());
    EXPECT_EQ(arrays->y, evaluate(*session, arrays->x));
    EXPECT_EQ(arrays->loss[0], arrays->y[0]);
  }
  EXPECT_NE(first.y, second.y);
}

TEST(Session, CallWithoutAnOutput_LeavesItInTheProgram) {
  std::unique_ptr<Session> session = open();
  Arrays arrays(0);
  std::vector<Argument> arguments = arrays.arguments();
  arguments.pop_back();
  ASSERT_TRUE(session->call("eval", arguments).ok());
  EXPECT_EQ(*session->program().findTensor("loss")->as<float>(), arrays.y[0]);
}

TEST(Session, CallWithAParameter_UsesItInsteadOfTheProgramsOwn) {
  std::unique_ptr<Session> session = open();
  Arrays arrays(0);
  std::vector<float> bias(64, 100), zeros(128, 0);
  std::vector<Argument> arguments = arrays.arguments();
  arguments.push_back({"w", {zeros.data(), DataType::F32, {8, 16}}});
  arguments.push_back({"bias", {bias.data(), DataType::F32, {4, 16}}});
  ASSERT_TRUE(session->call("eval", arguments).ok());
  EXPECT_EQ(arrays.y, bias);
}

TEST(Session, CheckedCall_FindsWhatWasWrittenToArrays) {
  RuntimeOptions options;
  options.checkFinite = true;
  std::unique_ptr<Session> session = open(options);
  Arrays arrays(0);
  arrays.x[0] = NAN;
  EXPECT_TRUE(
      failsWith(session->call("eval", arrays.arguments()), "wrote nan"));
}

TEST(Session, SeveralThreads_GetWhatTheirArraysGive) {
  std::unique_ptr<Session> session = open();
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::vector<int> wrong(4);
  for (int number = 0; number < 4; ++number)
    threads.emplace_back([&, number] {
      Arrays once(static_cast<float>(number)), again = once;
      wrong[number] += !session->call("eval", once.arguments()).ok();
      for (int i = 0; i < 50; ++i) {
        wrong[number] += !session->call("eval", again.arguments()).ok();
        wrong[number] += again.y != once.y;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(Session, WrongArguments_AreNamedWithBothValues) {
  std::unique_ptr<Session> session = open();
  struct Case {
    void (*change)(std::vector<Argument> &);
    const char *message;
  };
  static float other[64];
  for (const Case &wrong : std::initializer_list<Case>{
           {[](auto &a) { a[0].array.shape = {8, 4}; },
            "argument 'x' has shape (8, 4), expected (4, 8)"},
           {[](auto &a) { a[0].array.shape = {-4, 8}; },
            "argument 'x' has shape (-4, 8), expected (4, 8)"},
           {[](auto &a) { a[0].array.type = DataType::I32; },
            "argument 'x' is i32, expected f32"},
           {[](auto &a) { a[0].array.strides = {1, 4}; },
            "argument 'x' has strides (1, 4) in elements, expected (8, 1)"},
           {[](auto &a) { a[0].array.device = {Device::Kind::CUDA, 1}; },
            "argument 'x' lies on cuda:1, expected cpu"},
           {[](auto &a) { a[0].array.data = (char *)a[0].array.data + 1; },
            "argument 'x' begins 1 bytes past a multiple of 4 bytes, "
            "expected 0"},
           {[](auto &a) { a[0].array.data = nullptr; },
            "argument 'x' has no memory"},
           {[](auto &a) { a[1].array.isReadOnly = true; },
            "argument 'y' is read-only, expected an array that can be written"},
           {[](auto &a) { a[0].name = "xx"; },
            "entry 'eval' has no argument 'xx'; did you mean 'x'?; it has x, "
            "w, bias, y, loss"},
           {[](auto &a) { a.push_back(a[0]); }, "argument 'x' is given twice"},
           {[](auto &a) { a.erase(a.begin()); },
            "entry 'eval' needs x (f32 (4, 8))"},
           {[](auto &a) {
              a.push_back({"bias", {other, DataType::F32, {4, 16}}});
              a[1].array.data = other;
            },
            "argument 'y' is written and shares memory with argument "
            "'bias'"}}) {
    Arrays arrays(0);
    std::vector<Argument> arguments = arrays.arguments();
    wrong.change(arguments);
    Status status = session->call("eval", arguments);
    EXPECT_TRUE(failsWith(status, wrong.message))
        << status.message() << "\n  expected: " << wrong.message;
    EXPECT_EQ(arrays.y[0], -1) << "something ran";
  }
}

TEST(Session, ExternalMemory_IsAllThatRunsUse) {
  std::unique_ptr<Session> own = open();
  RuntimeOptions options;
  options.externalMemory = true;
  std::string bytes = makeTestArtifact();
  Result<Artifact> artifact = Artifact::fromBytes(bytes.data(), bytes.size());
  std::unique_ptr<Session> session = take(Session::create(*artifact, options));
  const Program &program = session->program();
  EXPECT_EQ(program.memory().allocated, 0u);
  EXPECT_GT(program.scratchBytes(), 256u);
  std::vector<float> w(128), bias(64, 5);
  std::iota(w.begin(), w.end(), -60.f);
  std::vector<char> scratch(program.scratchBytes() + 1);
  const EntryInfo &eval = *program.findEntry("eval");
  for (float first : {-7.f, 3.f}) {
    Arrays arrays(first), expected(first);
    for (Arrays *some : {&arrays, &expected}) {
      std::vector<Argument> arguments = some->arguments();
      arguments.push_back({"w", {w.data(), DataType::F32, {8, 16}}});
      arguments.push_back({"bias", {bias.data(), DataType::F32, {4, 16}}});
      if (some == &expected) {
        ASSERT_TRUE(own->call("eval", arguments).ok());
        continue;
      }
      std::vector<Binding> bindings = take(session->bind(eval, arguments));
      ASSERT_TRUE(succeeds(
          session->run(eval, bindings, std::nullopt, {}, &scratch[1])));
    }
    EXPECT_EQ(arrays.y, expected.y);
    EXPECT_EQ(arrays.loss, expected.loss);
  }
}

TEST(Session, ExternalMemoryThatIsNotGiven_IsAnError) {
  RuntimeOptions options;
  options.externalMemory = true;
  std::string bytes = makeTestArtifact();
  Result<Artifact> artifact = Artifact::fromBytes(bytes.data(), bytes.size());
  Result<Program> program = Program::create(*artifact, options);
  ASSERT_TRUE(program.ok()) << program.message();
  EXPECT_EQ(program->run("eval").message(),
            "entry 'eval': the program has no memory, and is given none");
  std::vector<float> x(32);
  const EntryInfo &eval = *program->findEntry("eval");
  std::string message =
      program->bind(eval, {{eval.inputs[0], x.data()}}).message();
  EXPECT_TRUE(contains(message,
                       "bytes of a program without memory for which none was "
                       "given"));
}

TEST(Session, StridesOfOneElement_DoNotMatter) {
  std::string bytes = [] {
    ArtifactBuilder b;
    unsigned x = b.tensor("x", DataType::F32, {1, 4, 1}, TensorRole::Input);
    unsigned y = b.tensor("y", DataType::F32, {1, 4, 1}, TensorRole::Output);
    b.entry("copy", {x}, {y}, {b.copy(b.of(x), b.of(y))});
    return b.finish();
  }();
  Result<Artifact> artifact = Artifact::fromBytes(bytes.data(), bytes.size());
  std::unique_ptr<Session> session = take(Session::create(*artifact));
  float x[4] = {1, 2, 3, 4}, y[4] = {};
  Array in{x, DataType::F32, {1, 4, 1}, {77, 1, 99}};
  Array out{y, DataType::F32, {1, 4, 1}};
  ASSERT_TRUE(session->call("copy", {{"x", in}, {"y", out}}).ok());
  EXPECT_EQ(y[3], 4);
}

TEST(Session, CommandOverSeveralTensors_IsNotBound) {
  ArtifactBuilder b;
  unsigned x = b.tensor("x", DataType::F32, {16}, TensorRole::Input);
  unsigned z = b.tensor("z", DataType::F32, {16}, TensorRole::Input);
  unsigned y = b.tensor("y", DataType::F32, {32}, TensorRole::Output);
  artifact::Slice both(b.of(x).segment(), b.of(x).offset(), 128);
  b.entry("copy", {x, z}, {y}, {b.copy(both, b.of(y))});
  std::string bytes = b.finish();
  Result<Artifact> artifact = Artifact::fromBytes(bytes.data(), bytes.size());
  std::unique_ptr<Session> session = take(Session::create(*artifact));
  float data[16] = {};
  Array array{data, DataType::F32, {16}};
  EXPECT_TRUE(failsWith(session->call("copy", {{"x", array}, {"z", array}}),
                        "uses 128 bytes that are more than the "
                        "tensor of 64 bytes"));
}
