//===- EmulatedPackedTest.cpp - packed sequences on CUDA kernels ----------===//
//
// Packed sequences on the emulator of GPUs, against the kernels of the CPU.
//
//===----------------------------------------------------------------------===//

#include "test/unit/CompiledModule.h"
#include "test/unit/Emulator/EmulatedModule.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace nsa;
using namespace nsa::test;
using nsa::test::Tensor;

namespace {

/// Documents at multiples of 64 and elsewhere.
constexpr int64_t kLengths[] = {64, 1, 7, 13, 43, 12};
constexpr int64_t kTokens = 140;

/// A function of packed tokens: two key heads of `group` query heads each.
struct PackedModule {
  PackedModule(int group, int width, const std::string &element) {
    std::string rest = "x" + std::to_string(width) + "x" + element + ">";
    std::string tokens = std::to_string(kTokens);
    std::string heads = std::to_string(2 * group);
    q = "tensor<1x" + tokens + "x" + heads + rest;
    k = "tensor<1x" + tokens + "x2" + rest;
    blocks = "tensor<1x" + std::to_string(kTokens / 4) + "x2" + rest;
    lse = "tensor<1x" + heads + "x" + tokens + "xf32>";
    start = "tensor<1x" + tokens + "xi32>";
  }

  /// Attention to keys of this type, and its gradient; `indices` is an input,
  /// with its type, that the visibility has.
  std::string attention(const std::string &visibility, const std::string &keys,
                        const std::string &indices = "") const {
    std::string clause =
        "visible(" + visibility + ") start(%s : " + start + ") : ";
    std::string types = q + ", " + keys + ", " + keys;
    return "func.func @f(%q: " + q + " {nn.name = \"q\"}, %k: " + keys +
           " {nn.name = \"k\"}, %v: " + keys + " {nn.name = \"v\"}, %d: " + q +
           " {nn.name = \"d\"}, %s: " + start + " {nn.name = \"s\"}" + indices +
           ") -> (" + q + " {nn.name = \"o\"}, " + q + " {nn.name = \"dq\"}, " +
           keys + " {nn.name = \"dk\"}, " + keys +
           " {nn.name = \"dv\"}) {\n  %o, %lse = nsa.attention %q, %k, %v " +
           clause + types +
           "\n  %dq, %dk, %dv = nsa.attention_backward %d, %q, %k, %v, %o, "
           "%lse " +
           clause + q + ", " + types + ", " + q + ", " + lse +
           "\n  return %o, %dq, %dk, %dv : " + q + ", " + q + ", " + keys +
           ", " + keys + "\n}\n";
  }

  std::string q, k, blocks, lse, start;
};

constexpr int64_t kBlock = 20;

/// The block of each token, the one before it and the first one of its
/// document, where these differ.
Tensor someBlocks(int64_t heads, int64_t count) {
  Tensor blocks({1, heads, kTokens, count});
  size_t at = 0;
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t length : kLengths)
      for (int64_t token = 0; token < length; ++token)
        for (int64_t i = 0; i < count; ++i) {
          int64_t own = token / kBlock - i;
          bool isFirst = i == count - 1 && own > 0;
          blocks.data[at++] =
              isFirst ? 0 : static_cast<double>(std::max<int64_t>(own, -1));
        }
  return blocks;
}

/// Runs a module with the same random inputs.
CompiledModule runPacked(const std::string &text, const std::string &target,
                         const Compile &compile) {
  CompilerOptions options;
  options.target = target;
  options.allowSlowPaths = {"all"};
  Result<CompiledModule> module =
      CompiledModule::load(text, options, CompiledModule::poisoned(), compile);
  EXPECT_TRUE(module.ok()) << module.message() << "\n" << text;
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  for (const TensorView &view : module->getProgram().tensors()) {
    if (view.role != TensorRole::Input)
      continue;
    Tensor value(std::vector<int64_t>(view.shape.begin(), view.shape.end()));
    if (view.name != "s")
      for (double &x : value.data)
        x = roundTo(view.type, normal(random));
    size_t at = 0;
    for (int64_t length : kLengths) {
      auto begin = static_cast<double>(at);
      for (int64_t i = 0; view.name == "s" && i < length; ++i)
        value.data[at++] = begin;
    }
    if (view.name == "i")
      value = someBlocks(view.shape[1], view.shape[3]);
    module->set(view.name, value);
  }
  module->run("f");
  return std::move(*module);
}

void check(const std::string &text, const std::string &target, bool isEager,
           double tolerance) {
  CompiledModule cpu = runPacked(text, "cpu", {});
  CompiledModule gpu =
      runPacked(text, target,
                [&](const std::string &source, const CompilerOptions &options) {
                  return emulator::compileForEmulator(source, options, isEager);
                });
  for (const TensorView &view : cpu.getProgram().tensors())
    if (view.role == TensorRole::Output)
      EXPECT_LE(distance(cpu.get(view.name), gpu.get(view.name)),
                tolerance * magnitude(cpu.get(view.name)))
          << target << " " << view.name;
}

} // namespace

TEST(EmulatedPacked, Attention_IsThatOfTheCPU) {
  PackedModule wide(2, 64, "bf16"), narrow(1, 16, "f32");
  check(wide.attention("#nsa.window<40>", wide.k), "sm_90a", true, 2e-2);
  check(narrow.attention("#nsa.causal", narrow.k), "sm_80", false, 1e-4);
  check(wide.attention("#nsa.compressed<block = 8, stride = 4>", wide.blocks),
        "sm_90a", true, 2e-2);
}

// Blocks that tensor cores do not add up to, where they lie anywhere.
TEST(EmulatedPacked, SelectedOddBlocks_AreThoseOfTheCPU) {
  PackedModule wide(3, 32, "bf16");
  std::string type = "tensor<1x2x140x3xi32>";
  std::string text =
      wide.attention("#nsa.selected<block = 20, count = 3>, %i : " + type,
                     wide.k, ", %i: " + type + " {nn.name = \"i\"}");
  for (const char *refused : {"0", "3", "5", "6"}) {
    SCOPED_TRACE(refused);
    check("module attributes {nsa.refused_schedules = {any = " +
              std::string(refused) + "}} {\n" + text + "}\n",
          refused[0] % 2 ? "sm_80" : "sm_90a", true, 2e-2);
  }
}
