//===- Draw.cpp - a token by its probability ------------------------------===//
//
// Probabilities, without a common factor, are fixed-point numbers in chunks of
// some bits: their sums are exact in any order, so that prefixes of a row may
// be summed tile by tile. Pairs of f32 have twice the bits of one.
//
//===----------------------------------------------------------------------===//

#include "dialects/NN/NNSampling.h"
#include "passes/Kernels/NN/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Pairs
//===----------------------------------------------------------------------===//

namespace {
/// The unevaluated sum of two f32, of which the second is below the precision
/// of the first.
struct Pair {
  Expr hi, lo;
};
} // namespace

/// The sum of two numbers of any size, exactly.
static Pair addExactly(Expr a, Expr b) {
  Expr sum = a + b, part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

/// The same where the first one is larger.
static Pair normalize(Expr a, Expr b) {
  Expr sum = a + b;
  return {sum, b - (sum - a)};
}

static Pair add(Pair a, Pair b) {
  Pair sum = addExactly(a.hi, b.hi);
  return normalize(sum.hi, sum.lo + (a.lo + b.lo));
}

static Pair multiply(Pair a, Pair b) {
  // A product that no sum is contracted with.
  Expr product = fma(a.hi, b.hi, a.hi.constant(0));
  Expr rest = fma(a.hi, b.hi, -product);
  return normalize(product, rest + (a.hi * b.lo + a.lo * b.hi));
}

static Pair makePair(Expr like, double number) {
  double hi = static_cast<float>(number);
  return {like.constant(hi), like.constant(number - hi)};
}

/// An i32 below 2^30.
static Pair makePair(Expr number, Type f32) {
  Expr hi = convert(number, f32);
  return {hi, convert(number - convert(hi, number.getType()), f32)};
}

/// exp(x) of x <= 0, 0 below -70.
static Pair exp(Pair x, Type i32) {
  // -n ln 2 in two parts, of which the first has few bits.
  constexpr double ln2 = 0.69314718055994531, part = 11357.0 / 16384;
  Expr n = convert(0.5 - x.hi * (1 / ln2), i32);
  Expr count = convert(n, x.hi.getType());
  Pair r = addExactly(fma(count, count.constant(part), x.hi), x.lo);
  r = add(r, multiply({count, count.constant(0)}, makePair(count, ln2 - part)));
  constexpr int terms = 12;
  double factor = 1;
  for (int i = 2; i <= terms; ++i)
    factor /= i;
  Pair y = makePair(count, factor);
  for (int i = terms; i > 0; --i) {
    factor *= i;
    y = add(multiply(y, r), makePair(count, factor));
  }
  Expr scale = count.constant(1);
  for (int bit = 0; bit < 7; ++bit)
    scale = scale * select((n >> n.constant(bit)) % 2 == 1,
                           std::ldexp(1.0, -(1 << bit)), scale.constant(1));
  scale = select(x.hi > -70, scale, 0);
  return {y.hi * scale, y.lo * scale};
}

//===----------------------------------------------------------------------===//
// Probabilities of a row
//===----------------------------------------------------------------------===//

namespace {
constexpr int64_t kTile = 2048, kCols = 64, kChunks = 4;
using Chunks = SmallVector<Value, kChunks>;

struct DrawKernel {
  explicit DrawKernel(nn::DrawOp op)
      : grid(op.getLogits(), /*elementsPerProgram=*/1),
        parts(llvm::divideCeil(grid.width, kTile)),
        bits(std::min<int64_t>(14, 30 - llvm::Log2_64_Ceil(grid.width))),
        margin(1e-9 + std::ldexp(2.0 * grid.width, -int(kChunks * bits))) {}

  void buildSums(TileBuilder &b, nn::DrawOp::Adaptor in,
                 ArrayRef<Value> out) const;
  void buildChoice(TileBuilder &b, nn::DrawOp::Adaptor in, ArrayRef<Value> sums,
                   Value out) const;
  Expr draws(TileBuilder &b, nn::DrawOp::Adaptor in, Expr row) const;
  Chunks weigh(TileBuilder &b, nn::DrawOp::Adaptor in, Expr row,
               Value tokens) const;
  Pair toPair(ArrayRef<Expr> chunks, Type f32) const;
  Value search(TileBuilder &b, int64_t count, ArrayRef<Value> chunks,
               Chunks &before, ArrayRef<Value> target) const;

  RowGrid grid;
  int64_t parts, bits;
  /// What sums differ from those of doubles by at most, as a part of the sum of
  /// all: pairs are exact to 1e-11, each token to a unit of its last chunk.
  double margin;
};
} // namespace

/// Whether there is a temperature, and a most likely token.
Expr DrawKernel::draws(TileBuilder &b, nn::DrawOp::Adaptor in, Expr row) const {
  return (b.loadScalar(in.getInverse(), {0}) > 0) &
         (b.loadScalar(in.getBest(), {row, 0}) >= 0);
}

/// The chunks of exp((logit - largest) / temperature) of tokens, in their
/// shape.
Chunks DrawKernel::weigh(TileBuilder &b, nn::DrawOp::Adaptor in, Expr row,
                         Value tokens) const {
  Value logits = grid.viewRows(b, in.getLogits());
  Expr best = b.loadScalar(in.getBest(), {row, 0});
  Expr largest = convert(b.loadScalar(logits, {row, best}), b.f32()) +
                 b.loadScalar(in.getBias(), {best});
  Pair inverse = {b.loadScalar(in.getInverse(), {0}),
                  b.loadScalar(in.getInverse(), {1})};
  return b.map(
      {b.load(logits, {row, tokens}), b.load(in.getBias(), {tokens}), tokens},
      SmallVector<Type>(kChunks, b.i32()), [&](ArrayRef<Expr> x) {
        Expr logit = x[0] + x[1];
        Expr isOne = (logit > -INFINITY) & (x[2] < double(grid.width));
        Pair less = addExactly(select(isOne, logit, largest), -largest);
        Pair power = multiply(less, inverse);
        // Exact as far as it counts.
        Expr counts = power.hi > -70;
        power = {select(counts, power.hi, -71), select(counts, power.lo, 0)};
        Pair rest = exp(power, b.i32());
        SmallVector<Value> chunks;
        for (int64_t i = 0; i < kChunks; ++i) {
          Expr hi = rest.hi * std::ldexp(1.0, int(bits));
          Expr chunk = convert(hi + 0.5, b.i32());
          rest = addExactly(hi - convert(chunk, b.f32()),
                            rest.lo * std::ldexp(1.0, int(bits)));
          chunks.push_back(select(isOne, chunk, 0));
        }
        return chunks;
      });
}

/// Program: a tile of a row.
void DrawKernel::buildSums(TileBuilder &b, nn::DrawOp::Adaptor in,
                           ArrayRef<Value> out) const {
  Expr part = b.programId(0), row = b.programId(1);
  b.ifThen(draws(b, in, row), [&] {
    Value tokens = b.range(part * double(kTile), kTile, 1);
    for (auto [chunk, sum] : llvm::zip_equal(weigh(b, in, row, tokens), out))
      b.store(b.reduceAdd(chunk), sum, {row, b.range(part, 1, 1)});
  });
}

Pair DrawKernel::toPair(ArrayRef<Expr> chunks, Type f32) const {
  Pair sum = makePair(chunks.back(), f32);
  double unit = std::ldexp(1.0, -int(bits));
  for (Expr chunk : llvm::reverse(chunks.drop_back()))
    sum = add(makePair(chunk, f32), {sum.hi * unit, sum.lo * unit});
  return {sum.hi * unit, sum.lo * unit};
}

/// The first of `count` whose prefix is larger than the target, of chunks in a
/// column; `before` is the prefix before the first one, then before that one.
Value DrawKernel::search(TileBuilder &b, int64_t count, ArrayRef<Value> chunks,
                         Chunks &before, ArrayRef<Value> target) const {
  Value rows = b.range(0, count, 0), cols = b.range(0, count, 1);
  SmallVector<Value> inputs;
  for (Value chunk : chunks)
    inputs.push_back(b.reduceAdd(
        b.map({chunk, rows, cols}, b.i32(),
              [](ArrayRef<Expr> x) { return select(x[1] <= x[2], x[0], 0); }),
        /*axis=*/0));
  llvm::append_range(inputs, before);
  llvm::append_range(inputs, target);
  inputs.push_back(cols);
  Value larger = b.map(inputs, b.i32(), [&](ArrayRef<Expr> x) {
    SmallVector<Expr> prefix;
    for (int64_t i = 0; i < kChunks; ++i)
      prefix.push_back(x[i] + x[kChunks + i]);
    ArrayRef<Expr> rest = x.drop_front(2 * kChunks);
    Pair over = add(toPair(prefix, b.f32()), {-rest[0], -rest[1]});
    return select(over.hi > 0, rest[2], double(count - 1));
  });
  Value found = b.reduce(ReduceKind::Min, larger);
  for (auto [chunk, sum] : llvm::zip_equal(chunks, before))
    sum = add(b, sum,
              b.reduceAdd(b.map({chunk, rows, found}, b.i32(),
                                [](ArrayRef<Expr> x) {
                                  return select(x[1] < x[2], x[0], 0);
                                }),
                          /*axis=*/0));
  return found;
}

/// Program: a row. The tile, its line of tokens, and the token in that.
void DrawKernel::buildChoice(TileBuilder &b, nn::DrawOp::Adaptor in,
                             ArrayRef<Value> sums, Value out) const {
  Expr row = b.programId(0);
  Value chosen = grid.viewPerRow(b, out), own = b.range(row, 1, 0);
  Expr isDrawn = draws(b, in, row);
  b.ifThen(!isDrawn,
           [&] { b.store(b.load(in.getBest(), {own, 0}), chosen, {own}); });
  b.ifThen(isDrawn, [&] {
    int64_t count = llvm::alignTo(parts, 16), lines = kTile / kCols;
    Chunks chunks, before, all;
    for (Value sum : sums) {
      chunks.push_back(b.load(sum, {row, b.range(0, count, 0)}));
      all.push_back(b.reduceAdd(chunks.back(), /*axis=*/0));
      before.push_back(b.convertTo(b.zeros(1, 1), b.i32()));
    }
    int64_t kept = cast<MemRefType>(in.getUniforms().getType()).getShape()[1];
    Expr slot = (b.loadScalar(in.getPositions(), {row}) + 1) % double(kept);
    Pair uniform = {b.loadScalar(in.getUniforms(), {row, slot, 0}),
                    b.loadScalar(in.getUniforms(), {row, slot, 1})};
    SmallVector<Value> target =
        b.map(all, {b.f32(), b.f32()}, [&](ArrayRef<Expr> x) {
          Pair product = multiply(toPair(x, b.f32()), uniform);
          return SmallVector<Value>{product.hi, product.lo};
        });
    Value part = search(b, count, chunks, before, target);
    auto number = [&](Value first, Value second, double scale) {
      return b.map({first, second}, b.i32(),
                   [&](ArrayRef<Expr> x) { return x[0] * scale + x[1]; });
    };
    Value first = b.map({part}, b.i32(),
                        [&](ArrayRef<Expr> x) { return x[0] * double(lines); });
    Value tokens = number(number(first, b.range(0, lines, 0), 1),
                          b.range(0, kCols, 1), double(kCols));
    Chunks perLine;
    for (Value chunk : weigh(b, in, row, tokens))
      perLine.push_back(b.reduceAdd(chunk));
    Value line = number(first, search(b, lines, perLine, before, target), 1);
    chunks =
        weigh(b, in, row, number(line, b.range(0, kCols, 0), double(kCols)));
    Value col = search(b, kCols, chunks, before, target);
    SmallVector<Value> inputs(before.begin(), before.end());
    for (Value chunk : chunks)
      inputs.push_back(b.reduceAdd(
          b.map({chunk, b.range(0, kCols, 0), col}, b.i32(),
                [](ArrayRef<Expr> x) { return select(x[1] == x[2], x[0], 0); }),
          /*axis=*/0));
    llvm::append_range(inputs, all);
    llvm::append_range(inputs, target);
    inputs.push_back(number(line, col, double(kCols)));
    b.store(b.map(inputs, b.i32(),
                  [&](ArrayRef<Expr> x) {
                    auto getPair = [&](int64_t i, bool isSum) {
                      SmallVector<Expr> own(x.slice(i * kChunks, kChunks));
                      for (int64_t j = 0; isSum && j < kChunks; ++j)
                        own[j] = own[j] + x[j];
                      return toPair(own, b.f32());
                    };
                    ArrayRef<Expr> rest = x.drop_front(3 * kChunks);
                    Pair less = {-rest[0], -rest[1]};
                    Expr least = getPair(2, false).hi * margin;
                    Expr isDecided = (add(getPair(1, true), less).hi > least) &
                                     (add(getPair(0, false), less).hi < -least);
                    return select(isDecided, rest[2], -2);
                  }),
            chosen, {own});
  });
}

static LogicalResult convertDraw(nn::DrawOp op, KernelCache &cache,
                                 PatternRewriter &rewriter) {
  DrawKernel kernel(op);
  SmallVector<Type> types(kChunks,
                          cache.getTensorType({kernel.grid.rows, kernel.parts},
                                              cache.getI32Type()));
  std::string name = kernel.grid.name();
  auto sums = launchKernel(cache, rewriter, op,
                           {"sums", name, {kernel.parts, kernel.grid.rows, 1}},
                           types, [&](auto &b, auto in, ArrayRef<Value> out) {
                             kernel.buildSums(b, in, out);
                           });
  SmallVector<Value> inputs(op->getOperands());
  size_t count = inputs.size();
  llvm::append_range(inputs, sums);
  return cache.replace(rewriter, op, {"choice", name, {kernel.grid.rows, 1, 1}},
                       inputs, [&](TileBuilder &b, ArrayRef<Value> args) {
                         kernel.buildChoice(
                             b, nn::DrawOp::Adaptor(args.take_front(count), op),
                             args.drop_front(count).drop_back(), args.back());
                       });
}

void nsa::populateDrawPatterns(KernelPatterns &patterns) {
  patterns.add(convertDraw);
}
