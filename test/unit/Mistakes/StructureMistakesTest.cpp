//===- StructureMistakesTest.cpp - mistakes about memory and numbers ------===//
//
// Each test would fail if the compiler or its kernels made a mistake that
// published implementations of Native Sparse Attention made.
//
//===----------------------------------------------------------------------===//

#include "lib/Reference/Kernels/NN.h"
#include "test/unit/Mistakes/Probe.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

/// Fills the float inputs of all entries with random numbers that depend on
/// their names alone.
static void fillInputs(Program &program, uint64_t seed) {
  for (const TensorView &view : program.tensors()) {
    if (view.role != TensorRole::Input || view.type == DataType::I32)
      continue;
    std::mt19937_64 random(seed + std::hash<std::string>()(view.name));
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < view.elements(); ++i)
      if (view.type == DataType::F32)
        view.as<float>()[i] = normal(random);
      else
        // A bf16 number in [-2, 2], never a NaN.
        view.as<uint16_t>()[i] = static_cast<uint16_t>(
            (random() & 0x8000) | 0x3F00 | (random() & 0xFF));
  }
}

/// Runs every entry; the selection that select makes is the one that the
/// selected branch gets.
static void runEverything(Program &program) {
  ASSERT_TRUE(program.run("select").ok());
  const TensorView *made = program.findTensor("indices");
  const TensorView *given = program.findTensor("indices_in");
  std::memcpy(given->data, made->data, made->bytes);
  for (const EntryInfo &entry : program.entries()) {
    Status status = program.run(entry);
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

static void expectSameTensors(const Program &one, const Program &two) {
  ASSERT_EQ(one.tensors().size(), two.tensors().size());
  for (const TensorView &view : one.tensors()) {
    const TensorView *other = two.findTensor(view.name);
    ASSERT_NE(other, nullptr) << view.name;
    EXPECT_EQ(std::memcmp(view.data, other->data, view.bytes), 0) << view.name;
  }
}

/// Compiled shapes at which tiles and blocks are cut off.
static const std::vector<CompiledArtifact> &raggedModules() {
  static const std::vector<CompiledArtifact> modules = [] {
    std::vector<Combination> list(3);
    list[0].sequence = 5;
    list[1].sequence = 77;
    list[1].phi = Phi::Mlp;
    list[1].positions = true;
    list[1].element = DataType::BF16;
    list[2].sequence = 130;
    list[2].count = 20;
    list[2].window = 50;
    std::vector<CompiledArtifact> compiled;
    for (Combination &c : list) {
      c.batch = c.kvHeads = 2;
      c.group = 3;
      Result<CompiledArtifact> module = compile(moduleText(c), "test.mlir", {});
      EXPECT_TRUE(module.ok()) << module.message();
      if (module.ok())
        compiled.push_back(std::move(*module));
    }
    return compiled;
  }();
  return modules;
}

TEST(Mistakes, OffsetsOf32Bits_AreNoticed) {
  // 2^31 + 2^20 elements of which only a few pages are ever touched.
  const int64_t width = 1024, rows = (int64_t(1) << 21) + 1024;
  std::string table = "tensor<" + std::to_string(rows) + "x1024xbf16>";
  Result<CompiledModule> module = CompiledModule::load(
      "func.func @gather(%t: " + table +
      " {nn.name = \"table\", nn.role = \"input\"}, %i: tensor<4xi32> "
      "{nn.name = \"ids\", nn.role = \"input\"}) -> (tensor<4x1024xbf16> "
      "{nn.name = \"y\"}) {\n  %y = nn.embedding %t, %i : (" +
      table +
      ", tensor<4xi32>) -> tensor<4x1024xbf16>\n"
      "  return %y : tensor<4x1024xbf16>\n}\n");
  if (!module && module.message().find("no memory") != std::string::npos)
    GTEST_SKIP() << module.message();
  ASSERT_TRUE(module.ok()) << module.message();
  const int64_t ids[4] = {rows - 1, 0, (int64_t(1) << 21) + 1, 1 << 20};
  auto *data = module->getProgram().findTensor("table")->as<uint16_t>();
  Tensor idTensor({4});
  for (int i = 0; i < 4; ++i) {
    idTensor.data[i] = double(ids[i]);
    // The bits of 1, 2, 3, 4 in bf16.
    const uint16_t bits[4] = {0x3F80, 0x4000, 0x4040, 0x4080};
    std::fill_n(data + ids[i] * width, width, bits[i]);
  }
  module->set("ids", idTensor);
  module->run("gather");
  Tensor y = module->get("y");
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t column : {int64_t(0), width - 1})
      EXPECT_EQ(y.at({i, column}), double(i + 1)) << "row " << ids[i];
}

// Gradients have one writer and one order of summation: whatever the number of
// threads, and whatever runs before, their bits are the same.
TEST(Mistakes, GradientsByAtomics_AreNotThere) {
  ASSERT_EQ(raggedModules().size(), 3u);
  for (const CompiledArtifact &compiled : raggedModules()) {
    std::optional<CompiledModule> first;
    for (int threads : {1, 2, 5}) {
      RuntimeOptions options = CompiledModule::poisoned();
      options.threads = threads;
      Result<CompiledModule> module = CompiledModule::load(compiled, options);
      ASSERT_TRUE(module.ok()) << module.message();
      fillInputs(module->getProgram(), 3);
      runEverything(module->getProgram());
      if (first)
        expectSameTensors(first->getProgram(), module->getProgram());
      else
        first.emplace(std::move(*module));
    }
  }
}

TEST(Mistakes, InverseIndex_IsNotQuadratic) {
  for (int64_t sequence : {1024, 4096, 16384}) {
    Combination c;
    c.sequence = sequence;
    c.kvHeads = 2;
    c.group = 4;
    c.count = 16;
    Result<CompileReport> report =
        estimate(moduleText(c, {"slc_backward"}), "test.mlir", {});
    ASSERT_TRUE(report.ok()) << report.message();
    // One entry for each selected block of each token, an offset for each
    // block, and do . o of each row.
    int64_t blocks = sequence / c.lSel;
    uint64_t entries =
        c.kvHeads * (sequence * c.count + blocks + 2) + c.heads() * sequence;
    EXPECT_LE(report->arenaBytes + report->workspaceBytes, entries * 4 + 4096)
        << sequence << " tokens";
  }
}

// Zeros, which fresh memory has, and NaNs must give the same bits everywhere.
TEST(Mistakes, IndexBufferNotFilled_IsNoticed) {
  ASSERT_EQ(raggedModules().size(), 3u);
  for (const CompiledArtifact &compiled : raggedModules()) {
    RuntimeOptions plain;
    plain.threads = 2;
    Result<CompiledModule> zeros = CompiledModule::load(compiled, plain);
    Result<CompiledModule> poison = CompiledModule::load(compiled);
    ASSERT_TRUE(zeros.ok()) << zeros.message();
    ASSERT_TRUE(poison.ok()) << poison.message();
    for (Program *program : {&zeros->getProgram(), &poison->getProgram()}) {
      fillInputs(*program, 4);
      runEverything(*program);
    }
    expectSameTensors(zeros->getProgram(), poison->getProgram());
  }
}

TEST(Mistakes, RotaryOverConcatenatedHeads_IsNoticed) {
  // Queries have 3 heads, keys 1: equal heads stay equal, and pairs lie D/2
  // apart within a head.
  auto function = [](const std::string &name, const std::string &type) {
    return "func.func @" + name + "(%x: " + type + " {nn.name = \"" + name +
           ".x\", nn.role = \"input\"}, %t: tensor<20x4x2xf32> {nn.name = "
           "\"table\", nn.role = \"input\"}) -> (" +
           type + " {nn.name = \"" + name +
           ".y\"}) {\n  %y = nn.rotary %x, %t : (" + type +
           ", tensor<20x4x2xf32>) -> " + type + "\n  return %y : " + type +
           "\n}\n";
  };
  Result<CompiledModule> module =
      CompiledModule::load(function("query", "tensor<1x20x3x8xf32>") +
                           function("key", "tensor<1x20x1x8xf32>"));
  ASSERT_TRUE(module.ok()) << module.message();
  Tensor x({1, 20, 1, 8}), heads({1, 20, 3, 8});
  for (int64_t t = 0; t < 20; ++t)
    for (int64_t i = 0; i < 8; ++i) {
      x.at({0, t, 0, i}) = double(1 + (t * 7 + i * 3) % 11);
      for (int64_t h = 0; h < 3; ++h)
        heads.at({0, t, h, i}) = x.at({0, t, 0, i});
    }
  Tensor table = rotaryTable(20, 8, 10000.0);
  module->set("query.x", heads);
  module->set("key.x", x);
  module->set("table", table);
  module->run("query");
  module->run("key");
  Tensor query = module->get("query.y"), key = module->get("key.y");
  for (int64_t t = 0; t < 20; ++t)
    for (int64_t i = 0; i < 8; ++i) {
      double cosine = table.at({t, i % 4, 0}), sine = table.at({t, i % 4, 1});
      double expected = cosine * x.at({0, t, 0, i}) +
                        (i < 4 ? -sine : sine) * x.at({0, t, 0, (i + 4) % 8});
      EXPECT_NEAR(key.at({0, t, 0, i}), expected, 1e-5);
      for (int64_t h = 0; h < 3; ++h)
        EXPECT_EQ(query.at({0, t, h, i}), key.at({0, t, 0, i}));
    }
}

namespace {
/// Wrong results of the window branch, and whether the sweep's comparison would
/// notice.
struct Rejection {
  explicit Rejection(bool bf16) {
    c.sequence = 200;
    c.window = 64;
    c.element = bf16 ? DataType::BF16 : DataType::F32;
    c.seed = testSeed();
    Trial trial(c);
    Inputs in(trial);
    auto evaluate = [&](int64_t window, Arithmetic arithmetic) {
      return attention(in.q, in.kWin, in.vWin, in.scale, windowKeys(window),
                       arithmetic)
          .output;
    };
    expected = evaluate(c.window, Arithmetic::F64);
    same = evaluate(c.window, c.arithmetic());
    widened = evaluate(c.window + 1, Arithmetic::F64);
  }

  bool accepts(const Tensor &actual) const {
    return distance(actual, expected) <=
           allowedError(c, expected, [&](unsigned) { return same; });
  }

  Combination c;
  Tensor expected, same, widened;
};
} // namespace

TEST(Mistakes, ToleranceOfAWrongKernel_IsTight) {
  EXPECT_EQ(kSingleTolerance, 1e-5);
  EXPECT_EQ(kSameFormulaFactor, 2.0);
  for (bool bf16 : {false, true}) {
    Rejection sweep(bf16);
    EXPECT_TRUE(sweep.accepts(sweep.same));
    EXPECT_FALSE(sweep.accepts(sweep.widened));
    Tensor wrong = sweep.same;
    wrong.data[wrong.data.size() / 2] +=
        (bf16 ? 2e-2 : 2.5e-5) * magnitude(sweep.expected);
    EXPECT_FALSE(sweep.accepts(wrong));
    wrong = sweep.same;
    wrong.data.back() = std::nan("");
    EXPECT_FALSE(sweep.accepts(wrong));
  }
}
