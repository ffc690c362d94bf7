//===- RandomTiles.cpp - tile sizes that no compiler would choose ---------===//

#include "test/unit/KernelSweep/Combination.h"

#include <random>

using namespace nsa;

std::vector<std::string> nsa::test::randomTileSizes(uint64_t seed,
                                                    int64_t multiple) {
  std::mt19937_64 random(seed);
  auto draw = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  std::vector<std::string> sizes;
  auto add = [&](const char *name, int64_t size) {
    if (draw(4) > 1)
      sizes.push_back(name + ("=" + std::to_string(size)));
  };
  for (const char *name :
       {"forward-queries", "forward-keys", "backward-queries", "backward-keys"})
    add(name, multiple * draw(96 / multiple));
  add("selected-queries", draw(20));
  add("selected-keys", draw(64));
  add("gathered-queries", draw(20));
  add("select-queries", multiple * draw(64 / multiple));
  add("select-blocks", draw(40));
  return sizes;
}
