//===- Draw.cpp - a token by its probability ------------------------------===//
//
// Probabilities, without a common factor, are fixed-point numbers: their sums
// are exact in any order. The last token that top-k or top-p leaves has the
// largest logit with so many tokens, or so much probability, at and above it:
// of the bits of that, in the order of floats, each launch finds some by what
// tiles have above 16 candidates. Of tokens with equal logits the first ones
// are left, by how many there are.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/NN/DrawNumbers.h"
#include "passes/Kernels/NN/NNToTile.h"

#include <limits>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
constexpr int64_t kTile = 2048, kCols = 64;
/// Bits of a threshold that a launch finds, and the numbers that these are.
constexpr int64_t kStepBits = 4, kBins = 1 << kStepBits,
                  kSteps = 32 / kStepBits;
constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();

using In = nn::DrawOp::Adaptor;
using Values = SmallVector<Value>;

/// A search for the last token that is left: its state of each row, and what
/// tiles have at and above the next candidates.
struct Search {
  bool ofSums;
  Value state = {};
  Values bins = {};

  size_t measures() const { return ofSums ? kDigits : 1; }
};
/// Columns of the state: the limit has the digits of what is to be reached.
enum StateColumn : int64_t { kThreshold, kShift, kLimit };

/// Of each tile the sums above a threshold, the tokens that have it, and those
/// above it; and of each row the threshold.
enum Total : int64_t { kTies = kDigits, kAbove, kOfThreshold, kTotals };

/// What is left of a row: the sums above a threshold and the tokens that have
/// it, how many of these are left, and the digits of each.
struct Kept {
  Values sums, ties, digits;
};

class DrawKernels {
public:
  explicit DrawKernels(nn::DrawOp op)
      : grid(op.getLogits(), /*elementsPerProgram=*/1),
        parts(llvm::divideCeil(grid.width, kTile)) {}

  void buildWeights(TileBuilder &b, In in, ArrayRef<Value> out) const;
  void buildStep(TileBuilder &b, In in, const Search &from, const Search &to,
                 ArrayRef<Value> weights, ArrayRef<Value> totals) const;
  void buildTotals(TileBuilder &b, In in, ArrayRef<Search> searches,
                   ArrayRef<Value> weights, ArrayRef<Value> out) const;
  void buildChoice(TileBuilder &b, In in, Value limit, ArrayRef<Value> weights,
                   ArrayRef<Value> totals, Value out) const;

  RowGrid grid;
  /// Tiles of a row.
  int64_t parts;

private:
  Expr isDrawn(TileBuilder &b, In in, Expr row) const;
  Expr isActive(TileBuilder &b, In in, Expr row, bool ofSums) const;
  Expr largest(TileBuilder &b, In in, Expr row) const;
  Values load(TileBuilder &b, Expr row, ArrayRef<Value> totals, int axis) const;
  Values takeStep(TileBuilder &b, Expr row, const Search &search) const;
  Kept findKept(TileBuilder &b, In in, Expr row, Value limit,
                ArrayRef<Value> totals) const;
  Value search(TileBuilder &b, int64_t count, ArrayRef<Value> totals,
               Values &before, const Kept &kept, ArrayRef<Value> target) const;
};
} // namespace

static Value makeTile(TileBuilder &b, Operand scalar) {
  return b.range(scalar, 1, 1);
}

/// Digits in a row of a tensor.
static Number loadNumber(TileBuilder &b, Value ref, SmallVector<Operand> at) {
  Number digits;
  at.push_back(0);
  for (int64_t i = 0; i < kDigits; ++i) {
    at.back() = i;
    digits.push_back(b.loadScalar(ref, at));
  }
  return digits;
}

/// Maps what the arguments name in order.
static Values mapAll(TileBuilder &b, std::initializer_list<ArrayRef<Value>> in,
                     size_t results, TileBuilder::MapManyBody body) {
  Values inputs;
  for (ArrayRef<Value> some : in)
    llvm::append_range(inputs, some);
  return b.map(inputs, SmallVector<Type>(results, b.i32()), body);
}

/// The sum of what is left, of the values of a `Kept`.
static Number sumKept(ArrayRef<Expr> x) {
  Expr ties = min(x[kTies], x[kTies + 1]);
  Number sums;
  for (int64_t i = 0; i < kDigits; ++i)
    sums.push_back(x[i] + ties * x[kTies + 2 + i]);
  return carry(std::move(sums));
}

/// A fraction of what is left of a row.
static Values takeFraction(TileBuilder &b, const Kept &kept,
                           ArrayRef<Expr> fraction) {
  return mapAll(
      b, {kept.sums, kept.ties, kept.digits}, kDigits, [&](ArrayRef<Expr> x) {
        return llvm::to_vector_of<Value>(multiply(sumKept(x), fraction));
      });
}

/// What tokens have of `Total`, by their keys and weights.
static Values measure(TileBuilder &b, Value keys, Value weights,
                      Value threshold) {
  return mapAll(b, {{keys, weights, threshold}}, kOfThreshold,
                [](ArrayRef<Expr> x) {
                  Expr isAbove = x[0] > x[2];
                  Values own;
                  for (Expr digit : digitsOf(x[1]))
                    own.push_back(select(isAbove, digit, 0));
                  own.push_back(convert(x[0] == x[2], x[0].getType()));
                  own.push_back(convert(isAbove, x[0].getType()));
                  return own;
                });
}

Expr DrawKernels::isDrawn(TileBuilder &b, In in, Expr row) const {
  return (b.loadScalar(in.getInverse(), {row}) > 0) &
         (b.loadScalar(in.getBest(), {row, 0}) >= 0);
}

/// Whether the row has a top-k, or a top-p.
Expr DrawKernels::isActive(TileBuilder &b, In in, Expr row, bool ofSums) const {
  Expr active = ofSums ? b.loadScalar(in.getTopP(), {row, 0}) < kBase
                       : b.loadScalar(in.getTopK(), {row}) > 0;
  return active & isDrawn(b, in, row);
}

Expr DrawKernels::largest(TileBuilder &b, In in, Expr row) const {
  Expr best = b.loadScalar(in.getBest(), {row, 0});
  return convert(b.loadScalar(grid.viewRows(b, in.getLogits()), {row, best}),
                 b.f32()) +
         b.loadScalar(in.getBias(), {best});
}

/// Program: a tile of a row. Keys are logits in their order, the lowest of
/// tokens that are excluded.
void DrawKernels::buildWeights(TileBuilder &b, In in,
                               ArrayRef<Value> out) const {
  Expr part = b.programId(0), row = b.programId(1);
  b.ifThen(isDrawn(b, in, row), [&] {
    Value tokens = b.range(part * double(kTile), kTile, 1);
    Expr top = largest(b, in, row),
         inverse = b.loadScalar(in.getInverse(), {row});
    Values found =
        b.map({b.load(grid.viewRows(b, in.getLogits()), {row, tokens}),
               b.load(in.getBias(), {tokens}), tokens},
              {b.i32(), b.f32()}, [&](ArrayRef<Expr> x) {
                Expr logit = x[0] + x[1];
                Expr isOne = (logit > -INFINITY) & (x[2] < double(grid.width));
                logit = select(isOne, logit, top);
                return Values{
                    select(isOne, orderBits(bitcast(logit, b.i32())), kLowest),
                    select(isOne, weigh(logit, top, inverse), 0)};
              });
    for (auto [value, memory] : llvm::zip_equal(found, out))
      b.store(value, memory, {row, tokens});
  });
}

/// A row of tensors [rows, parts].
Values DrawKernels::load(TileBuilder &b, Expr row, ArrayRef<Value> totals,
                         int axis) const {
  Value own = b.range(0, llvm::alignTo(parts, 16), axis);
  return llvm::map_to_vector(
      totals, [&](Value total) { return b.load(total, {row, own}); });
}

/// The state of a search with the bits that its tiles tell.
Values DrawKernels::takeStep(TileBuilder &b, Expr row,
                             const Search &search) const {
  Value cols = b.range(0, kBins, 1);
  Values state, sums;
  for (size_t i = 0; i < kLimit + search.measures(); ++i)
    state.push_back(b.load(search.state, {row, makeTile(b, int64_t(i))}));
  for (Value bins : search.bins)
    sums.push_back(b.reduceAdd(
        b.load(bins, {row, b.range(0, llvm::alignTo(parts, 16), 0), cols}),
        /*axis=*/0));
  Values reached = mapAll(b, {sums, ArrayRef(state).drop_front(kLimit), {cols}},
                          1, [&](ArrayRef<Expr> x) {
                            Number all(x.take_front(sums.size()));
                            Expr isLower = isLess(
                                carry(all), x.slice(sums.size(), sums.size()));
                            return Values{select(isLower, 0, x.back())};
                          });
  Values next =
      mapAll(b, {{state[kThreshold], state[kShift], b.reduceMax(reached[0])}},
             2, [](ArrayRef<Expr> x) {
               return Values{x[0] + (x[2] << x[1]), x[1] - double(kStepBits)};
             });
  llvm::copy(next, state.begin());
  return state;
}

/// Program: a tile of a row. The first step of a search begins with the totals
/// of those that are left so far; it has no bits yet.
void DrawKernels::buildStep(TileBuilder &b, In in, const Search &from,
                            const Search &to, ArrayRef<Value> weights,
                            ArrayRef<Value> totals) const {
  Expr part = b.programId(0), row = b.programId(1);
  b.ifThen(isActive(b, in, row, to.ofSums), [&] {
    Values state = {makeTile(b, b.constant(kLowest)),
                    makeTile(b, 32 - kStepBits)};
    if (from.state) {
      state = takeStep(b, row, from);
    } else if (to.ofSums) {
      llvm::append_range(state,
                         takeFraction(b, findKept(b, in, row, {}, totals),
                                      loadNumber(b, in.getTopP(), {row})));
    } else {
      state.push_back(makeTile(b, b.loadScalar(in.getTopK(), {row})));
    }
    b.ifThen(part == 0, [&] {
      for (auto [i, value] : llvm::enumerate(state))
        b.store(value, to.state, {row, makeTile(b, int64_t(i))});
    });
    Value tokens = b.range(part * double(kTile), kTile, 0),
          cols = b.range(0, kBins, 1), keys = b.load(weights[0], {row, tokens}),
          bins = b.map({state[kThreshold], state[kShift], cols}, b.i32(),
                       [](ArrayRef<Expr> x) { return x[0] + (x[2] << x[1]); });
    Values measures = {makeTile(b, 1)};
    if (to.ofSums)
      measures = mapAll(b, {{b.load(weights[1], {row, tokens})}}, kDigits,
                        [](ArrayRef<Expr> x) {
                          return llvm::to_vector_of<Value>(digitsOf(x[0]));
                        });
    for (auto [measure, memory] : llvm::zip_equal(measures, to.bins)) {
      Value own = b.map({keys, bins, measure}, b.i32(), [](ArrayRef<Expr> x) {
        return select(x[0] >= x[1], x[2], 0);
      });
      b.store(b.reduceAdd(own, /*axis=*/0), memory, {row, part, cols});
    }
  });
}

Kept DrawKernels::findKept(TileBuilder &b, In in, Expr row, Value limit,
                           ArrayRef<Value> totals) const {
  Kept kept;
  for (Value total : load(b, row, totals.take_front(kOfThreshold), /*axis=*/1))
    kept.sums.push_back(b.reduceAdd(total));
  Value above = kept.sums.pop_back_val(),
        threshold = b.load(totals[kOfThreshold], {row, makeTile(b, 0)});
  Expr top = largest(b, in, row),
       inverse = b.loadScalar(in.getInverse(), {row}),
       topK = b.loadScalar(in.getTopK(), {row});
  kept.digits = mapAll(b, {{threshold}}, kDigits, [&](ArrayRef<Expr> x) {
    Expr logit = bitcast(orderBits(x[0]), b.f32());
    return llvm::to_vector_of<Value>(digitsOf(weigh(logit, top, inverse)));
  });
  kept.ties = mapAll(b, {{above}}, 1, [&](ArrayRef<Expr> x) {
    return Values{select(topK > 0, topK - x[0], 0)};
  });
  if (limit)
    kept.ties = b.ifThenElse(
        isActive(b, in, row, /*ofSums=*/true),
        [&] {
          Values digits;
          for (int64_t i = 0; i < kDigits; ++i)
            digits.push_back(b.load(limit, {row, makeTile(b, kLimit + i)}));
          return mapAll(
              b, {ArrayRef(kept.sums).take_front(kDigits), digits, kept.digits},
              1, [&](ArrayRef<Expr> x) {
                return Values{countUntil(x.take_front(kDigits),
                                         x.slice(kDigits, kDigits),
                                         x.take_back(kDigits))};
              });
        },
        [&] { return kept.ties; });
  return kept;
}

/// Program: a tile of a row. What is above the threshold that the last search
/// of the row has found.
void DrawKernels::buildTotals(TileBuilder &b, In in, ArrayRef<Search> searches,
                              ArrayRef<Value> weights,
                              ArrayRef<Value> out) const {
  Expr part = b.programId(0), row = b.programId(1);
  bool isFirst = searches.size() == 1;
  b.ifThen(isFirst ? isActive(b, in, row, true) : isDrawn(b, in, row), [&] {
    Values threshold = {makeTile(b, b.constant(kLowest))};
    for (const Search &search : searches)
      threshold = b.ifThenElse(
          isActive(b, in, row, search.ofSums),
          [&] { return Values{takeStep(b, row, search)[kThreshold]}; },
          [&] { return threshold; });
    Value tokens = b.range(part * double(kTile), kTile, 1);
    Values own = measure(b, b.load(weights[0], {row, tokens}),
                         b.load(weights[1], {row, tokens}), threshold[0]);
    for (auto [value, memory] : llvm::zip(own, out))
      b.store(b.reduceAdd(value), memory, {row, makeTile(b, part)});
    b.ifThen(part == 0, [&] {
      b.store(threshold[0], out[kOfThreshold], {row, makeTile(b, 0)});
    });
  });
}

/// The first of `count` with which more than the target is left, of totals in a
/// column; `before` is what is before the first one, then before that one.
Value DrawKernels::search(TileBuilder &b, int64_t count, ArrayRef<Value> totals,
                          Values &before, const Kept &kept,
                          ArrayRef<Value> target) const {
  Value rows = b.range(0, count, 0), cols = b.range(0, count, 1);
  Values sums;
  for (auto [total, sum] : llvm::zip_equal(totals, before))
    sums.push_back(add(b, sum,
                       b.reduceAdd(b.map({total, rows, cols}, b.i32(),
                                         [](ArrayRef<Expr> x) {
                                           return select(x[1] <= x[2], x[0], 0);
                                         }),
                                   /*axis=*/0)));
  Values more =
      mapAll(b, {sums, kept.ties, kept.digits, target, {cols}}, 1,
             [&](ArrayRef<Expr> x) {
               Expr isMore =
                   isLess(x.drop_back().take_back(kDigits), sumKept(x));
               return Values{select(isMore, x.back(), double(count - 1))};
             });
  Value found = b.reduce(ReduceKind::Min, more[0]);
  for (auto [total, sum] : llvm::zip_equal(totals, before))
    sum = add(b, sum,
              b.reduceAdd(b.map({total, rows, found}, b.i32(),
                                [](ArrayRef<Expr> x) {
                                  return select(x[1] < x[2], x[0], 0);
                                }),
                          /*axis=*/0));
  return found;
}

/// Program: a row. The tile, its line of tokens, and the token in that.
void DrawKernels::buildChoice(TileBuilder &b, In in, Value limit,
                              ArrayRef<Value> weights, ArrayRef<Value> totals,
                              Value out) const {
  Expr row = b.programId(1);
  Value chosen = grid.viewPerRow(b, out), own = b.range(row, 1, 0);
  Expr drawn = isDrawn(b, in, row);
  b.ifThen(!drawn,
           [&] { b.store(b.load(in.getBest(), {own, 0}), chosen, {own}); });
  b.ifThen(drawn, [&] {
    constexpr int64_t lines = kTile / kCols;
    Kept kept = findKept(b, in, row, limit, totals);
    int64_t rows = cast<MemRefType>(in.getUniforms().getType()).getShape()[1];
    Expr slot = (b.loadScalar(in.getPositions(), {row}) + 1) % double(rows);
    Values target = takeFraction(b, kept,
                                 loadNumber(b, in.getUniforms(), {row, slot})),
           before(kAbove, makeTile(b, 0));
    Value part = search(b, llvm::alignTo(parts, 16),
                        load(b, row, totals.take_front(kAbove), /*axis=*/0),
                        before, kept, target),
          threshold = b.load(totals[kOfThreshold], {row, makeTile(b, 0)});
    auto number = [&](Value first, Value second, double scale) {
      return b.map({first, second}, b.i32(),
                   [&](ArrayRef<Expr> x) { return x[0] * scale + x[1]; });
    };
    auto measureAt = [&](Value tokens) {
      Values all = measure(b, b.load(weights[0], {row, tokens}),
                           b.load(weights[1], {row, tokens}), threshold);
      all.truncate(kAbove);
      return all;
    };
    Value zero = makeTile(b, 0), first = number(part, zero, lines);
    Values perLine = measureAt(number(number(first, b.range(0, lines, 0), 1),
                                      b.range(0, kCols, 1), double(kCols)));
    for (Value &total : perLine)
      total = b.reduceAdd(total);
    Value line =
        number(first, search(b, lines, perLine, before, kept, target), 1);
    Values perToken =
        measureAt(number(line, b.range(0, kCols, 0), double(kCols)));
    Value col = search(b, kCols, perToken, before, kept, target);
    b.store(number(line, col, double(kCols)), chosen, {own});
  });
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

namespace {
struct DrawLaunches {
  DrawLaunches(nn::DrawOp op, KernelCache &cache, PatternRewriter &rewriter)
      : op(op), cache(cache), rewriter(rewriter), kernels(op) {}

  void weigh();
  Search search(bool ofSums, ArrayRef<Value> totals);
  Values sum(ArrayRef<Search> searches);
  Value choose(Value limit, ArrayRef<Value> totals);

private:
  Type getType(ArrayRef<Extent> shape) {
    return cache.getTensorType(shape, cache.getI32Type());
  }
  /// Launches a kernel of the operands of the operation, the weights and
  /// `more`. `build` gets the adaptor and the others.
  template <typename BuildT>
  Values launch(StringRef name, int64_t programs, ArrayRef<Value> more,
                TypeRange types, BuildT build);

  nn::DrawOp op;
  KernelCache &cache;
  PatternRewriter &rewriter;
  DrawKernels kernels;
  Values weights;
};
} // namespace

template <typename BuildT>
Values DrawLaunches::launch(StringRef name, int64_t programs,
                            ArrayRef<Value> more, TypeRange types,
                            BuildT build) {
  Values inputs(op->getOperands());
  size_t count = inputs.size(), first = count + weights.size();
  llvm::append_range(inputs, weights);
  llvm::append_range(inputs, more);
  KernelSpec spec{
      name.str(), kernels.grid.name(), {programs, kernels.grid.rows, 1}};
  return Values(cache.launch(rewriter, op, spec, inputs, types,
                             [&](TileBuilder &b, ArrayRef<Value> args) {
                               build(b, In(args.take_front(count), op),
                                     args.slice(count, weights.size()),
                                     args.slice(first, more.size()),
                                     args.take_back(types.size()));
                             }));
}

void DrawLaunches::weigh() {
  Type keys = getType({kernels.grid.rows, kernels.parts * kTile});
  weights =
      launch("weights", kernels.parts, {},
             {keys, cast<RankedTensorType>(keys).clone(cache.getF32Type())},
             [&](auto &b, In in, auto, auto, ArrayRef<Value> out) {
               kernels.buildWeights(b, in, out);
             });
}

static Search bind(bool ofSums, ArrayRef<Value> args) {
  Search search{ofSums, args.front()};
  search.bins = Values(args.slice(1, search.measures()));
  return search;
}

/// The state of a search, and what it has seen.
static Values valuesOf(const Search &search) {
  Values values = search.bins;
  values.insert(values.begin(), search.state);
  return values;
}

Search DrawLaunches::search(bool ofSums, ArrayRef<Value> totals) {
  Search search{ofSums};
  auto measures = int64_t(search.measures());
  SmallVector<Type> types(1 + measures,
                          getType({kernels.grid.rows, kernels.parts, kBins}));
  types[0] = getType({kernels.grid.rows, kLimit + measures});
  StringRef name = ofSums ? "top_p" : "top_k";
  search =
      bind(ofSums, launch((name + "_first").str(), kernels.parts, totals, types,
                          [&](auto &b, In in, ArrayRef<Value> weights,
                              ArrayRef<Value> more, ArrayRef<Value> out) {
                            kernels.buildStep(b, in, {ofSums},
                                              bind(ofSums, out), weights, more);
                          }));
  for (int64_t step = 1; step < kSteps; ++step)
    search =
        bind(ofSums, launch(name, kernels.parts, valuesOf(search), types,
                            [&](auto &b, In in, ArrayRef<Value> weights,
                                ArrayRef<Value> more, ArrayRef<Value> out) {
                              kernels.buildStep(b, in, bind(ofSums, more),
                                                bind(ofSums, out), weights, {});
                            }));
  return search;
}

Values DrawLaunches::sum(ArrayRef<Search> searches) {
  Values more;
  for (const Search &search : searches)
    llvm::append_range(more, valuesOf(search));
  SmallVector<Type> types(kTotals, getType({kernels.grid.rows, kernels.parts}));
  types[kOfThreshold] = getType({kernels.grid.rows, 1});
  return launch(searches.size() == 1 ? "top_k_sums" : "sums", kernels.parts,
                more, types,
                [&](auto &b, In in, ArrayRef<Value> weights,
                    ArrayRef<Value> rest, ArrayRef<Value> out) {
                  SmallVector<Search> own;
                  for (const Search &search : searches) {
                    own.push_back(bind(search.ofSums, rest));
                    rest = rest.drop_front(1 + search.measures());
                  }
                  kernels.buildTotals(b, in, own, weights, out);
                });
}

Value DrawLaunches::choose(Value limit, ArrayRef<Value> totals) {
  Values more(totals);
  more.push_back(limit);
  return launch("choice", 1, more, op->getResultTypes(),
                [&](auto &b, In in, ArrayRef<Value> weights,
                    ArrayRef<Value> more, ArrayRef<Value> out) {
                  kernels.buildChoice(b, in, more.back(), weights,
                                      more.drop_back(), out[0]);
                })[0];
}

static LogicalResult convertDraw(nn::DrawOp op, KernelCache &cache,
                                 PatternRewriter &rewriter) {
  DrawLaunches launches(op, cache, rewriter);
  launches.weigh();
  Search topK = launches.search(/*ofSums=*/false, {});
  Search topP = launches.search(/*ofSums=*/true, launches.sum(topK));
  rewriter.replaceOp(op,
                     launches.choose(topP.state, launches.sum({topK, topP})));
  return success();
}

void nsa::populateDrawPatterns(KernelPatterns &patterns) {
  patterns.add(convertDraw);
}
