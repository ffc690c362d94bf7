//===- AttentionKernels.cpp - what attention kernels share ----------------===//

#include "passes/Kernels/NSA/AttentionKernels.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "passes/Kernels/KernelOperands.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

void AttentionShape::setPlace(Value at, Value start, Value k,
                              VisibilityAttrInterface visibility) {
  if (!at)
    return;
  isPlaced = true;
  keyBatch = getExtent(k, 0);
  // Blocks may leave tokens over, fewer than would make another one.
  tokens = start ? getExtent(start, 1)
                 : keys * visibility.getKeyStride() +
                       visibility.getFirstQuery(0).getNumber();
  tokens = atLeast(tokens, 1);
}

std::string AttentionShape::rowsName() const {
  std::string name = "b" + formatExtent(batch) + "s" + formatExtent(sequence);
  if (isPlaced)
    name += "of" + formatExtent(keyBatch) + "x" + formatExtent(keys);
  return name;
}

std::string AttentionShape::name() const {
  std::string name = rowsName() + "h" + std::to_string(queryHeads) + "x" +
                     std::to_string(keyHeads) + "d" + std::to_string(keyWidth);
  if (valueWidth != keyWidth)
    name += "x" + std::to_string(valueWidth);
  return name;
}

int64_t nsa::getTileSize(const Extent &extent, int64_t limit,
                         int64_t multiple) {
  return std::clamp<int64_t>(llvm::alignTo(int64_t(extent), multiple), multiple,
                             limit);
}

Expr nsa::getQueryTileOf(Expr number, const Extent &count, bool isParallel) {
  return isParallel ? (count - 1) - number : number;
}

//===----------------------------------------------------------------------===//
// Visibility
//===----------------------------------------------------------------------===//

static Scalar asScalar(Expr expr) { return {expr.getBuilder(), expr}; }

/// A number becomes a constant of the type of `like`.
static Expr asExpr(Scalar scalar, Expr like) {
  if (scalar.isNumber())
    return like.constant(static_cast<double>(scalar.getNumber()));
  return {scalar.getBuilder(), scalar.getValue()};
}

Expr Visibility::isVisible(Expr query, Expr key) const {
  return asExpr(attribute.isVisible(asScalar(query), asScalar(key)), query);
}

Expr Visibility::firstKey(Expr query) const {
  return asExpr(attribute.getFirstKey(asScalar(query)), query);
}

Expr Visibility::endKey(Expr query) const {
  return asExpr(attribute.getEndKey(asScalar(query)), query);
}

Expr Visibility::firstQuery(Expr key) const {
  return asExpr(attribute.getFirstQuery(asScalar(key)), key);
}

Expr Visibility::endQuery(Expr key) const {
  Scalar end = sequence.isConstant() ? Scalar(int64_t(sequence))
                                     : asScalar(toExpr(sequence, key));
  return asExpr(attribute.getEndQuery(asScalar(key), end), key);
}

Expr Visibility::keyBase(Expr start) const {
  int64_t stride = attribute.getKeyStride();
  return stride == 1 ? start : start / static_cast<double>(stride);
}

//===----------------------------------------------------------------------===//
// Queries inside of sequences
//===----------------------------------------------------------------------===//

QueryPlace QueryPlace::load(TileBuilder &b, const Extent &keyBatch,
                            const Extent &tokens, Value at, Expr batch) {
  if (!at)
    return {batch};
  // Whatever the numbers are, what is read is in bounds.
  auto loadNumber = [&](int64_t column, const Extent &most) {
    return max(min(b.loadScalar(at, {batch, column}), most), 0);
  };
  return {loadNumber(0, keyBatch - 1), loadNumber(1, tokens)};
}

Value QueryPlace::of(TileBuilder &b, Value query) const {
  if (!first)
    return query;
  return b.map({query}, b.i32(), [&](ArrayRef<Expr> x) { return of(x[0]); });
}

//===----------------------------------------------------------------------===//
// Packed sequences
//===----------------------------------------------------------------------===//

PackedRows::PackedRows(TileBuilder &b, const Visibility &visibility,
                       Value start, tile::Operand batch, Value query) {
  begin = b.load(start, {batch, query});
  auto rows = b.map({query, begin}, {b.i32(), b.i32()},
                    [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                      return {x[0] - x[1], visibility.keyBase(x[1])};
                    });
  row = rows[0];
  base = rows[1];
}

/// Starts are sorted: a binary search. Program: (tile of tokens, batch).
static void buildSequenceEnds(TileBuilder &b, int64_t tile,
                              const Extent &tokens, Value start, Value ends) {
  auto steps = static_cast<int64_t>(llvm::Log2_64_Ceil(int64_t(tokens) + 1));
  Expr batch = b.programId(1);
  Value token = b.range(b.programId(0) * tile, tile, 0);
  Value outside = b.splat(b.constant(int64_t(tokens)), tile, 1);
  auto halve = [&](Expr, ArrayRef<Value> carried) -> SmallVector<Value> {
    Value middle = b.map(carried, b.i32(),
                         [](ArrayRef<Expr> x) { return (x[0] + x[1]) / 2; });
    Value begin = b.load(start, {batch, middle});
    return b.map(
        {begin, token, middle, carried[0], carried[1]}, {b.i32(), b.i32()},
        [](ArrayRef<Expr> x) -> SmallVector<Value> {
          Expr isInside = x[0] <= x[1];
          return {select(isInside, x[2], x[3]), select(isInside, x[4], x[2])};
        });
  };
  Value end = b.forLoop(0, steps, 1, {token, outside}, halve)[1];
  b.store(end, ends, {batch, token});
}

Value nsa::launchSequenceEnds(KernelCache &cache, OpBuilder &builder,
                              Operation *op, Value start) {
  Extent batch = getExtent(start, 0), tokens = getExtent(start, 1);
  int64_t tile = getTileSize(tokens, /*limit=*/128);
  KernelSpec spec;
  spec.ownName = "sequence_ends";
  spec.shape = "b" + formatExtent(batch) + "s" + formatExtent(tokens);
  spec.grid = {ceilDiv(tokens, tile), batch, 1};
  return cache.launchOnce(builder, op, spec, start, start.getType(),
                          [&](TileBuilder &b, ArrayRef<Value> args) {
                            auto [starts, ends] = named<2>(args);
                            buildSequenceEnds(b, tile, tokens, starts, ends);
                          })[0];
}

void nsa::limitToBlocks(TileBuilder &b, KeyTile &tile, int64_t selectBlock,
                        Expr first, Value own, Value before, Value begin,
                        Value query) {
  int64_t keys = cast<TileType>(tile.keys.getType()).getRows();
  Expr number = first / selectBlock;
  auto bounds = b.map({own, before, begin, query}, {b.i32(), b.i32(), b.i32()},
                      [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                        Expr border = number * selectBlock + x[2] % selectBlock;
                        Expr hasOwn = (x[0] != 0) & (border < first + keys);
                        Expr hasBefore = (x[1] != 0) & (border > first);
                        Expr isSelected = hasOwn | hasBefore;
                        Expr from = max(select(hasBefore, first, border), x[2]);
                        Expr to = select(hasOwn, x[3], min(border - 1, x[3]));
                        if (selectBlock % keys != 0)
                          to = min(to, (number + 1) * selectBlock - 1);
                        // A whole tile where all of it is left out, so that
                        // single keys need no check.
                        from = select(isSelected, from, first);
                        return {from, select(isSelected, to, x[3]) - from,
                                convert(isSelected, b.i32())};
                      });
  tile.base = bounds[0];
  tile.row = bounds[1];
  tile.selected = bounds[2];
  tile.isVisible = [](Expr last, Expr key) { return key <= last; };
}

SmallVector<Value> KeyTile::coordinates() const {
  SmallVector<Value> values = {row, key};
  if (base)
    values.push_back(base);
  if (end)
    values.append({begin, end});
  return values;
}

Expr KeyTile::sees(ArrayRef<Expr> x) const {
  if (base)
    return (x[1] >= x[2]) & isVisible(x[0], x[1] - x[2]);
  if (end)
    return (x[0] < x[3]) & isVisible(x[0] - x[2], x[1]);
  return isVisible(x[0], x[1]);
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

Expr Exponent::ordered(Expr product) const {
  return scale > 0 ? product : product * scale;
}

/// tanh(x), but for 1e-7: a score times that is less than what it is rounded
/// by.
static Expr boundedTanh(Expr x) {
  return 1 - 2 / (1 + exp2(x * (2 * llvm::numbers::log2e)));
}

Expr Exponent::bounded(Expr ordered) const {
  if (!isCapped())
    return ordered;
  // -inf of masked scores stays.
  return select(ordered == -INFINITY, ordered,
                boundedTanh(ordered * ((scale > 0 ? scale : 1.0) / softcap)));
}

double Exponent::factorOfBounded() const {
  double factor = isCapped() ? softcap : scale > 0 ? scale : 1.0;
  return factor * (isOfTwo ? llvm::numbers::log2e : 1.0);
}

Expr Exponent::ofOrdered(Expr product) const {
  return bounded(product) * factorOfBounded();
}

Expr Exponent::slope(Expr product) const {
  Expr t = boundedTanh(product * (scale / softcap));
  return 1 - t * t;
}

Expr Exponent::power(Expr difference) const {
  return isOfTwo ? exp2(difference) : exp(difference);
}

Expr Exponent::roundedOnce(Expr ordered, Expr shift) const {
  return fma(bounded(ordered), ordered.constant(factorOfBounded()), -shift);
}

Expr Exponent::probability(Expr product, Expr shift) const {
  return power(isOfTwo ? roundedOnce(ordered(product), shift)
                       : of(product) - shift);
}

Expr Exponent::probabilityOfOrdered(Expr ordered, Expr shift) const {
  Expr roundedTwice = ofOrdered(ordered) - shift;
  if (!isOfTwo || !takesShortcuts)
    return power(roundedTwice);
  // Up to here the power of the maximum is 1 but for 2^-15, an eighth of what
  // f16 rounds away.
  constexpr double most = 1024;
  Expr either =
      select(abs(shift) < most, roundedOnce(ordered, shift), roundedTwice);
  Value(either).getDefiningOp()->setAttr(kShortcutAttr,
                                         either.getBuilder().getUnitAttr());
  return power(either);
}

Value Exponent::fromLse(TileBuilder &b, Value lse) const {
  return b.map({lse}, b.f32(), [&](ArrayRef<Expr> x) {
    Expr own = isOfTwo ? x[0] * llvm::numbers::log2e : x[0];
    return select(x[0] == -INFINITY, 0, own);
  });
}

Value Exponent::withFactor(TileBuilder &b, Value shift, Value factors) const {
  return b.map({shift, factors}, b.f32(), [&](ArrayRef<Expr> x) {
    Expr own = log(x[1]) * (isOfTwo ? llvm::numbers::log2e : 1.0);
    return select(x[1] > 0, x[0] - own, INFINITY);
  });
}

Expr Exponent::toLse(Expr exponent, Expr sum) const {
  return (isOfTwo ? exponent * llvm::numbers::ln2 : exponent) + log(sum);
}

OnlineSoftmax OnlineSoftmax::init(TileBuilder &b, int64_t rows, int64_t width) {
  return {b.full(-INFINITY, rows, 1), b.zeros(rows, 1), b.zeros(rows, width)};
}

/// Replaces -inf, the maximum of a fully masked row, by 0, so that differences
/// are defined.
static Value finiteOrZero(TileBuilder &b, Value max) {
  return b.map({max}, b.f32(), [](ArrayRef<Expr> x) {
    return select(x[0] == -INFINITY, 0, x[0]);
  });
}

Value nsa::rowDot(TileBuilder &b, Value lhs, Value rhs) {
  return b.reduceAdd(
      b.map({lhs, rhs}, b.f32(), [](ArrayRef<Expr> x) { return x[0] * x[1]; }));
}

Value nsa::scaled(TileBuilder &b, Value tile, double factor) {
  return b.map({tile}, b.f32(),
               [&](ArrayRef<Expr> x) { return x[0] * factor; });
}

Expr nsa::maskedProbability(Expr visible, Expr product,
                            const Exponent &exponent, Expr shift) {
  return select(visible, exponent.probability(product, shift), 0);
}

/// Exponents relative to infinity make probabilities of 0: those of rows where
/// `selected` is 0, if it is not null. One number for each row instead of a
/// choice for each element.
static Value maskShift(TileBuilder &b, Value shift, Value selected) {
  if (!selected)
    return shift;
  return b.map({shift, selected}, b.f32(), [](ArrayRef<Expr> x) {
    return select(x[1] != 0, x[0], INFINITY);
  });
}

OnlineSoftmax OnlineSoftmax::update(TileBuilder &b, Value products,
                                    const Exponent &exponent, Value values,
                                    Value selected) const {
  // The maximum is kept as an exponent, so that nothing changes where it stays.
  // It follows the scores in steps: those above it by less than one make no
  // number too large, and nothing has to be rescaled for them.
  constexpr double step = 8;
  SmallVector<Value> maxima = {max, b.reduceMax(products)};
  if (selected)
    maxima.push_back(selected);
  Value newMax = b.map(maxima, b.f32(), [&](ArrayRef<Expr> x) -> Value {
    Expr most = exponent.ofOrdered(x[1]);
    Expr isMore = most > x[0] + step;
    return select(selected ? isMore & (x[2] != 0) : isMore, most, x[0]);
  });
  Value shift = finiteOrZero(b, newMax);
  Value rescale = b.map({max, shift}, b.f32(), [&](ArrayRef<Expr> x) {
    return select(x[0] == -INFINITY, 0, exponent.power(x[0] - x[1]));
  });
  Value masked = maskShift(b, shift, selected);
  Value p = b.map({products, masked}, b.f32(), [&](ArrayRef<Expr> x) {
    return select(x[0] == -INFINITY, 0,
                  exponent.probabilityOfOrdered(x[0], x[1]));
  });
  Value newSum = b.map({sum, rescale, b.reduceAdd(p)}, b.f32(),
                       [](ArrayRef<Expr> x) { return x[0] * x[1] + x[2]; });
  Value rescaled = b.map({acc, rescale}, b.f32(),
                         [](ArrayRef<Expr> x) { return x[0] * x[1]; });
  return {newMax, newSum, b.dot(p, values, rescaled)};
}

Value OnlineSoftmax::output(TileBuilder &b) const {
  Value inverse = b.map({sum}, b.f32(), [](ArrayRef<Expr> x) {
    return select(x[0] > 0, 1 / x[0], 0);
  });
  return b.map({acc, inverse}, b.f32(),
               [](ArrayRef<Expr> x) { return x[0] * x[1]; });
}

Value OnlineSoftmax::lse(TileBuilder &b, const Exponent &exponent) const {
  return b.map({max, sum}, b.f32(), [&](ArrayRef<Expr> x) {
    return select(x[1] > 0, exponent.toLse(x[0], x[1]), -INFINITY);
  });
}

/// Takes the keys of a tile into the softmax of `queries`.
static OnlineSoftmax attend(TileBuilder &b, Value queries, const KeyTile &tile,
                            const Exponent &exponent,
                            const OnlineSoftmax &softmax) {
  int64_t rows = cast<TileType>(queries.getType()).getRows();
  int64_t keys = cast<TileType>(tile.keys.getType()).getRows();
  Value products = b.dot(queries, tile.keyColumns ? tile.keyColumns : tile.keys,
                         b.zeros(rows, keys), /*transposeB=*/!tile.keyColumns);
  SmallVector<Value> inputs = {products};
  llvm::append_range(inputs, tile.coordinates());
  Value visible = b.map(inputs, b.f32(), [&](ArrayRef<Expr> x) {
    return select(tile.sees(x.drop_front()), exponent.ordered(x[0]), -INFINITY);
  });
  return softmax.update(b, visible, exponent, tile.values, tile.selected);
}

OnlineSoftmax nsa::attendToKeys(TileBuilder &b, const AttentionShape &shape,
                                Value queries, KeyWalk walk) {
  int64_t rows = cast<TileType>(queries.getType()).getRows();
  auto init = OnlineSoftmax::init(b, rows, shape.ownWidth(shape.valueWidth));
  return OnlineSoftmax::fromCarried(
      walk(init.carried(), [&](const KeyTile &tile, ArrayRef<Value> carried) {
        return attend(b, queries, tile, shape.exponent(),
                      OnlineSoftmax::fromCarried(carried))
            .carried();
      }));
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// The probabilities of the products.
static Value getProbabilities(TileBuilder &b, Value products,
                              const KeyTile &tile, const RowTerms &terms,
                              const Exponent &exponent) {
  SmallVector<Value> inputs = {products,
                               maskShift(b, terms.shift, tile.selected)};
  llvm::append_range(inputs, tile.coordinates());
  if (tile.isNext)
    inputs.append(
        {maskShift(b, terms.shift, tile.selectedBefore), tile.isNext});
  return b.map(inputs, b.f32(), [&](ArrayRef<Expr> x) {
    Expr shift = x[1];
    if (tile.isNext)
      shift = select(x.back() != 0, x[1], x.drop_back().back());
    return maskedProbability(tile.sees(x.drop_front(2)), x[0], exponent, shift);
  });
}

/// dS, the gradients of the scores without the scale, and with `weighted` the
/// gated probabilities. A separate map, since it depends on dP and the
/// probabilities do not.
static SmallVector<Value> getScoreGrads(TileBuilder &b, Value products, Value p,
                                        Value dP, const RowTerms &terms,
                                        const Exponent &exponent,
                                        bool weighted) {
  SmallVector<Value> inputs = {p, dP, terms.delta};
  if (terms.gate)
    inputs.push_back(terms.gate);
  if (exponent.isCapped())
    inputs.push_back(products);
  SmallVector<Type> types(weighted ? 2 : 1, b.f32());
  return b.map(inputs, types, [&](ArrayRef<Expr> x) -> SmallVector<Value> {
    Expr dP = terms.gate ? x[1] * x[3] : x[1];
    Expr dS = x[0] * (dP - x[2]);
    if (exponent.isCapped())
      dS = dS * exponent.slope(x.back());
    if (!weighted)
      return {dS};
    return {dS, x[0] * x[3]};
  });
}

Value nsa::addQueryGrad(TileBuilder &b, Value queries, Value outputGrads,
                        const KeyTile &tile, const RowTerms &terms,
                        const Exponent &exponent, Value sum) {
  int64_t rows = cast<TileType>(queries.getType()).getRows();
  int64_t keys = cast<TileType>(tile.keys.getType()).getRows();
  Value zeros = b.zeros(rows, keys);
  Value products = b.dot(queries, tile.keys, zeros, /*transposeB=*/true);
  Value dP = b.dot(outputGrads, tile.values, zeros, /*transposeB=*/true);
  Value p = getProbabilities(b, products, tile, terms, exponent);
  Value dS = getScoreGrads(b, products, p, dP, terms, exponent,
                           /*weighted=*/false)[0];
  return b.dot(dS, tile.ownKeys ? tile.ownKeys : tile.keys, sum);
}

SmallVector<Value> nsa::addKeyValueGrad(TileBuilder &b, Value queries,
                                        Value outputGrads, const KeyTile &tile,
                                        const RowTerms &terms,
                                        const Exponent &exponent,
                                        ArrayRef<Value> sums, Value ownQueries,
                                        Value ownOutputGrads) {
  if (!ownQueries) {
    ownQueries = queries;
    ownOutputGrads = outputGrads;
  }
  int64_t rows = cast<TileType>(queries.getType()).getRows();
  int64_t keys = cast<TileType>(tile.keys.getType()).getRows();
  Value zeros = b.zeros(keys, rows);
  Value products = b.dot(tile.keys, queries, zeros, /*transposeB=*/true);
  Value dP = b.dot(tile.values, outputGrads, zeros, /*transposeB=*/true);
  Value p = getProbabilities(b, products, tile, terms, exponent);
  if (terms.gate) {
    auto both = getScoreGrads(b, products, p, dP, terms, exponent,
                              /*weighted=*/true);
    return {b.dot(both[0], ownQueries, sums[0]),
            b.dot(both[1], ownOutputGrads, sums[1])};
  }
  // The gradient of the values does not depend on dP either.
  Value valueGrad = b.dot(p, ownOutputGrads, sums[1]);
  Value dS = getScoreGrads(b, products, p, dP, terms, exponent,
                           /*weighted=*/false)[0];
  return {b.dot(dS, ownQueries, sums[0]), valueGrad};
}
