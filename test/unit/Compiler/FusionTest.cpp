//===- FusionTest.cpp - what fusion may and may not change ----------------===//
//
// Kernels of several operations give the same bits as one by one; sums in
// another order (inside matmuls, over chunks) agree to rounding.
//
//===----------------------------------------------------------------------===//

#include "test/unit/CompiledModule.h"
#include "test/unit/Compiler/SmallModel.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

using namespace nsa;
using namespace nsa::test;

namespace {

/// A module compiled with and without fusion.
struct Both {
  Both(const std::string &text, CompilerOptions options = {}) {
    for (auto &[fuse, program] :
         {std::pair(true, &fused), std::pair(false, &plain)}) {
      options.fuse = fuse;
      Result<CompiledModule> loaded = CompiledModule::load(text, options);
      if (loaded.ok())
        program->emplace(std::move(*loaded));
      else
        ADD_FAILURE() << loaded.message();
    }
  }
  explicit operator bool() const { return fused && plain; }

  void set(const std::string &name, const Tensor &value) {
    fused->set(name, value);
    plain->set(name, value);
  }
  void run(const std::string &entry) {
    fused->run(entry);
    plain->run(entry);
  }

  std::optional<CompiledModule> fused, plain;
};

class FusionTest : public testing::Test {
protected:
  Tensor randomTensor(std::vector<int64_t> shape) {
    std::normal_distribution<double> normal;
    Tensor tensor(std::move(shape));
    for (double &x : tensor.data)
      x = normal(random);
    return tensor;
  }

  std::mt19937_64 random{testSeed()};
};

std::string replaceAll(std::string text, const std::string &from,
                       const std::string &to) {
  for (size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

double findLargest(const Tensor &tensor) {
  double largest = 0.0;
  for (double x : tensor.data)
    largest = std::max(largest, std::fabs(x));
  return largest;
}

void expectClose(const Tensor &a, const Tensor &b, double tolerance,
                 const std::string &name) {
  ASSERT_EQ(a.data.size(), b.data.size());
  double scale = findLargest(b);
  ASSERT_GT(scale, 0.0) << name;
  for (size_t i = 0; i < a.data.size(); ++i)
    ASSERT_NEAR(a.data[i], b.data[i], tolerance * scale) << name << " " << i;
}

} // namespace

// A residual stream and its gradient: sums, norms, activations, casts.
TEST_F(FusionTest, KernelsOfSeveralOperations_GiveTheSameBits) {
  const std::string text = R"(
func.func @f(%x: TENSOR {nn.name = "x"}, %r: TENSOR {nn.name = "r"},
             %dy: TENSOR {nn.name = "dy"}, %w: tensor<WIDTHxf32> {nn.name = "w"})
    -> (TENSOR {nn.name = "y"}, TENSOR {nn.name = "s"}, TENSOR {nn.name = "d"},
        tensor<WIDTHxf32> {nn.name = "dw"}, tensor<ROWSxWIDTHxf32> {nn.name = "c"}) {
  %s0 = nn.add %x, %r : (TENSOR, TENSOR) -> TENSOR
  %n, %rstd = nn.rms_norm %s0, %w {eps = 1.0e-5 : f64} : (TENSOR, tensor<WIDTHxf32>) -> (TENSOR, tensor<ROWSxf32>)
  %a = nn.swiglu %n, %r : (TENSOR, TENSOR) -> TENSOR
  %s1 = nn.add %a, %s0 : (TENSOR, TENSOR) -> TENSOR
  %c = nn.cast %s1 to f32 : (TENSOR) -> tensor<ROWSxWIDTHxf32>
  %da = nn.silu_backward %dy, %n : (TENSOR, TENSOR) -> TENSOR
  %db = nn.add %da, %dy : (TENSOR, TENSOR) -> TENSOR
  %dx, %dw = nn.rms_norm_backward %db, %s0, %w, %rstd
      : (TENSOR, TENSOR, tensor<WIDTHxf32>, tensor<ROWSxf32>) -> (TENSOR, tensor<WIDTHxf32>)
  %d0 = nn.add %dx, %dy : (TENSOR, TENSOR) -> TENSOR
  %d1 = nn.add %d0, %r : (TENSOR, TENSOR) -> TENSOR
  return %n, %s0, %d1, %dw, %c : TENSOR, TENSOR, TENSOR, tensor<WIDTHxf32>, tensor<ROWSxWIDTHxf32>
}
)";
  for (const char *element : {"f32", "bf16"})
    for (auto [rows, width] :
         {std::pair(3, 7), {64, 36}, {130, 64}, {200, 300}}) {
      std::string type = "tensor<ROWSxWIDTHx" + std::string(element) + ">";
      std::string all = replaceAll(text, "TENSOR", type);
      all = replaceAll(all, "ROWS", std::to_string(rows));
      all = replaceAll(all, "WIDTH", std::to_string(width));
      Both both(all);
      ASSERT_TRUE(both);
      for (const char *name : {"x", "r", "dy"})
        both.set(name, randomTensor({rows, width}));
      both.set("w", randomTensor({width}));
      both.run("f");
      for (const char *name : {"y", "s", "d", "dw", "c"}) {
        Tensor fused = both.fused->get(name), plain = both.plain->get(name);
        EXPECT_GT(findLargest(plain), 0.0) << name;
        EXPECT_EQ(fused.data, plain.data)
            << name << " " << element << " " << rows << "x" << width;
      }
    }
}

TEST_F(FusionTest, RotationsOfSeveralTensors_GiveTheSameBits) {
  const std::string text = R"(
func.func @f(%q: tensor<2x9x6x16xf32> {nn.name = "q"}, %d: tensor<2x9x6x16xf32> {nn.name = "d"},
             %k: tensor<2x9x2x16xf32> {nn.name = "k"}, %t: tensor<9x8x2xf32> {nn.name = "t"})
    -> (tensor<2x9x6x16xf32> {nn.name = "y"}, tensor<2x9x2x16xf32> {nn.name = "z"}) {
  %s = nn.add %q, %d : (tensor<2x9x6x16xf32>, tensor<2x9x6x16xf32>) -> tensor<2x9x6x16xf32>
  %u = nn.add %s, %q : (tensor<2x9x6x16xf32>, tensor<2x9x6x16xf32>) -> tensor<2x9x6x16xf32>
  %y = nn.rotary %u, %t {inverse} : (tensor<2x9x6x16xf32>, tensor<9x8x2xf32>) -> tensor<2x9x6x16xf32>
  %v = nn.add %y, %d : (tensor<2x9x6x16xf32>, tensor<2x9x6x16xf32>) -> tensor<2x9x6x16xf32>
  %z = nn.rotary %k, %t {inverse} : (tensor<2x9x2x16xf32>, tensor<9x8x2xf32>) -> tensor<2x9x2x16xf32>
  return %v, %z : tensor<2x9x6x16xf32>, tensor<2x9x2x16xf32>
}
)";
  Both both(text);
  ASSERT_TRUE(both);
  both.set("q", randomTensor({2, 9, 6, 16}));
  both.set("d", randomTensor({2, 9, 6, 16}));
  both.set("k", randomTensor({2, 9, 2, 16}));
  both.set("t", randomTensor({9, 8, 2}));
  both.run("f");
  for (const char *name : {"y", "z"}) {
    EXPECT_GT(findLargest(both.plain->get(name)), 0.0);
    EXPECT_EQ(both.fused->get(name).data, both.plain->get(name).data) << name;
  }
}

// One update of a flat group against one update for each tensor.
TEST_F(FusionTest, Fuse_ElementwiseOptimizers_BitsOfUpdatesOfTensors) {
  const std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
      {"a", {33, 47}}, {"b", {5}}, {"c", {128, 64}}, {"d", {1}}};
  const std::vector<std::pair<std::string, std::vector<std::string>>>
      optimizers = {{"adamw", {"m", "v"}}, {"lion", {"ema"}}};
  for (const auto &[optimizer, states] : optimizers) {
    SCOPED_TRACE(optimizer);
    // The weight and its states.
    std::vector<std::string> updated = {""};
    for (const std::string &state : states)
      updated.push_back(state + ".");
    std::string arguments, aliases, body, values, types;
    for (const auto &[name, shape] : tensors) {
      std::string type = "tensor<";
      for (int64_t size : shape)
        type += std::to_string(size) + "x";
      type += "f32>";
      auto addArgument = [&](const std::string &prefix,
                             const std::string &role) {
        arguments += "%" + prefix + name + ": " + type + " {nn.name = \"" +
                     prefix + name + "\", nn.role = \"" + role +
                     "\", nn.init = #nn.init<constant, 0.0>}, ";
      };
      addArgument("", "parameter");
      for (const std::string &state : states)
        addArgument(state + ".", "state\", nn.state = \"" + state);
      addArgument("grad.", "gradient");
      std::string operands, inputs, outputs;
      for (const std::string &prefix : updated) {
        operands += "%" + prefix + name + ", ";
        inputs += type + ", ";
        outputs += (outputs.empty() ? "" : ", ") + type;
        values += "%new_" + name + "#" +
                  std::to_string(&prefix - updated.data()) + ", ";
        aliases += type + " {nn.alias = \"" + prefix + name + "\"}, ";
        types += type + ", ";
      }
      bool decay = name != "b" && name != "d";
      body += "%new_" + name + ":" + std::to_string(updated.size()) + " = nn." +
              optimizer + " " + operands + "%grad." + name +
              ", %norm, %loss, %hyper " + (decay ? "{decay}" : "") + " : (" +
              inputs + type +
              ", tensor<f32>, tensor<f32>, tensor<8xf32>) -> (" + outputs +
              ")\n";
    }
    std::string text =
        "func.func @update(" + arguments +
        "%norm: tensor<f32> {nn.name = \"norm\"}, %loss: tensor<f32> "
        "{nn.name = \"loss\"}, %hyper: tensor<8xf32> {nn.name = \"hyper\"}) "
        "-> (" +
        aliases + "tensor<f32> {nn.name = \"out\"}) {\n" + body + "return " +
        values + "%norm : " + types + "tensor<f32>\n}\n";
    Both both(text);
    ASSERT_TRUE(both);
    EXPECT_NE(both.fused->getProgram().findTensor("a"), nullptr);
    for (const auto &[name, shape] : tensors) {
      both.set("grad." + name, randomTensor(shape));
      for (const std::string &prefix : updated) {
        Tensor start = randomTensor(shape);
        // Second moments.
        if (prefix == "v.")
          for (double &x : start.data)
            x *= x;
        both.set(prefix + name, start);
      }
    }
    Tensor hyper({8}), scalar(std::vector<int64_t>{}, 2.5);
    hyper.data = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0, 1.0, 3.0};
    both.set("hyper", hyper);
    both.set("norm", scalar);
    both.set("loss", scalar);
    both.run("update");
    for (const auto &[name, shape] : tensors)
      for (const std::string &prefix : updated)
        EXPECT_EQ(both.fused->get(prefix + name).data,
                  both.plain->get(prefix + name).data)
            << prefix << name;
  }
}

// Chunks of tokens, the last one shorter, some targets ignored.
TEST_F(FusionTest, LossInChunks_AgreesToRounding) {
  const int64_t tokens = 700, width = 48, vocab = 1000;
  const std::string text = R"(
func.func @model(%x: tensor<2x350xi32> {nn.name = "tokens", nn.role = "input"},
                 %t: tensor<2x350xi32> {nn.name = "targets", nn.role = "input"},
                 %e: tensor<1000x48xf32> {nn.name = "embed", nn.role = "parameter", nn.init = #nn.init<normal, 1.0>},
                 %w: tensor<48x1000xf32> {nn.name = "head", nn.role = "parameter", nn.init = #nn.init<normal, 0.2>})
    -> (tensor<f32> {nn.name = "loss"}, tensor<2x350x1000xf32> {nn.name = "logits"}) attributes {nn.train} {
  %h = nn.embedding %e, %x : (tensor<1000x48xf32>, tensor<2x350xi32>) -> tensor<2x350x48xf32>
  %y = nn.silu %h : (tensor<2x350x48xf32>) -> tensor<2x350x48xf32>
  %logits = nn.matmul %y, %w : (tensor<2x350x48xf32>, tensor<48x1000xf32>) -> tensor<2x350x1000xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<2x350x1000xf32>, tensor<2x350xi32>) -> (tensor<f32>, tensor<2x350xf32>, tensor<f32>)
  return %loss, %logits : tensor<f32>, tensor<2x350x1000xf32>
}
)";
  CompilerOptions options;
  options.logitsMiB = 1;
  for (const char *recompute : {"none", "cheap"}) {
    options.recompute = recompute;
    Both both(text, options);
    ASSERT_TRUE(both);
    Result<CompileReport> chunks = estimate(text, "m.mlir", options);
    options.fuse = false;
    Result<CompileReport> whole = estimate(text, "m.mlir", options);
    options.fuse = true;
    ASSERT_TRUE(chunks.ok() && whole.ok());
    EXPECT_LT(chunks->arenaBytes, whole->arenaBytes / 2);
    both.run("init");
    Tensor inputs({2, 350}), targets({2, 350});
    for (double &x : inputs.data)
      x = double(random() % vocab);
    for (double &x : targets.data)
      x = random() % 5 == 0 ? -1.0 : double(random() % vocab);
    both.set("tokens", inputs);
    both.set("targets", targets);
    both.set("embed", randomTensor({vocab, width}));
    both.set("head", randomTensor({width, vocab}));
    both.run("eval");
    expectClose(both.fused->get("loss"), both.plain->get("loss"), 1e-6, "eval");
    // Twice, so that gradients are added to what is there.
    both.run("accumulate");
    both.run("accumulate");
    for (const char *name : {"loss", "grad.embed", "grad.head"})
      expectClose(both.fused->get(name), both.plain->get(name), 2e-6, name);
    // The entry with the logits has all of them.
    both.run("forward");
    EXPECT_EQ(both.fused->get("logits").data, both.plain->get("logits").data);
    EXPECT_EQ(both.fused->get("logits").data.size(), size_t(tokens * vocab));
  }
}

// A few steps of a whole model, both ways.
TEST_F(FusionTest, Training_AgreesToRounding) {
  for (const char *precision : {"fp32", "bf16"}) {
    CompilerOptions options;
    options.precision = precision;
    Both both(modelText({"nsa.gate=softmax", "model.mlp=swiglu"}), options);
    ASSERT_TRUE(both);
    both.run("init");
    Tensor hyper({8});
    hyper.data = {3e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 1.0, 1.0};
    bool isFull = std::string(precision) == "fp32";
    double first = 0.0, last = 0.0;
    Tensor tokens({2, 70}), targets({2, 70});
    for (size_t i = 0; i < tokens.data.size(); ++i)
      tokens.data[i] = double(random() % 16);
    for (size_t i = 0; i < tokens.data.size(); ++i)
      targets.data[i] = std::fmod(tokens.data[i] * 5 + 3, 16);
    for (int step = 0; step < 6; ++step) {
      both.set("tokens", tokens);
      both.set("targets", targets);
      hyper.data[7] = step + 1;
      both.set("hyper", hyper);
      both.run("step");
      double fused = both.fused->get("loss").data[0];
      double plain = both.plain->get("loss").data[0];
      EXPECT_NEAR(fused, plain, isFull ? 2e-5 : 2e-2) << "step " << step;
      // Before the first update no sum that differs has reached the loss but
      // those of attention.
      if (step == 0) {
        EXPECT_NEAR(fused, plain, isFull ? 2e-6 : 1e-3);
        first = plain;
      }
      last = plain;
    }
    EXPECT_LT(last, first - 0.1);
  }
}
