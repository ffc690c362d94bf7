//===- Combination.cpp - shapes to try kernels on -------------------------===//

#include "test/unit/KernelSweep/Combination.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <numeric>
#include <random>
#include <sstream>
#include <tuple>

using namespace nsa;
using namespace nsa::test;

const char *nsa::test::nameOf(Phi phi) {
  switch (phi) {
  case Phi::Mean:
    return "mean";
  case Phi::Linear:
    return "linear";
  case Phi::Mlp:
    return "mlp";
  }
  return "";
}

reference::Arithmetic Combination::arithmetic() const {
  return element == DataType::F32    ? reference::Arithmetic::F32
         : element == DataType::BF16 ? reference::Arithmetic::BF16
                                     : reference::Arithmetic::F16;
}

std::string Combination::describe() const {
  std::ostringstream out;
  out << "B=" << batch << " S=" << sequence << " Hkv=" << kvHeads
      << " G=" << group << " dk=" << dk << " dv=" << dv << " n=" << count
      << " w=" << window << " l=" << l << " d=" << d << " l'=" << lSel << ' '
      << typeName(element) << ' ' << nameOf(phi)
      << (positions ? " with positions" : "") << " logits=" << logits
      << " gating=" << gating << (gateBias ? " with bias" : "");
  for (const std::string &size : tileSizes)
    out << " tile=" << size;
  if (selectedForm != "auto")
    out << " form=" << selectedForm;
  if (refused != 0)
    out << " refused=" << refused;
  out << " seed=" << seed;
  return out.str();
}

std::optional<Combination>
nsa::test::parseCombination(const std::string &text) {
  Combination c;
  c.gateBias = text.find("with bias") != std::string::npos;
  c.positions = text.find("with positions") != std::string::npos;
  const std::pair<const char *, int64_t *> sizes[] = {
      {"B", &c.batch}, {"S", &c.sequence}, {"Hkv", &c.kvHeads},
      {"G", &c.group}, {"dk", &c.dk},      {"dv", &c.dv},
      {"n", &c.count}, {"w", &c.window},   {"l", &c.l},
      {"d", &c.d},     {"l'", &c.lSel},    {"refused", &c.refused}};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    size_t equals = word.find('=');
    std::string key = word.substr(0, equals);
    std::string value = equals < word.size() ? word.substr(equals + 1) : "";
    bool known = key == "with" || key == "bias" || key == "positions";
    for (auto [name, size] : sizes)
      if (key == name) {
        *size = std::strtoll(value.c_str(), nullptr, 10);
        known = true;
      }
    for (Phi phi : {Phi::Mean, Phi::Linear, Phi::Mlp})
      if (key == nameOf(phi)) {
        c.phi = phi;
        known = true;
      }
    for (DataType element : {DataType::F32, DataType::BF16, DataType::F16})
      if (key == typeName(element)) {
        c.element = element;
        known = true;
      }
    if (key == "gating")
      c.gating = value;
    else if (key == "tile")
      c.tileSizes.push_back(value);
    else if (key == "form")
      c.selectedForm = value;
    else if (key == "logits")
      c.logits = std::strtod(value.c_str(), nullptr);
    else if (key == "seed")
      c.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (!known)
      return std::nullopt;
  }
  return c;
}

//===----------------------------------------------------------------------===//
// The spread
//===----------------------------------------------------------------------===//

namespace {

/// Deals the values of a list in random order, all of them before any again.
template <typename T>
class Deck {
public:
  Deck(std::vector<T> values, std::mt19937_64 &random)
      : values(std::move(values)), random(random) {}

  T draw() {
    if (next % values.size() == 0)
      std::shuffle(values.begin(), values.end(), random);
    return values[next++ % values.size()];
  }

private:
  std::vector<T> values;
  std::mt19937_64 &random;
  size_t next = 0;
};

struct Blocks {
  int64_t l, d, lSel;
};
struct Widths {
  int64_t dk, dv;
};

} // namespace

/// Multiplications of the most expensive attention.
static double cost(const Combination &c) {
  double keys = std::min({c.window, c.sequence});
  keys = std::max<double>(keys, std::min(c.count * c.lSel, c.sequence));
  keys = std::max<double>(keys, c.compressed() / 2);
  double pairs = static_cast<double>(c.batch * c.heads() * c.sequence) * keys;
  return pairs * static_cast<double>(c.dk + c.dv);
}

/// Makes a combination that costs too much smaller, sequence length last.
static void shrink(Combination &c, double budget) {
  if (cost(c) > budget)
    c.batch = c.kvHeads = 1;
  if (cost(c) > budget)
    c.dk = c.dv = 16;
  while (cost(c) > budget && c.group > 1)
    c.group /= 2;
  if (cost(c) > budget)
    c.window = std::min<int64_t>(c.window, 512);
  while (cost(c) > budget && c.sequence > 1)
    c.sequence /= 2;
}

size_t nsa::test::sweepCount(size_t full, size_t sample) {
  if (const char *text = std::getenv("NSA_SWEEP_COUNT"))
    return std::strtoull(text, nullptr, 10);
  const char *suite = std::getenv("NSA_TEST_SUITE");
  return suite && std::string(suite) == "full" ? full : sample;
}

std::vector<Combination> nsa::test::withManyBlocks() {
  std::vector<Combination> list;
  for (const char *text :
       {"B=1 S=83 Hkv=2 G=16 dk=64 dv=64 n=2 w=16 l=16 d=8 l'=16 bf16 mean "
        "logits=1 gating=sigmoid with bias seed=11",
        "B=1 S=150 Hkv=1 G=8 dk=128 dv=128 n=2 w=32 l=16 d=8 l'=32 bf16 mean "
        "logits=10000 gating=softmax seed=12",
        "B=2 S=90 Hkv=1 G=4 dk=64 dv=32 n=2 w=16 l=8 d=4 l'=16 f16 mean "
        "logits=1 gating=given seed=13",
        "B=1 S=97 Hkv=1 G=16 dk=16 dv=16 n=2 w=16 l=8 d=4 l'=8 bf16 mean "
        "logits=1 gating=given seed=14",
        "B=1 S=83 Hkv=1 G=8 dk=32 dv=32 n=2 w=16 l=16 d=8 l'=16 f32 mean "
        "logits=1 gating=sigmoid seed=15",
        // Queries whose rows leave gaps in M-tiles of 16.
        "B=1 S=85 Hkv=2 G=6 dk=64 dv=64 n=2 w=16 l=16 d=8 l'=16 bf16 mean "
        "logits=1 gating=sigmoid with bias seed=17",
        "B=1 S=99 Hkv=1 G=12 dk=32 dv=64 n=2 w=16 l=8 d=4 l'=16 f16 mean "
        "logits=1 gating=softmax with bias seed=18",
        // Programs of the window have all heads of a group.
        "B=1 S=150 Hkv=2 G=4 dk=64 dv=64 n=2 w=140 l=16 d=8 l'=16 bf16 mean "
        "logits=1 gating=sigmoid seed=21"}) {
    std::optional<Combination> c = parseCombination(text);
    assert(c && "an unknown word");
    list.push_back(*c);
  }
  return list;
}

std::vector<Combination>
nsa::test::sampleCombinations(size_t count, uint64_t seed, double budget) {
  std::mt19937_64 random(seed);
  Deck<int64_t> sequences({1,   15,   16,   31,   32,   33,   47,  48,
                           63,  64,   65,   127,  128,  129,  511, 512,
                           513, 1023, 1024, 1025, 2047, 2048, 4097},
                          random);
  Deck<int64_t> groups({1, 2, 3, 4, 5, 6, 8, 12, 16, 32}, random);
  Deck<Widths> widths({{16, 16}, {64, 64}, {128, 128}, {192, 128}, {64, 128}},
                      random);
  Deck<int64_t> counts({1, 3, 4, 16, 80}, random);
  Deck<int64_t> windows({1, 64, 512, 5000}, random);
  Deck<Blocks> blocks({{32, 16, 64},
                       {16, 16, 16},
                       {32, 32, 64},
                       {64, 16, 64},
                       {16, 8, 48},
                       {8, 4, 16}},
                      random);
  Deck<double> logits({1.0, 1.0, 1.0, 4.0, 1e4, 0.0}, random);
  Deck<int> flags({0, 1, 2, 3}, random);
  Deck<std::pair<Phi, bool>> phis({{Phi::Mean, false},
                                   {Phi::Linear, false},
                                   {Phi::Linear, true},
                                   {Phi::Mlp, false},
                                   {Phi::Mlp, true}},
                                  random);
  std::vector<Combination> result;
  for (size_t i = 0; i < count; ++i) {
    Combination c;
    c.sequence = sequences.draw();
    c.group = groups.draw();
    Widths width = widths.draw();
    c.dk = width.dk;
    c.dv = width.dv;
    c.count = counts.draw();
    c.window = windows.draw();
    Blocks block = blocks.draw();
    c.l = block.l;
    c.d = block.d;
    c.lSel = block.lSel;
    c.logits = logits.draw();
    int flag = flags.draw();
    c.batch = 1 + (flag & 1);
    c.kvHeads = 1 + ((flag >> 1) & 1);
    std::tie(c.phi, c.positions) = phis.draw();
    if (i % 3 == 2)
      c.element = i % 2 ? DataType::F16 : DataType::BF16;
    c.seed = random();
    shrink(c, budget);
    result.push_back(c);
  }
  return result;
}
