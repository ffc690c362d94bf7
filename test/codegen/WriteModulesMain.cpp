//===- WriteModulesMain.cpp - writes the modules of tests -----------------===//
//
//   nsa-write-modules FOLDER COMBINATIONS MODULES [SEED]
//
// Writes FOLDER/sweep-N-FORM.mlir for COMBINATIONS combinations of shapes of
// the kernel sweep, and FOLDER/random-SEED.mlir for MODULES random modules, the
// first with this seed (1). The first line of each is a comment with the
// options that nsa-compile is to be given. Nothing is compiled: what compiles
// them may be another build.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Files.h"
#include "test/gpu/Prebuilt.h"
#include "test/unit/KernelSweep/Checks.h"
#include "test/unit/RandomModules/Writer.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

using namespace nsa;
using namespace nsa::test;

/// The forms of modulesOf, in its order.
static constexpr const char *kForms[] = {"plain", "gated", "rotated"};

/// Every second combination has tile sizes that the compiler would not choose,
/// and two of three are in 16 bits.
static Combination vary(Combination c, size_t number) {
  static constexpr DataType elements[] = {DataType::BF16, DataType::F16,
                                          DataType::F32};
  c = withGating(c, number);
  c.element = elements[number % std::size(elements)];
  if (number % 2)
    c.tileSizes = randomTileSizes(c.seed, 16);
  return c;
}

static Status writeSweep(const std::string &folder, size_t count,
                         uint64_t seed) {
  size_t number = 0;
  for (const Combination &each : sampleCombinations(count, seed, 1e8)) {
    Combination c = vary(each, number);
    std::string head = "// " + c.describe();
    for (const std::string &size : c.tileSizes)
      head += " --tile-size=" + size;
    std::vector<std::string> texts = modulesOf(c);
    for (size_t form = 0; form < texts.size(); ++form) {
      std::string path = folder + "/sweep-" + std::to_string(number) + "-" +
                         kForms[form] + ".mlir";
      if (Status status = writeFileAtomically(path, head + "\n" + texts[form]);
          !status)
        return status;
    }
    ++number;
  }
  return {};
}

static Status writeRandom(const std::string &folder, uint64_t count,
                          uint64_t first) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::string path = folder + "/random-" + std::to_string(seed) + ".mlir";
    if (Status status = writeFileAtomically(path, print(generateModule(seed)));
        !status)
      return status;
  }
  return {};
}

int main(int argc, char **argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(
        stderr,
        "usage: nsa-write-modules FOLDER COMBINATIONS MODULES [SEED]\n");
    return 2;
  }
  auto number = [&](int index) {
    return std::strtoull(argv[index], nullptr, 10);
  };
  uint64_t seed = argc > 4 ? number(4) : 1;
  std::error_code error;
  std::filesystem::create_directories(argv[1], error);
  Status status;
  if (error)
    status = Error{"cannot create '" + std::string(argv[1]) +
                   "': " + error.message()};
  if (status)
    status = writeSweep(argv[1], number(2), seed);
  if (status)
    status = writeRandom(argv[1], number(3), seed);
  if (!status)
    std::fprintf(stderr, "nsa-write-modules: error: %s\n",
                 status.message().c_str());
  return status ? 0 : 1;
}
