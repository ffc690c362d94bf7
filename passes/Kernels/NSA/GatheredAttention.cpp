//===- GatheredAttention.cpp - queries gathered for each block ------------===//

#include "passes/Kernels/NSA/GatheredAttention.h"
#include "dialects/NN/NNOps.h"
#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/SelectionLists.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

/// Parts are bound by the rate of memory. Those of outputs of 16 bits are
/// rounded to them, as the probabilities are that they are made of.
static bool hasNarrowParts(const AttentionShape &shape) {
  return shape.elementBits == 16;
}

/// Of a turn.
static constexpr int64_t mostPartBytes = int64_t(1) << 30;

/// Of parts of the gradient of queries: f16 may not hold them without it.
static double getPartScale(const AttentionShape &shape) {
  return hasNarrowParts(shape) && shape.scale != 0 ? shape.scale : 1;
}

/// Of the parts of one head.
static int64_t getPartBytes(const SelectedAttention &selected) {
  const AttentionShape &shape = selected.shape;
  int64_t width = std::max(shape.keyWidth, shape.valueWidth);
  int64_t rows = saturatingProduct(int64_t(shape.batch),
                                   int64_t(shape.sequence) * selected.count);
  return saturatingProduct(rows, width * (hasNarrowParts(shape) ? 2 : 4));
}

GatheredAttention::GatheredAttention(const SelectedAttention &selected,
                                     int64_t fixedHeads)
    : selected(selected) {
  constexpr int64_t fewBytes = int64_t(512) << 20;
  int64_t group = selected.shape.group(), all = selected.shape.keyHeads;
  int64_t bytes = getPartBytes(selected), most = fewBytes / bytes;
  if (fixedHeads != 0)
    most = fixedHeads;
  else if (saturatingProduct(bytes, group) <= mostPartBytes)
    most = std::max(most, group);
  turns = llvm::divideCeil(all, std::max<int64_t>(most / group, 1));
  keyHeads = llvm::divideCeil(all, turns);
  groupHeads = std::clamp<int64_t>(most, 1, group);
  while (group % groupHeads != 0)
    --groupHeads;
  turns *= group / groupHeads;
}

void GatheredAttention::gather(const KernelCut &cut) {
  int64_t queries = cut.sizes.getGatheredQueries();
  selected.gatherTile = queries != 0 ? queries : getMostQueries(groupHeads);
  selected.gatherRows =
      llvm::alignTo(selected.gatherTile * groupHeads, cut.getRowMultiple());
}

int64_t GatheredAttention::getMostQueries(int64_t groupHeads) {
  constexpr int64_t rows = 64;
  return std::max<int64_t>(rows / groupHeads, 1);
}

int64_t GatheredAttention::getMostQueries(const SelectedAttention &selected) {
  return getMostQueries(
      GatheredAttention(selected, /*fixedHeads=*/0).groupHeads);
}

bool GatheredAttention::fits(const SelectedAttention &selected) {
  const AttentionShape &shape = selected.shape;
  return selected.isParallel && !selected.isPacked && !shape.isPlaced &&
         shape.batch.isConstant() && shape.sequence.isConstant() &&
         getPartBytes(selected) <= mostPartBytes;
}

/// The largest group whose lists are slower. Measured on one H200 with bf16 and
/// 16 selected blocks of 64: attention of a layer with its gradients in
/// milliseconds, lists / gathered. Layers of groups from 4 on were trained for
/// 300 steps on text, so that neighbouring queries agree, which lists gain by.
///
///   heads      group  1 x 32,768   2 x 8,192
///   32/32/128  1      76.5 / 28.2  19.4 / 9.5
///   16/8/128   2      25.5 / 12.5  8.2 / 4.5
///   9/3/64     3      7.0 / 5.3    2.6 / 1.9
///   32/8/64    4      15.8 / 15.3  5.1 / 5.4
///   32/8/128   4      28.1 / 22.8  9.2 / 8.3
///   40/8/128   5      36.8 / 32.2  12.9 / 12.2
///   12/2/128   6      11.0 / 11.3
///   4/1/256    4      13.7 / 9.0   5.6 / 3.5
///   8/1/256    8      26.8 / 17.7  10.4 / 6.7
static int64_t getMostGroup(const AttentionShape &shape) {
  int64_t width = (shape.keyWidth + shape.valueWidth) / 2;
  return width < 128 ? 3 : width < 256 ? 5 : 8;
}

bool GatheredAttention::isFaster(const SelectedAttention &selected) {
  const AttentionShape &shape = selected.shape;
  return shape.elementBits == 16 && shape.group() <= getMostGroup(shape) &&
         int64_t(shape.sequence) > 4 * selected.count * selected.selectBlock;
}

RankedTensorType GatheredAttention::getPartType(KernelCache &cache, Type type,
                                                int64_t width) const {
  const AttentionShape &shape = selected.shape;
  Type element =
      hasNarrowParts(shape) ? getElementTypeOrSelf(type) : cache.getF32Type();
  return cache.getTensorType(
      {shape.batch, heads(), selected.count, shape.sequence, width}, element);
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

Expr GatheredAttention::getFirstKeyHead(TileBuilder &b, Value step) const {
  if (!step)
    return b.constant(0);
  Expr turn = b.loadScalar(step, {0});
  if (splitsGroups())
    return turn / (selected.shape.group() / groupHeads);
  return turn * double(keyHeads);
}

Expr GatheredAttention::getFirstOfGroup(TileBuilder &b, Value step) const {
  return b.loadScalar(step, {0}) % (selected.shape.group() / groupHeads) *
         double(groupHeads);
}

Expr GatheredAttention::getFirstHead(TileBuilder &b, Value step) const {
  if (splitsGroups())
    return b.loadScalar(step, {0}) * double(groupHeads);
  return getFirstKeyHead(b, step) * double(selected.shape.group());
}

struct GatheredAttention::Rows {
  Value load(TileBuilder &b, Value ref, Value columns) const {
    return b.load(ref, {batch, query, head, columns});
  }
  void storePart(TileBuilder &b, Value part, Value ref, Value columns) const {
    b.store(part, ref, {batch, localHead, slot, query, columns});
  }

  Expr batch;
  /// The query and query head of each row, that head among those of the turn,
  /// and the place of the block in the query's list: i32 [rows, 1].
  Value query, head, localHead, slot;
  /// Runs a body for each tile of keys.
  KeyWalk forEachKeyTile;
};

void GatheredAttention::forEachTile(
    TileBuilder &b, const Index &index, Value k, Value v, bool isGradient,
    llvm::function_ref<void(const Rows &)> body) const {
  const AttentionShape &shape = selected.shape;
  int64_t keys = selected.ownKeyTile, perBlock = selected.tilesPerBlock();
  int64_t rows = selected.gatherRows;
  Expr localHead = b.programId(1), batch = b.programId(2);
  Expr keyHead = localHead + getFirstKeyHead(b, index.step);
  int64_t group = shape.group();
  Expr firstOfGroup =
      splitsGroups() ? getFirstOfGroup(b, index.step) : b.constant(0);
  auto load = [&](Value from) {
    return b.loadScalar(from, {batch, keyHead, b.programId(0)});
  };
  Expr block = load(index.blocks), begin = load(index.entries);
  Expr endOfList =
      b.loadScalar(index.offsets, {batch, keyHead, selected.gradParts, block});
  Expr end = min(begin + pieceEntries(), endOfList);

  QueryRange range{batch, keyHead, begin, 0, Value()};
  range.isGradient = isGradient;
  auto loadKeys = [&](Expr first) {
    KeyTile tile = range.loadKeys(b, shape, b.range(first, keys, 0), k, v);
    tile.key = b.range(first, keys, 1);
    tile.isVisible = [](Expr t, Expr u) { return u <= t; };
    return tile;
  };
  Expr firstKey = block * selected.selectBlock;
  std::optional<KeyTile> whole;
  if (perBlock == 1)
    whole = loadKeys(firstKey);
  auto gather = [&](Expr entry, ArrayRef<Value>) -> SmallVector<Value> {
    Rows own;
    own.batch = batch;
    // Rows past the end get a query outside of the sequence: they read as 0
    // and are not stored.
    auto numbers = b.map(
        {b.range(0, rows, 0)}, {b.i32(), b.i32(), b.i32()},
        [&](ArrayRef<Expr> x) -> SmallVector<Value> {
          Expr head = x[0] % groupHeads, number = x[0] / groupHeads;
          Expr isOwn = (number < selected.gatherTile) & (entry + number < end);
          Expr ownHead = splitsGroups() ? firstOfGroup + head : head;
          return {select(isOwn, entry + number, -1),
                  localHead * groupHeads + head, keyHead * group + ownHead};
        });
    own.localHead = numbers[1];
    own.head = numbers[2];
    Value listed = b.load(index.list, {batch, keyHead, numbers[0]});
    own.query = b.map({numbers[0], listed}, b.i32(), [&](ArrayRef<Expr> x) {
      return select(x[0] >= 0, x[1], shape.sequence);
    });
    Value slots = b.range(0, selected.count, 1);
    Value entries = b.load(index.indices, {batch, keyHead, own.query, slots});
    own.slot =
        b.reduceAdd(b.map({entries, slots}, b.i32(), [&](ArrayRef<Expr> x) {
          return select(x[0] == block, x[1], 0);
        }));
    Value lastKey = own.query;
    if (selected.reachesBeyondBlocks(keys))
      lastKey = b.map({own.query}, b.i32(), [&](ArrayRef<Expr> x) {
        return min(x[0], firstKey + (selected.selectBlock - 1));
      });
    auto forEachKeyTile = [&](ArrayRef<Value> inits, KeyTileBody attend) {
      auto take = [&](KeyTile tile, ArrayRef<Value> carried) {
        tile.row = lastKey;
        return attend(tile, carried);
      };
      if (whole)
        return take(*whole, inits);
      return b.forLoop(0, perBlock, 1, inits,
                       [&](Expr i, ArrayRef<Value> carried) {
                         return take(loadKeys(firstKey + i * keys), carried);
                       });
    };
    own.forEachKeyTile = forEachKeyTile;
    body(own);
    return {};
  };
  b.forLoop(begin, end, selected.gatherTile, {}, gather);
}

void GatheredAttention::buildForwardParts(TileBuilder &b, const Index &index,
                                          Value q, Value k, Value v,
                                          Value parts, Value statistics) const {
  const AttentionShape &shape = selected.shape;
  forEachTile(b, index, k, v, /*isGradient=*/false, [&](const Rows &rows) {
    Value queries = rows.load(b, q, shape.columns(b, shape.keyWidth));
    auto softmax = attendToKeys(b, shape, queries, rows.forEachKeyTile);
    rows.storePart(b, softmax.output(b), parts,
                   shape.ownColumns(b, shape.valueWidth));
    shape.buildOnce(b, [&] {
      for (auto [number, value] :
           llvm::enumerate(ArrayRef<Value>{softmax.max, softmax.sum}))
        b.store(value, statistics,
                {rows.batch, rows.localHead, int64_t(number), rows.slot,
                 rows.query});
    });
  });
}

/// `in` are those of QueryGradInputs; `out` the parts.
void GatheredAttention::buildQueryGradParts(TileBuilder &b, const Index &index,
                                            const QueryGradInputs &in,
                                            Value out) const {
  const AttentionShape &shape = selected.shape;
  forEachTile(b, index, in.k, in.v, /*isGradient=*/true, [&](const Rows &rows) {
    Value queries = rows.load(b, in.q, shape.columns(b, shape.keyWidth));
    Value outputGrads =
        rows.load(b, in.outputGrad, shape.columns(b, shape.valueWidth));
    RowTerms terms = in.rows.load(b, shape.exponent(), in.branch, in.statistics,
                                  in.lse, rows.batch, rows.head, rows.query);
    Value zeros = b.zeros(selected.gatherRows, shape.ownWidth(shape.keyWidth));
    Value sum = rows.forEachKeyTile(
        zeros,
        [&](const KeyTile &tile,
            ArrayRef<Value> carried) -> SmallVector<Value> {
          return {addQueryGrad(b, queries, outputGrads, tile, terms,
                               shape.exponent(), carried[0])};
        })[0];
    rows.storePart(b, scaled(b, sum, getPartScale(shape)), out,
                   shape.ownColumns(b, shape.keyWidth));
  });
}

//===----------------------------------------------------------------------===//
// Sums of parts
//===----------------------------------------------------------------------===//

namespace {
/// The rows whose parts a program adds: some queries of one head.
struct SumRows {
  /// Program: (some queries, query head of the launch, batch).
  SumRows(TileBuilder &b, const SelectedAttention &selected, Expr firstHead,
          Value indices)
      : b(b), selected(selected), batch(b.programId(2)),
        localHead(b.programId(1)), head(firstHead + localHead),
        query(b.range(b.programId(0) * queries, queries, 0)),
        slots(b.range(0, selected.count, 1)) {
    Value entries =
        b.load(indices, {batch, head / selected.shape.group(), query, slots});
    SelectionLists lists(selected, query, entries, {batch});
    place = b.map({entries, query}, b.i32(), [&](ArrayRef<Expr> x) {
      return select(lists.isSeen(x[0], x[1]), x[1], -1);
    });
  }

  /// The sum of the parts at `place`, times `weights` if that is not null.
  Value add(Value parts, int64_t width, Value weights) const;
  void store(Value rows, Value ref) const {
    int64_t width = cast<TileType>(rows.getType()).getCols();
    b.store(rows, ref, {batch, query, head, b.range(0, width, 1)});
  }

  static constexpr int64_t queries = 32;
  TileBuilder &b;
  const SelectedAttention &selected;
  Expr batch, localHead, head;
  /// The numbers of the queries and of the parts, and for each query and part
  /// the query, or -1 if there is no such part.
  Value query, slots, place;
};
} // namespace

Value SumRows::add(Value parts, int64_t width, Value weights) const {
  Value columns = b.range(0, width, 1);
  auto pick = [&](Value tile, Expr slot, double other) {
    Type type = cast<TileType>(tile.getType()).getElementType();
    return b.map({tile, slots}, type, [&](ArrayRef<Expr> x) {
      return select(x[1] == slot, x[0], other);
    });
  };
  return b.forLoop(0, selected.count, 1, {b.zeros(queries, width)},
                   [&](Expr slot, ArrayRef<Value> sum) -> SmallVector<Value> {
                     Value row = b.reduceMax(pick(place, slot, -1));
                     SmallVector<Value> inputs = {
                         sum[0],
                         b.load(parts, {batch, localHead, slot, row, columns})};
                     if (weights)
                       inputs.push_back(b.reduceAdd(pick(weights, slot, 0)));
                     return {b.map(inputs, b.f32(), [&](ArrayRef<Expr> x) {
                       return x[0] + (weights ? x[1] * x[2] : x[1]);
                     })};
                   })[0];
}

void GatheredAttention::buildForwardSum(TileBuilder &b, Expr firstHead,
                                        Value parts, Value statistics,
                                        Value indices, Value output,
                                        Value lse) const {
  const AttentionShape &shape = selected.shape;
  Exponent exponent = shape.exponent();
  SumRows rows(b, selected, firstHead, indices);
  auto load = [&](int64_t number) {
    return b.load(statistics,
                  {rows.batch, rows.localHead, number, rows.slots, rows.place});
  };
  Value maxima = b.map({load(0), rows.place}, b.f32(), [&](ArrayRef<Expr> x) {
    return select(x[1] >= 0, x[0], -INFINITY);
  });
  Value max = b.reduceMax(maxima);
  Value weights = b.map({maxima, max, load(1)}, b.f32(), [&](ArrayRef<Expr> x) {
    return select(x[2] > 0, x[2] * exponent.power(x[0] - x[1]), 0);
  });
  Value sum = b.reduceAdd(weights);
  Value normalized = b.map({weights, sum}, b.f32(), [](ArrayRef<Expr> x) {
    return select(x[0] > 0, x[0] / x[1], 0);
  });
  rows.place = b.map({rows.place, weights}, b.i32(), [](ArrayRef<Expr> x) {
    return select(x[1] > 0, x[0], -1);
  });
  rows.store(rows.add(parts, shape.valueWidth, normalized), output);
  b.store(b.map({max, sum}, b.f32(),
                [&](ArrayRef<Expr> x) {
                  return select(x[1] > 0, exponent.toLse(x[0], x[1]),
                                -INFINITY);
                }),
          lse, {rows.batch, rows.head, rows.query});
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// The kernels of parts and of their sums.
struct GatheredAttention::Kernels {
  /// Names the first; the other one has "_sum" after it.
  StringRef suffix;
  ChosenSchedule schedule;
  /// Of all heads.
  int64_t flops = 0;
  SmallVector<Value> inputs = {};
  Value indices = {};
  SmallVector<Type> parts = {}, sums = {};
  std::function<void(TileBuilder &, const Index &, ArrayRef<Value> in,
                     ArrayRef<Value> out)>
      buildParts = {};
  /// `in` are the parts and the indices.
  std::function<void(TileBuilder &, Expr firstHead, ArrayRef<Value> in,
                     ArrayRef<Value> out)>
      buildSum = {};
};

SmallVector<Value> GatheredAttention::launch(KernelCache &cache,
                                             OpBuilder &builder, Operation *op,
                                             const Kernels &kernels,
                                             const InverseIndex &lists) const {
  const AttentionShape &shape = selected.shape;
  bool takesTurns = turns > 1;
  auto [blocks, entries] =
      named<2>(launchPieces(cache, builder, op, lists.offsets));
  Index index = {kernels.indices, lists.offsets, lists.list,
                 blocks,          entries,       /*step=*/Value()};
  KernelSpec parts = {kernels.suffix.str(),
                      selected.name(),
                      {numPieces(), keyHeads, shape.batch},
                      kernels.flops / turns};
  parts.schedule = kernels.schedule;
  parts.indices = kernels.indices;
  parts.selectBlock = selected.visibility.getIndexBlock();
  KernelSpec sums = {
      kernels.suffix.str() + "_sum",
      selected.name(),
      {ceilDiv(shape.sequence, SumRows::queries), heads(), shape.batch}};
  sums.indices = parts.indices;
  sums.selectBlock = parts.selectBlock;
  // The number of the turn is data, so that all turns share their kernels.
  SmallVector<Value> results;
  SmallVector<Type> sumTypes = kernels.sums;
  if (takesTurns) {
    Type type = RankedTensorType::get({1}, builder.getI32Type());
    index.step =
        nn::FillOp::create(builder, op->getLoc(), builder.getF64FloatAttr(0.0),
                           TypeAttr::get(type));
    sumTypes.push_back(type);
  }
  size_t numInputs = kernels.inputs.size(), numParts = kernels.parts.size();
  for (int64_t turn = 0; turn < turns; ++turn) {
    SmallVector<Value> inputs = kernels.inputs;
    llvm::append_range(inputs, getInputs(index));
    auto made =
        cache.launch(builder, op, parts, inputs, kernels.parts,
                     [&](TileBuilder &b, ArrayRef<Value> args) {
                       Index own =
                           bindOperands(index, args.drop_front(numInputs));
                       kernels.buildParts(b, own, args.take_front(numInputs),
                                          args.take_back(numParts));
                     });
    inputs = llvm::to_vector_of<Value>(made);
    inputs.push_back(kernels.indices);
    if (takesTurns)
      inputs.push_back(index.step);
    // Later ones add their heads to the results.
    if (turn == 1)
      sums.suffix += "_next";
    for (size_t i = 0; i < results.size() && turn == 1; ++i)
      sums.inPlace.emplace_back(inputs.size() + i, i);
    llvm::append_range(inputs, results);
    results = llvm::to_vector_of<Value>(
        cache.launch(builder, op, sums, inputs, sumTypes,
                     [&](TileBuilder &b, ArrayRef<Value> args) {
                       ArrayRef<Value> out = args.take_back(sumTypes.size());
                       ArrayRef<Value> in = args.take_front(numParts + 1);
                       Value own = takesTurns ? args[in.size()] : Value();
                       kernels.buildSum(b, getFirstHead(b, own), in,
                                        out.take_front(kernels.sums.size()));
                       if (takesTurns)
                         buildNextStep(b, own, out.back());
                     }));
    if (takesTurns)
      index.step = results.pop_back_val();
  }
  return results;
}

/// Program 0 counts the turn.
void GatheredAttention::buildNextStep(TileBuilder &b, Value step, Value next) {
  Expr isFirst =
      (b.programId(0) == 0) & (b.programId(1) == 0) & (b.programId(2) == 0);
  b.ifThen(isFirst,
           [&] { b.storeScalar(b.loadScalar(step, {0}) + 1, next, {0}); });
}

SmallVector<Value> GatheredAttention::launchForward(AttentionOp op,
                                                    KernelCache &cache,
                                                    OpBuilder &builder) {
  AttentionShape shape = getShapeOf(op);
  ChosenSchedule own =
      shape.choose(cache, op, "parts", AttentionKernel::SelectedForward);
  GatheredAttention attention(op, own, cache.getMachine());
  const SelectedAttention &selected = attention.selected;
  Kernels kernels = {"parts", own};
  kernels.flops = selected.flops(shape.keyWidth + shape.valueWidth);
  kernels.inputs = {op.getQuery(), op.getKey(), op.getValue()};
  kernels.indices = op.getIndices();
  // Two numbers of each row besides the part.
  kernels.parts = {
      attention.getPartType(cache, op.getOutput().getType(), shape.valueWidth),
      cache.getTensorType(
          {shape.batch, attention.heads(), 2, selected.count, shape.sequence},
          cache.getF32Type())};
  kernels.sums = llvm::to_vector(op->getResultTypes());
  kernels.buildParts = [&](TileBuilder &b, const Index &index,
                           ArrayRef<Value> in, ArrayRef<Value> out) {
    auto [q, k, v] = named<3>(in);
    auto [parts, statistics] = named<2>(out);
    attention.buildForwardParts(b, index, q, k, v, parts, statistics);
  };
  kernels.buildSum = [&](TileBuilder &b, Expr firstHead, ArrayRef<Value> in,
                         ArrayRef<Value> out) {
    auto [parts, statistics, indices] = named<3>(in);
    auto [output, lse] = named<2>(out);
    attention.buildForwardSum(b, firstHead, parts, statistics, indices, output,
                              lse);
  };
  return attention.launch(cache, builder, op, kernels,
                          selected.launchLists(cache, builder, op,
                                               op.getIndices(),
                                               /*at=*/Value()));
}

Value GatheredAttention::launchQueryGrad(
    Operation *op, AttentionBackwardOp branch, const QueryGradInputs &in,
    Value indices, Type type, double scale, const InverseIndex &lists,
    KernelCache &cache, OpBuilder &builder) {
  AttentionShape shape = getShapeOf(branch);
  ChosenSchedule own =
      shape.choose(cache, op, "dq_parts", AttentionKernel::SelectedQueryGrad);
  GatheredAttention attention(branch, own, cache.getMachine());
  const SelectedAttention &selected = attention.selected;
  Kernels kernels = {"dq_parts", own};
  kernels.flops = selected.flops(2 * shape.keyWidth + shape.valueWidth);
  kernels.inputs = getInputs(in);
  kernels.indices = indices;
  kernels.parts = {
      attention.getPartType(cache, in.q.getType(), shape.keyWidth)};
  kernels.sums = {type};
  kernels.buildParts = [&](TileBuilder &b, const Index &index,
                           ArrayRef<Value> args, ArrayRef<Value> out) {
    attention.buildQueryGradParts(b, index, bindOperands(in, args),
                                  out.front());
  };
  kernels.buildSum = [&](TileBuilder &b, Expr firstHead, ArrayRef<Value> in,
                         ArrayRef<Value> out) {
    auto [parts, indices] = named<2>(in);
    SumRows rows(b, selected, firstHead, indices);
    Value sum = rows.add(parts, shape.keyWidth, /*weights=*/Value());
    rows.store(scaled(b, sum, scale / getPartScale(shape)), out.front());
  };
  return attention.launch(cache, builder, op, kernels, lists)[0];
}
