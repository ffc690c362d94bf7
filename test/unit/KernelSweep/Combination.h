//===- Combination.h - shapes to try kernels on -----------------*- C++ -*-===//
//
// A seeded spread over the shapes that every kernel is tried on, and the
// module that has every nsa operation of one combination as an entry.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_KERNELSWEEP_COMBINATION_H
#define NSA_TEST_UNIT_KERNELSWEEP_COMBINATION_H

#include "nsa/Artifact/DataType.h"
#include "test/unit/VisibleKeys.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace nsa::test {

/// How blocks are compressed.
enum class Phi { Mean, Linear, Mlp };

/// The shape and the data of one trial.
struct Combination {
  int64_t batch = 1, sequence = 64, kvHeads = 1, group = 1, dk = 16, dv = 16;
  /// Selected blocks, window, compression block and stride, selection block.
  int64_t count = 4, window = 64, l = 8, d = 4, lSel = 16;
  /// Forced blocks at the query's end.
  int64_t local = 2;
  DataType element = DataType::F32;
  Phi phi = Phi::Mean;
  /// Whether linear and mlp have an embedding of the place in the block.
  bool positions = false;
  /// For the fused operations: where gates come from, "given" or an activation
  /// of logits, and whether logits have a bias.
  std::string gating = "sigmoid";
  bool gateBias = true;
  /// Standard deviation of the scores; 0 makes them all equal.
  double logits = 1.0;
  /// "NAME=SIZE" of tiles that the compiler does not choose.
  std::vector<std::string> tileSizes;
  /// That of the selected branch, for a GPU.
  std::string selectedForm = "auto";
  /// Schedules of each kernel's list that are taken for refused.
  int64_t refused = 0;
  uint64_t seed = 0;

  bool isNarrow() const { return element != DataType::F32; }
  /// The arithmetic that the kernels compute in.
  reference::Arithmetic arithmetic() const;
  int64_t heads() const { return kvHeads * group; }
  int64_t compressed() const {
    return sequence >= l ? (sequence - l) / d + 1 : 0;
  }
  std::string describe() const;
};

/// The combination that `describe` gave this text for; what is left out has its
/// default. Nothing if there is a word that it does not know.
std::optional<Combination> parseCombination(const std::string &text);

/// How many combinations to try: `full` in the full suite
/// (NSA_TEST_SUITE=full), else `sample`; what NSA_SWEEP_COUNT says, if it is
/// set.
size_t sweepCount(size_t full, size_t sample);

/// All of a list in the full suite, else `sample` of them that the seed
/// chooses; as many as NSA_SWEEP_COUNT says, if it is set.
template <typename T>
std::vector<T> sampleOf(std::vector<T> list, size_t sample, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::shuffle(list.begin(), list.end(), random);
  list.resize(std::min(list.size(), sweepCount(list.size(), sample)));
  return list;
}

/// `count` combinations; every listed value of every parameter occurs about
/// equally often. `budget` bounds the multiplications of one attention.
std::vector<Combination> sampleCombinations(size_t count, uint64_t seed,
                                            double budget);

/// Every tile size that the compiler can be given with a random value,
/// but for about a quarter of them: multiples of `multiple` where they must be.
std::vector<std::string> randomTileSizes(uint64_t seed, int64_t multiple);

/// Sequences of so many blocks that queries select a small part of them, with
/// heads in groups of 4 to 16.
std::vector<Combination> withManyBlocks();

/// The mnemonic of a kind of compression.
const char *nameOf(Phi phi);

/// The module of one combination. Entries: compress_k, compress_v, cmp, select,
/// statistics, slc, win, combine, each but select and statistics with a
/// `_backward` entry, and `full`, the whole operation; or those of them that
/// `only` names, and only then what fusion makes one operation of, gated and
/// gated_backward, and `rotationEntries`.
std::string moduleText(const Combination &combination,
                       const std::vector<std::string> &only = {});

/// The entries in which attention rotates what it loads and stores, those of
/// the same without, and rotations alone.
std::vector<std::string> rotationEntries();

} // namespace nsa::test

#endif // NSA_TEST_UNIT_KERNELSWEEP_COMBINATION_H
