//===- EmulatedKernelsTest.cpp - CUDA kernels against the reference -------===//
//
// Compiles every nsa operation for a GPU, runs it on the emulator with poisoned
// memory, and compares forward and backward with the fp64 reference, as
// KernelSweepTest does for the CPU: half of them for Hopper, the others for the
// GPUs before it. NSA_TEST_SUITE=full tries 192 combinations, otherwise 4.
// NSA_SWEEP_COUNT overrides the number, NSA_TEST_SEED the seed. NSA_COMBINATION
// takes one combination, in the words of a failure's message, and NSA_TARGET
// the GPU for all; NSA_TARGET=cpu runs them as KernelSweepTest would.
//
//===----------------------------------------------------------------------===//

#include "test/unit/Emulator/EmulatedModule.h"
#include "test/unit/KernelSweep/Checks.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <gtest/gtest.h>
#include <tuple>

using namespace nsa;
using namespace nsa::test;

namespace {

constexpr char kHopper[] = "sm_90a";

/// The older one of the GPUs for combination `number`, without wgmma and tensor
/// copies.
const char *ampere(size_t number) { return number % 4 < 2 ? "sm_86" : "sm_80"; }

/// The GPU for combination `number` of a list: every element type of every four
/// combinations comes to both kinds.
const char *alternating(size_t number) {
  return (number + 2) % 8 < 4 ? kHopper : ampere(number);
}

/// `target`, unless NSA_TARGET names another.
std::string chosen(const char *target) {
  const char *other = std::getenv("NSA_TARGET");
  return other ? other : target;
}

/// Both, once if they are the same; or the one that NSA_TARGET names.
std::vector<std::string> targets(const char *one, const char *other) {
  std::vector<std::string> list = {chosen(one), chosen(other)};
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

Compile compilerFor(const std::string &target) {
  if (target == "cpu")
    return Compile();
  return [target](const std::string &text, const CompilerOptions &options) {
    CompilerOptions changed = options;
    changed.target = target;
    return emulator::compileForEmulator(text, changed);
  };
}

/// Heads as wide as those of models, on short sequences: several tiles of
/// queries and keys with ragged ends, in 16 bits but for every fourth.
std::vector<Combination> wideHeads(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto pick = [&](const auto &list) { return list[random() % list.size()]; };
  const std::vector<int64_t> sequences = {33, 47, 64, 65, 97, 129, 160};
  const std::vector<int64_t> groups = {1, 2, 3, 6};
  const std::vector<std::pair<int64_t, int64_t>> widths = {
      {64, 64}, {64, 32}, {32, 64}, {48, 80}, {128, 64}, {128, 128}};
  const std::vector<int64_t> counts = {1, 3, 4, 16}, windows = {1, 17, 64, 512};
  const std::vector<std::array<int64_t, 3>> blocks = {
      {32, 16, 64}, {16, 16, 16}, {16, 8, 48}, {8, 4, 16}};
  std::vector<Combination> list(count);
  for (size_t i = 0; i < count; ++i) {
    Combination &c = list[i];
    c.sequence = pick(sequences);
    c.group = pick(groups);
    std::tie(c.dk, c.dv) = pick(widths);
    c.count = pick(counts);
    c.window = pick(windows);
    auto [l, d, lSel] = pick(blocks);
    c.l = l;
    c.d = d;
    c.lSel = lSel;
    c.element = i % 4 == 3   ? DataType::F32
                : i % 4 == 2 ? DataType::F16
                             : DataType::BF16;
    static constexpr Phi phis[] = {Phi::Mean, Phi::Linear, Phi::Mlp};
    c.phi = phis[i % 3];
    c.positions = c.phi != Phi::Mean && random() % 2;
    c.seed = random();
  }
  return list;
}

std::vector<Combination> combinations(uint64_t seed) {
  if (const char *text = std::getenv("NSA_COMBINATION")) {
    std::optional<Combination> c = parseCombination(text);
    EXPECT_TRUE(c) << "no combination: " << text;
    return {c.value_or(Combination())};
  }
  // What the CPU is tried on, made smaller, and 16 bits in every second one.
  size_t count = sweepCount(192, 4);
  std::vector<Combination> list =
      sampleCombinations(count - count / 2, seed, 1e6);
  for (size_t i = 0; i < list.size(); ++i)
    list[i].element = i % 2 == 0   ? DataType::F32
                      : i % 4 == 1 ? DataType::BF16
                                   : DataType::F16;
  for (const Combination &c : wideHeads(count / 2, seed))
    list.push_back(c);
  return list;
}

} // namespace

TEST(EmulatedKernels, EveryKernel_AgreesWithTheReference) {
  for (auto [number, c] : llvm::enumerate(combinations(testSeed()))) {
    std::string target = chosen(alternating(number));
    SCOPED_TRACE("for " + target);
    checkAll(c, compilerFor(target));
    if (HasFailure())
      break;
  }
}

using Check = void (*)(const Combination &, const Compile &);

/// Checks combinations with every kind of gates, up to the first that fails.
static void checkEach(Check check, uint64_t seed) {
  for (auto [number, c] : llvm::enumerate(combinations(seed))) {
    std::string target = chosen(alternating(number));
    SCOPED_TRACE("for " + target);
    bool given = std::getenv("NSA_COMBINATION");
    check(given ? c : withGating(c, number), compilerFor(target));
    if (testing::Test::HasFailure())
      break;
  }
}

TEST(EmulatedKernels, GatedAttention_AgreesWithTheReference) {
  checkEach(checkGated, testSeed() + 1);
}

TEST(EmulatedKernels, RotationInAttention_IsBitwiseThatApart) {
  checkEach(checkRotation, testSeed() + 2);
}

TEST(EmulatedKernels, AnyTileSizes_AgreeWithTheReference) {
  std::vector<Combination> list = wideHeads(sweepCount(48, 1), testSeed() + 4);
  std::vector<Combination> many = sampleOf(withManyBlocks(), 1, testSeed());
  list.insert(list.end(), many.begin(), many.end());
  for (auto [number, given] : llvm::enumerate(list)) {
    Combination c = given;
    c.tileSizes = randomTileSizes(testSeed() + number, 16);
    std::string target = chosen(number % 3 ? kHopper : ampere(number));
    SCOPED_TRACE("for " + target);
    checkAll(c, compilerFor(target));
    checkGated(c, compilerFor(target));
    if (HasFailure())
      break;
  }
}

// What a kernel takes where its first schedules have too many registers, and
// widths and blocks that tensor cores do not add up to.
TEST(EmulatedKernels, LaterSchedules_AgreeWithTheReference) {
  constexpr int64_t most = 11;
  std::vector<Combination> list = wideHeads(sweepCount(64, 2), testSeed() + 5);
  const std::vector<std::pair<int64_t, int64_t>> widths = {
      {40, 40}, {128, 64}, {72, 56}, {64, 64}, {136, 104}, {32, 88}, {40, 200}};
  const std::vector<int64_t> groups = {1, 3, 5, 6, 7};
  for (auto [number, given] : llvm::enumerate(list)) {
    Combination c = given;
    std::mt19937_64 random(testSeed() + number);
    std::tie(c.dk, c.dv) = widths[random() % widths.size()];
    c.group = groups[random() % groups.size()];
    c.refused = int64_t(random() % (most + 1));
    if (random() % 2 == 0)
      std::tie(c.l, c.d, c.lSel) =
          random() % 2 == 0 ? std::tuple(8, 4, 20) : std::tuple(16, 4, 76);
    c.selectedForm = random() % 3 == 0 ? "masks" : "auto";
    std::string target = chosen(number % 2 ? ampere(number) : kHopper);
    SCOPED_TRACE("for " + target);
    checkAll(c, compilerFor(target));
    checkGated(c, compilerFor(target));
    if (HasFailure())
      break;
  }
}

// The first has more blocks than a word of a mask has bits, the second rows
// that select only some of the blocks of a tile.
TEST(EmulatedKernels, Masks_AgreeWithTheReference) {
  std::vector<const char *> texts = {
      "B=1 S=290 Hkv=2 G=3 dk=16 dv=32 n=3 w=16 l=8 d=4 l'=8 bf16 mean "
      "logits=1 gating=sigmoid with bias form=masks seed=1",
      "B=2 S=230 Hkv=1 G=6 dk=64 dv=64 n=3 w=32 l=16 d=8 l'=16 bf16 mean "
      "logits=4 gating=softmax form=masks seed=5",
      "B=1 S=200 Hkv=1 G=4 dk=32 dv=32 n=2 w=16 l=32 d=16 l'=64 f16 mean "
      "logits=1 gating=given form=masks seed=7",
      "B=1 S=97 Hkv=2 G=1 dk=48 dv=80 n=2 w=16 l=16 d=8 l'=48 f32 mean "
      "logits=1 gating=sigmoid form=masks seed=9"};
  for (auto [number, text] : llvm::enumerate(sampleOf(texts, 2, testSeed()))) {
    std::optional<Combination> c = parseCombination(text);
    ASSERT_TRUE(c) << text;
    std::string target = chosen(number % 2 ? ampere(number) : kHopper);
    SCOPED_TRACE("for " + target);
    checkAll(*c, compilerFor(target));
    checkGated(*c, compilerFor(target));
  }
}

TEST(EmulatedKernels, LargeScores_OwnLogSumExp_GradientsAsExactAsTheFormula) {
  // fp32 does not use tensor cores: the sample takes one GPU.
  const char *other = sweepCount(2, 1) > 1 ? ampere(0) : kHopper;
  for (const std::string &target : targets(kHopper, other)) {
    SCOPED_TRACE("for " + target);
    checkLargeScores(compilerFor(target));
  }
}

// One key has all of a row's probability: its exponential is 1 in the sum, as
// it is in 16 bits.
TEST(EmulatedKernels, LargeScoresIn16Bits_AgreeWithTheReference) {
  std::optional<Combination> c = parseCombination(
      "B=1 S=64 Hkv=2 G=5 dk=64 dv=64 n=16 w=64 l=32 d=16 l'=64 f16 linear "
      "logits=10000 gating=softmax seed=12557149212039486305");
  ASSERT_TRUE(c);
  for (const std::string &target : targets(kHopper, ampere(0))) {
    SCOPED_TRACE("for " + target);
    checkAll(*c, compilerFor(target));
  }
}

// Three warpgroups round exponents of such scores twice, of others once.
TEST(EmulatedKernels, ScoresOfThreeWarpgroups_AgreeWithTheReference) {
  for (const char *logits : {"10000", "4"}) {
    std::optional<Combination> c = parseCombination(
        std::string("B=1 S=200 Hkv=1 G=1 dk=64 dv=64 n=2 w=200 l=32 d=16 "
                    "l'=64 f16 mean gating=softmax tile=forward-queries=192 "
                    "seed=3 logits=") +
        logits);
    ASSERT_TRUE(c);
    checkAll(*c, compilerFor(chosen(kHopper)));
  }
}

// Sums on tensor cores depend on which numbers share an instruction: blocks
// that tie once did not.
TEST(EmulatedKernels, EqualBlocks_Tie) {
  auto list = wideHeads(sweepCount(24, 2), testSeed() + 3);
  for (auto [number, given] : llvm::enumerate(list)) {
    // Enough blocks for some to have rows in two instructions.
    Combination c = given;
    c.sequence += 120;
    std::tie(c.l, c.d, c.lSel) = std::tuple(8, 4, 16);
    c.count = 7;
    for (const std::string &target : targets(kHopper, ampere(number))) {
      SCOPED_TRACE("for " + target);
      checkTies(c, compilerFor(target));
    }
  }
}

// With ten times as many tokens as a query selects, and heads in groups, the
// gradients of keys are sums of parts that other programs compute. The sample
// takes one GPU for each, and rotates in every second.
TEST(EmulatedKernels, GradientsOfKeysInParts_AgreeWithTheReference) {
  std::vector<const char *> texts = {
      "B=1 S=200 Hkv=2 G=3 dk=16 dv=32 n=2 w=16 l=8 d=4 l'=8 bf16 mean "
      "logits=1 gating=sigmoid with bias seed=1",
      "B=2 S=230 Hkv=1 G=6 dk=64 dv=64 n=3 w=32 l=8 d=4 l'=8 bf16 mean "
      "logits=1 gating=softmax seed=5",
      "B=1 S=260 Hkv=2 G=1 dk=16 dv=16 n=2 w=16 l=4 d=4 l'=8 f32 mean "
      "logits=1 gating=given seed=3",
      // Several programs list queries.
      "B=1 S=1300 Hkv=2 G=2 dk=16 dv=16 n=3 w=16 l=16 d=8 l'=16 bf16 mean "
      "logits=1 gating=sigmoid with bias seed=31"};
  for (auto [number, text] : llvm::enumerate(sampleOf(texts, 2, testSeed()))) {
    std::optional<Combination> c = parseCombination(text);
    ASSERT_TRUE(c) << text;
    std::vector<std::string> list = targets(kHopper, ampere(number));
    if (sweepCount(2, 1) == 1)
      list = {list[number % list.size()]};
    for (const std::string &target : list) {
      SCOPED_TRACE("for " + target);
      checkGated(*c, compilerFor(target));
      if (list.size() > 1 || number % 2)
        checkRotation(*c, compilerFor(target));
    }
  }
}

// Where few of many blocks are selected, four warps share the blocks that are
// copied for them, and each skips those that its queries did not select.
// The sample takes one GPU for each, and checks attention apart and rotation in
// turn.
TEST(EmulatedKernels, WarpsSkipBlocks_AgreeWithTheReference) {
  bool isFull = sweepCount(2, 1) > 1;
  for (auto [number, c] :
       llvm::enumerate(sampleOf(withManyBlocks(), 2, testSeed()))) {
    const char *other = number % 2 ? ampere(number) : kHopper;
    const char *first = isFull ? kHopper : other;
    for (const std::string &target : targets(first, other)) {
      SCOPED_TRACE("for " + target);
      checkGated(c, compilerFor(target));
      if (isFull || number % 2)
        checkAll(c, compilerFor(target));
      if (isFull || number % 2 == 0)
        checkRotation(c, compilerFor(target));
    }
  }
}
