//===- RandomModulesTest.cpp - random modules against the reference -------===//
//
// Compiles modules that are made up from a seed and checks what they compute:
// against the fp64 reference, with and without fusion, with another recompute
// policy, compiled and run again, and their gradients against differences.
// Memory is poisoned before every run.
//
//   NSA_TEST_SUITE=full      2,000 modules, each compiled in every way,
//                            otherwise 30, each compiled in two ways
//   NSA_TEST_SEED=N          seed of the first module; the next has N+1
//   NSA_RANDOM_MODULES=N     another number of modules
//
// A module that fails is written to a file, and so is a smaller one that fails
// in the same way.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Files.h"
#include "test/unit/CompiledModule.h"
#include "test/unit/RandomModules/Check.h"
#include "test/unit/RandomModules/Writer.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;

/// Seconds for making a failing module smaller.
static constexpr double kShrinkSeconds = 60.0;

static bool isFullSuite() {
  const char *suite = std::getenv("NSA_TEST_SUITE");
  return suite && std::string(suite) == "full";
}

static uint64_t moduleCount() {
  if (const char *text = std::getenv("NSA_RANDOM_MODULES"))
    return std::strtoull(text, nullptr, 10);
  return isFullSuite() ? 2000 : 30;
}

static Programs programs() {
  return isFullSuite() ? Programs::All : Programs::Sample;
}

/// Writes a module to the folder of temporary files and returns its path.
static std::string save(const GraphModule &module, const char *kind) {
  std::string path =
      (std::filesystem::temp_directory_path() /
       ("nsa-random-" + std::to_string(module.seed) + kind + ".mlir"))
          .string();
  Status status = writeFileAtomically(path, print(module));
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.message());
  return path;
}

static void report(const GraphModule &module, const Failure &failure) {
  std::string path = save(module, "");
  GraphModule small = shrink(module, programs(), failure, kShrinkSeconds);
  Coverage ignored;
  std::optional<Failure> smallFailure = checkModule(small, programs(), ignored);
  ADD_FAILURE() << "module of seed " << module.seed << ": " << failure.kind
                << ": " << failure.message << "\nmodule: " << path
                << "\nsmaller: " << save(small, "-small")
                << "\nagain: " << (isFullSuite() ? "NSA_TEST_SUITE=full " : "")
                << "NSA_TEST_SEED=" << module.seed
                << " NSA_RANDOM_MODULES=1 RandomModulesTest\n"
                << print(small) << (smallFailure ? smallFailure->message : "");
}

TEST(RandomModules, AllModules_AgreeWithTheReference) {
  Coverage coverage;
  uint64_t failures = 0;
  // Few modules may be of one kind: more are tried before the bound holds.
  constexpr uint64_t few = 30, enough = 100;
  auto isOpen = [&](uint64_t i) {
    return i < moduleCount() || (moduleCount() >= few && i < enough &&
                                 coverage.loose > coverage.results / 20);
  };
  for (uint64_t i = 0; isOpen(i) && failures < 5; ++i) {
    GraphModule module = generateModule(testSeed() + i);
    // There in case that the compiler crashes.
    std::string path = save(module, "");
    std::optional<Failure> failure = checkModule(module, programs(), coverage);
    if (failure) {
      report(module, *failure);
      ++failures;
      continue;
    }
    std::filesystem::remove(path);
  }
  std::printf("%s\n", coverage.describe().c_str());
  RecordProperty("modules", std::to_string(coverage.modules));
  // Most comparisons must say something.
  if (moduleCount() >= few) {
    EXPECT_LE(coverage.undecided, coverage.results / 20);
    EXPECT_LE(coverage.loose, coverage.results / 20);
  }
}
