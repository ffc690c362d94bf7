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
using nsa::reference::Tensor;

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

  /// Attention to keys of this type, and its gradient.
  std::string attention(const std::string &visibility,
                        const std::string &keys) const {
    std::string clause =
        "visible(" + visibility + ") start(%s : " + start + ") : ";
    std::string types = q + ", " + keys + ", " + keys;
    return "func.func @f(%q: " + q + " {nn.name = \"q\"}, %k: " + keys +
           " {nn.name = \"k\"}, %v: " + keys + " {nn.name = \"v\"}, %d: " + q +
           " {nn.name = \"d\"}, %s: " + start + " {nn.name = \"s\"}) -> (" + q +
           " {nn.name = \"o\"}, " + q + " {nn.name = \"dq\"}, " + keys +
           " {nn.name = \"dk\"}, " + keys +
           " {nn.name = \"dv\"}) {\n  %o, %lse = nsa.attention %q, %k, %v " +
           clause + types +
           "\n  %dq, %dk, %dv = nsa.attention_backward %d, %q, %k, %v, %o, "
           "%lse " +
           clause + q + ", " + types + ", " + q + ", " + lse +
           "\n  return %o, %dq, %dk, %dv : " + q + ", " + q + ", " + keys +
           ", " + keys + "\n}\n";
  }

  /// Compression, its rotation, what it selects and their gradients, with a
  /// weight of `width` channels.
  std::string selection(int width) const;

  std::string q, k, blocks, lse, start;
};

std::string PackedModule::selection(int width) const {
  auto matrix = [](const std::string &sizes) {
    return "tensor<" + sizes + "xf32>";
  };
  std::string w =
      matrix("2x" + std::to_string(8 * width) + "x" + std::to_string(width));
  std::string table =
      matrix(std::to_string(kTokens) + "x" + std::to_string(width / 2) + "x2");
  std::string indices = "tensor<1x2x" + std::to_string(kTokens) + "x3xi32>";
  std::string numbers = "tensor<3xf32>";
  std::string at = " start(%s : " + start + ") ";
  std::string by = "by(#nsa.compressed<block = 8, stride = 4>";
  std::string selected =
      "visible(#nsa.selected<block = 16>, %i : " + indices + ")" + at + ": ";
  std::string qkv = q + ", " + k + ", " + k;
  std::vector<std::pair<std::string, std::string>> out = {
      {"kr", blocks}, {"i", indices}, {"y", numbers}, {"o", q}, {"dq", q},
      {"dk", k},      {"dv", k},      {"dx", k},      {"dw", w}};
  std::string types, names, values;
  for (const auto &[name, type] : out) {
    std::string comma = names.empty() ? "" : ", ";
    types += comma + type;
    names += comma + "%" + name;
    values += comma + type + " {nn.name = \"" + name + "\"}";
  }
  return "func.func @f(%q: " + q + " {nn.name = \"q\"}, %k: " + k +
         " {nn.name = \"k\"}, %v: " + k + " {nn.name = \"v\"}, %d: " + q +
         " {nn.name = \"d\"}, %w: " + w + " {nn.name = \"w\"}, %t: " + table +
         " {nn.name = \"t\"}, %s: " + start + " {nn.name = \"s\"}) -> (" +
         values + ") {\n  %kc = nsa.compress linear %k, %w start(%s) " + by +
         ") : (" + k + ", " + w + ", " + start + ") -> " + blocks +
         "\n  %kr = nn.rotary %kc, %t, %s {stride = 4 : i64} : (" + blocks +
         ", " + table + ", " + start + ") -> " + blocks +
         "\n  %oc, %lc = nsa.attention %q, %kr, %kc visible("
         "#nsa.compressed<block = 8, stride = 4>)" +
         at + ": " + q + ", " + blocks + ", " + blocks +
         "\n  %i = nsa.select %q, %kr, %lc" + at + by +
         ", #nsa.selected<block = 16, count = 3>) : " + q + ", " + blocks +
         " -> " + indices +
         "\n  %y = nsa.selection_statistics %i, %s "
         "{select_block = 16 : i64} : (" +
         indices + ", " + start + ") -> " + numbers +
         "\n  %o, %l = nsa.attention %q, %k, %v " + selected + qkv +
         "\n  %dq, %dk, %dv = nsa.attention_backward %d, %q, %k, %v, %o, %l " +
         selected + q + ", " + qkv + ", " + q + ", " + lse +
         "\n  %dx, %dw = nsa.compress_backward linear %kr, %k, %w start(%s) " +
         by + ") : (" + blocks + ", " + k + ", " + w + ", " + start + ") -> (" +
         k + ", " + w + ")\n  return " + names + " : " + types + "\n}\n";
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

TEST(EmulatedPacked, CompressionAndSelection_AreThoseOfTheCPU) {
  PackedModule narrow(2, 16, "f32");
  check(narrow.selection(16), "sm_90a", false, 1e-4);
}
