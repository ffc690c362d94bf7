//===- RandomProgramTest.cpp - random kernels against the interpreter -----===//
//
// What fusion and the sharing of buffers must never change: the result. Every
// program mixes operations, loops and branches over a pool of tiles.
//
//===----------------------------------------------------------------------===//

#include "test/unit/TileToCPU/KernelTest.h"
#include <cmath>

using namespace mlir;
using namespace nsa::test;
using namespace nsa::tile;

namespace {
/// A tile of f32 and a bound on its elements, which keeps results finite and
/// rounding errors small.
struct Entry {
  Value tile;
  double bound;

  int64_t rows() const { return cast<TileType>(tile.getType()).getRows(); }
  int64_t cols() const { return cast<TileType>(tile.getType()).getCols(); }
};
using Pool = std::vector<Entry>;

/// What is stored later, and where.
struct Replacement {
  Value tile;
  llvm::SmallVector<Operand, 2> indices;
};

class ProgramWriter {
public:
  ProgramWriter(TileBuilder &b, ArrayRef<Value> args, std::mt19937 &random)
      : b(b), input(args[0]), narrow(args[1]), number(args[2]), output(args[3]),
        random(random) {}

  void write();

private:
  int pick(unsigned count) { return static_cast<int>(random() % count); }
  int64_t size() { return 1 + pick(4) * 8 + pick(2) * pick(8); }
  const Entry &any(const Pool &pool) { return pool[pick(pool.size())]; }
  Entry load();
  void store(const Entry &entry, int place);
  Replacement replace(Pool &pool);
  void step(Pool &pool);
  void binary(Pool &pool);
  void dot(Pool &pool);
  void loop(Pool &pool, int depth);
  void branch(Pool &pool, int depth);
  void steps(Pool &pool, int count, int depth);
  /// A recent tile of the shape of `like`, scaled down to `bound`.
  Value pickLike(const Pool &pool, Value like, double bound);

  TileBuilder &b;
  Value input, narrow, number, output;
  std::mt19937 &random;
};

class RandomProgramTest : public KernelTest {};
} // namespace

Entry ProgramWriter::load() {
  Value rows = b.range(pick(6) - 2, size(), 0);
  Value cols = b.range(pick(8) - 3, size(), 1);
  return {b.loadF32(pick(3) ? input : narrow, {rows, cols}), 1};
}

void ProgramWriter::store(const Entry &entry, int place) {
  b.store(entry.tile, output,
          {b.range(place, entry.rows(), 0), b.range(place, entry.cols(), 1)});
}

/// Reads what a new tile will replace. Only tiles of this bound are stored
/// there.
Replacement ProgramWriter::replace(Pool &pool) {
  constexpr double bound = 4;
  Entry x = pick(3) ? load() : any(pool);
  double scale = x.bound > bound / 2 ? bound / x.bound : 2;
  Value tile =
      b.map({x.tile}, b.f32(), [&](ArrayRef<Expr> e) { return e[0] * scale; });
  Replacement result{
      tile,
      {b.range(pick(2), x.rows(), 0), b.range(pick(2) * 8 + 104, x.cols(), 1)}};
  Value old = b.load(output, result.indices);
  Value sum =
      b.map({tile, old}, b.f32(), [](ArrayRef<Expr> e) { return e[0] + e[1]; });
  for (Value made : {tile, old, sum})
    if (pick(3))
      pool.push_back({made, 2 * bound});
  return result;
}

void ProgramWriter::binary(Pool &pool) {
  Entry x = any(pool), y = any(pool);
  auto fits = [](int64_t a, int64_t b) { return a == b || a == 1 || b == 1; };
  if (!fits(x.rows(), y.rows()) || !fits(x.cols(), y.cols()) ||
      x.bound * y.bound > 100)
    return;
  double sum = x.bound + y.bound;
  switch (pick(4)) {
  case 0:
    pool.push_back({b.map({x.tile, y.tile}, b.f32(),
                          [](ArrayRef<Expr> e) { return e[0] + e[1] * 0.5; }),
                    sum});
    break;
  case 1:
    pool.push_back({b.map({x.tile, y.tile}, b.f32(),
                          [](ArrayRef<Expr> e) { return e[0] * e[1]; }),
                    x.bound * y.bound});
    break;
  case 2:
    pool.push_back({b.map({x.tile, y.tile}, b.f32(),
                          [](ArrayRef<Expr> e) { return max(e[0], e[1]); }),
                    sum});
    break;
  default:
    for (Value tile : b.map({x.tile, y.tile}, {b.f32(), b.f32()},
                            [](ArrayRef<Expr> e) -> llvm::SmallVector<Value> {
                              return {e[0] + e[1], e[0] - e[1]};
                            }))
      pool.push_back({tile, sum});
  }
}

void ProgramWriter::dot(Pool &pool) {
  Entry x = any(pool), y = any(pool);
  bool transposeA = pick(2), transposeB = pick(2);
  int64_t m = transposeA ? x.cols() : x.rows();
  int64_t k = transposeA ? x.rows() : x.cols();
  int64_t n = transposeB ? y.rows() : y.cols();
  if (k != (transposeB ? y.cols() : y.rows()) || x.bound * y.bound * k > 1e3)
    return;
  Entry acc{b.full(pick(2), m, n), 1};
  for (const Entry &entry : pool)
    if (entry.rows() == m && entry.cols() == n && pick(2))
      acc = entry;
  pool.push_back({b.dot(x.tile, y.tile, acc.tile, transposeB, transposeA),
                  x.bound * y.bound * k + acc.bound});
}

void ProgramWriter::step(Pool &pool) {
  Entry x = any(pool);
  switch (pick(9)) {
  case 0:
  case 1:
    return binary(pool);
  case 2:
  case 3:
    return dot(pool);
  case 4: {
    auto kind = static_cast<ReduceKind>(pick(3));
    pool.push_back({b.reduce(kind, x.tile, pick(2)), 32 * x.bound});
    return;
  }
  case 5:
    pool.push_back({b.transpose(x.tile), x.bound});
    return;
  case 6:
    pool.push_back(load());
    return;
  case 7:
    if (x.bound < 100)
      store(x, pick(4));
    // Through memory: later loads must see it.
    pool.push_back(
        {b.load(output, {b.range(pick(3), 8, 0), b.range(pick(3), 16, 1)}),
         100});
    return;
  default:
    if (x.bound < 3)
      pool.push_back({b.map({x.tile, b.range(0, x.rows(), 0)}, b.f32(),
                            [](ArrayRef<Expr> e) {
                              return select(e[1] < 5, exp(e[0]), e[0]);
                            }),
                      std::exp(x.bound)});
  }
}

Value ProgramWriter::pickLike(const Pool &pool, Value like, double bound) {
  Entry chosen{like, bound};
  for (const Entry &entry : pool)
    if (entry.tile.getType() == like.getType() &&
        (pick(3) || &entry == &pool.back()))
      chosen = entry;
  if (chosen.bound <= bound)
    return chosen.tile;
  double scale = bound / chosen.bound;
  return b.map({chosen.tile}, b.f32(),
               [&](ArrayRef<Expr> e) { return e[0] * scale; });
}

void ProgramWriter::loop(Pool &pool, int depth) {
  constexpr double bound = 4;
  llvm::SmallVector<Value> inits;
  for (int i = 0, count = 1 + pick(3); i < count; ++i) {
    const Entry &entry = any(pool);
    inits.push_back(pickLike({entry}, entry.tile, bound));
  }
  if (pick(3) == 0)
    inits.push_back(inits.front());
  auto results =
      b.forLoop(0, pick(4), 1, inits, [&](Expr, ArrayRef<Value> carried) {
        Pool inner = pool;
        for (Value tile : carried)
          inner.push_back({tile, bound});
        steps(inner, 1 + pick(4), depth + 1);
        llvm::SmallVector<Value> next;
        for (Value tile : carried)
          next.push_back(pickLike(inner, tile, bound));
        return next;
      });
  for (Value tile : results)
    pool.push_back({tile, bound});
}

void ProgramWriter::branch(Pool &pool, int depth) {
  constexpr double bound = 4;
  Expr flag = b.loadScalar(number, {0});
  Value like = any(pool).tile;
  auto fill = [&]() -> llvm::SmallVector<Value> {
    Pool inner = pool;
    steps(inner, 2, depth + 1);
    return {pickLike(inner, like, bound)};
  };
  // `like` itself may be chosen although its bound is larger.
  double largest = bound;
  for (const Entry &entry : pool)
    if (entry.tile == like)
      largest = std::max(largest, entry.bound);
  auto results = b.ifThenElse(flag == static_cast<double>(pick(2)), fill, fill);
  pool.push_back({results[0], largest});
}

void ProgramWriter::steps(Pool &pool, int count, int depth) {
  std::vector<Replacement> later;
  auto storeOne = [&] {
    b.store(later.back().tile, output, later.back().indices);
    later.pop_back();
  };
  for (int i = 0; i < count; ++i) {
    int kind = pick(14);
    if (kind == 0 && depth < 2)
      loop(pool, depth);
    else if (kind == 1 && depth < 2)
      branch(pool, depth);
    else if (kind < 4)
      later.push_back(replace(pool));
    else
      step(pool);
    if (!later.empty() && pick(4) == 0)
      storeOne();
  }
  while (!later.empty())
    storeOne();
}

void ProgramWriter::write() {
  Pool pool;
  for (int i = 0; i < 4; ++i)
    pool.push_back(load());
  steps(pool, 6 + pick(14), 0);
  for (int i = 0; i < 5; ++i) {
    Entry last = pool[pool.size() - 1 - i % pool.size()];
    b.store(last.tile, output,
            {b.range(40, last.rows(), 0), b.range(32 * i, last.cols(), 1)});
  }
}

TEST_F(RandomProgramTest, RandomKernels_AgreeWithTheInterpreter) {
  for (unsigned seed = 0; seed < 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    KernelCase test;
    test.inputs = {"36x40xf32", "36x40xbf16", "1xi32"};
    test.outputs = {"80x200xf32"};
    test.data[2] = {0};
    test.data[3] = std::vector<double>(80 * 200, 0.0);
    test.tolerance = 3e-5;
    test.body = [=](TileBuilder &b, ArrayRef<Value> args) {
      std::mt19937 choices(seed);
      ProgramWriter(b, args, choices).write();
    };
    check(test);
  }
}
