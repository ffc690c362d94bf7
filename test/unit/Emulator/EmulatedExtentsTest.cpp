//===- EmulatedExtentsTest.cpp - CUDA kernels for any batch and length ----===//
//
// Modules with `?` for a GPU, compiled once, against modules with numbers, on
// the emulator: every output has the same bits where the tiles are the same.
//
//===----------------------------------------------------------------------===//

#include "test/unit/Emulator/EmulatedModule.h"
#include "test/unit/OpenModule.h"

#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;

namespace {

/// For a GPU, whose warpgroups copy for others wherever that is possible, or
/// only where it pays.
OpenCheck checkOn(const std::string &target, bool isEager,
                  std::vector<Shape> shapes) {
  OpenCheck check = {std::move(shapes)};
  check.target = target;
  check.compile = [isEager](const std::string &text,
                            const CompilerOptions &options) {
    return emulator::compileForEmulator(text, options, isEager);
  };
  return check;
}

} // namespace

// Heads of a group share a program, which tensor maps copy for.
TEST(EmulatedExtents, WindowAttention_HasBitsOfFixedShape) {
  OpenModule module = openAttention({2, 64, "bf16"}, "#nsa.window<200>");
  checkOpen(module, checkOn("sm_90a", true, {{1, 129}, {2, 150}}));
  checkOpen(module, checkOn("sm_80", false, {{1, 129}, {2, 140}}));
}

TEST(EmulatedExtents, CausalAttention_HasBitsOfFixedShape) {
  OpenModule module = openAttention({1, 64, "bf16"}, "#nsa.causal");
  checkOpen(module, checkOn("sm_90a", false, {{1, 129}, {2, 150}}));
  checkOpen(openAttention({1, 16, "f32"}, "#nsa.causal"),
            checkOn("sm_86", false, {{2, 130}}));
}

// With copies of warpgroups or without, forward.
TEST(EmulatedExtents, Branches_HaveBitsOfFixedShape) {
  OpenModule module = openBranches({4, 32, "bf16"}, {});
  checkOpen(module, checkOn("sm_90a", true, {{1, 200}}));
  checkOpen(module, checkOn("sm_80", false, {{2, 150}}));
}

// What sums are made of depends on how many programs fit a GPU.
TEST(EmulatedExtents, Gradients_HaveNumbersOfFixedShape) {
  std::vector<std::string> all = {"q", "k", "v", "gates"};
  OpenCheck check = checkOn("sm_90a", false, {{1, 1}, {3, 7}, {1, 200}});
  check.tolerance = 1e-5;
  checkOpen(openBranches({2, 16, "f32"}, all), check);
  check = checkOn("sm_90a", true, {{2, 150}});
  check.tolerance = 1e-2;
  checkOpen(openBranches({4, 32, "bf16"}, all), check);
}

// A program's 5 queries have 20 blocks, as many as 10,007 tokens have programs
// that list them.
TEST(EmulatedExtents, GradientsOfThreeHeadsAGroup_HaveNumbersOfFixedShape) {
  OpenCheck check = checkOn("sm_90a", false, {{1, 45}, {2, 130}});
  check.tolerance = 2e-2;
  checkOpen(openBranches({3, 16, "bf16"}, {"q", "k", "v", "gates"}), check);
}

TEST(EmulatedExtents, Masks_HaveBitsOfFixedShape) {
  OpenCheck check = checkOn("sm_90a", true, {{1, 77}});
  check.selectedForm = "masks";
  checkOpen(openBranches({4, 32, "bf16"}, {}), check);
  check.tolerance = 1e-2;
  checkOpen(openBranches({4, 32, "bf16"}, {"q", "k", "v", "gates"}), check);
}

TEST(EmulatedExtents, Rotary_HasNumbersOfFixedShape) {
  OpenCheck check = checkOn("sm_90a", false, {{2, 70}});
  check.tolerance = 1e-2;
  checkOpen(openRotaryBranches({4, 32, "bf16"}, 32, {"q", "k"}), check);
}

TEST(EmulatedExtents, EmptyTensors_Run) {
  checkEmpty(openBranches({4, 32, "bf16"}, {"k", "v"}),
             checkOn("sm_90a", true, {}), "grad.k");
}
