//===- DenseAttention.cpp - attention to ranges of keys -------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/NSA/DenseAttentionKernels.h"
#include "passes/Kernels/NSA/NSAToTile.h"
#include "passes/Kernels/Rotation.h"

#include <numeric>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

template <typename OpT>
static DenseAttention getAttention(OpT op, const KernelSchedule &machine,
                                   const Schedule &schedule) {
  DenseAttention attention(getShapeOf(op), op.getVisibility(),
                           schedule.applyTo(machine));
  attention.shape.columnParts = schedule.columnParts;
  attention.isPacked = bool(op.getStart());
  return attention;
}

namespace {
/// The masks of queries for some blocks, and of packed sequences those for the
/// blocks before them; null without.
struct MaskWords {
  Value own, before;
};
} // namespace

bool DenseAttention::isLong() const {
  constexpr int64_t manyKeys = 1536, manyTokens = 8192;
  if (!visibility->attendsToTokens())
    return shape.valueWidth > 64 && int64_t(shape.keys) >= manyKeys;
  if (shape.valueWidth <= 64 && !isThin())
    return false;
  // Blocks that were selected are smaller than the tiles of keys.
  return selectBlock == 0 && shape.sequence.isConstant() &&
         visibility->getMaxKeys(int64_t(shape.sequence)) >= manyTokens;
}

/// Two warpgroups share the keys and values that a program copies, or three
/// where many keys follow each other.
int64_t DenseAttention::getOwnQueryTile(const KernelSchedule &schedule) const {
  int64_t fixed = schedule.fixed.forwardQueries;
  int64_t rows = getProductRows(schedule);
  if (fixed != 0 || rows == 0 || isNarrow() || int64_t(shape.sequence) < rows)
    return getQueryTile(schedule, fixed);
  return getTileSize(shape.sequence, (isLong() ? 3 : 2) * rows, rows);
}

/// Neighbouring queries see more keys of a window together than one of them
/// does, so that a program of fewer queries with several heads of their group
/// computes fewer pairs that do not count.
int64_t DenseAttention::getPackedHeads(const KernelSchedule &schedule) const {
  bool fits = visibility->attendsToTokens() &&
              ownQueryTile == 2 * getProductRows(schedule);
  return fits ? std::gcd(ownQueryTile, shape.group()) : 1;
}

/// Three consumer warpgroups with a producer have registers for more keys at
/// once.
int64_t
DenseAttention::getForwardKeyTile(const KernelSchedule &schedule) const {
  int64_t rows = getProductRows(schedule);
  int64_t tile = getKeyTile(schedule, schedule.fixed.forwardKeys);
  bool isLarge = rows != 0 && ownQueryTile == 3 * rows && tile == 64 &&
                 shape.keyWidth <= 128 && shape.valueWidth <= 128;
  if (!isLarge || schedule.fixed.forwardKeys != 0)
    return tile;
  return isThin() ? 128 : 80;
}

/// Warpgroups of one program wait for each other, those of two do not: the
/// exponentials of one program overlap with the dots of the other. Two fit with
/// 128 registers per thread.
int64_t DenseAttention::getMinBlocks(const KernelSchedule &schedule) const {
  int64_t rows = getProductRows(schedule);
  bool fits = shape.keyWidth <= 128 && shape.valueWidth <= 128;
  return rows != 0 && ownQueryTile == 2 * rows && fits ? 2 : 0;
}

int64_t DenseAttention::getOwnKeyTile(const KernelSchedule &schedule,
                                      int64_t fewest) const {
  int64_t tile = keyTile;
  if (schedule.fixed.backwardKeys != 0)
    return tile;
  auto countPrograms = [&] {
    return int64_t(ceilDiv(shape.keys, tile) * shape.keyHeads * shape.batch);
  };
  while (countPrograms() < schedule.processors && tile > fewest &&
         tile / 2 % schedule.tileMultiple == 0)
    tile /= 2;
  return tile;
}

static std::string getName(const DenseAttention &attention) {
  return attention.shape.name() + "_" + attention.visibility->getShapeName() +
         (attention.isPacked ? "_packed" : "");
}

//===----------------------------------------------------------------------===//
// Key tiles
//===----------------------------------------------------------------------===//

std::pair<Expr, Expr>
DenseAttention::getKeyRange(TileBuilder &b, const QueryRange &queries) const {
  Expr first = queries.first;
  Expr last = min(first + (queries.count - 1), shape.sequence - 1);
  if (!queries.start)
    return {visibility.firstKey(first), visibility.endKey(last)};
  Expr firstStart = b.loadScalar(queries.start, {queries.batch, first});
  Expr lastStart = b.loadScalar(queries.start, {queries.batch, last});
  // Where the last query sees nothing of its own sequence, the others see no
  // key from there on.
  return {visibility.keyBase(firstStart) +
              visibility.firstKey(first - firstStart),
          visibility.keyBase(lastStart) +
              max(visibility.endKey(last - lastStart), 0)};
}

SmallVector<Value> DenseAttention::forEachKeyTile(TileBuilder &b, int64_t size,
                                                  const QueryRange &queries,
                                                  Value k, Value v, Value masks,
                                                  ArrayRef<Value> inits,
                                                  KeyTileBody body) const {
  std::pair<Expr, Expr> range = getKeyRange(b, queries);
  Expr firstKey = range.first, endKey = range.second;
  std::optional<PackedRows> packed;
  if (queries.start)
    packed.emplace(b, visibility, queries.start, queries.batch, queries.query);
  auto forKeys = [&](Expr first, Expr end, const MaskWords &words,
                     ArrayRef<Value> inits) {
    return b.forLoop(
        first, end, size, inits, [&](Expr i0, ArrayRef<Value> carried) {
          Value i = b.range(i0, size, 0);
          KeyTile tile = queries.loadKeys(b, shape, i, k, v);
          tile.row = packed ? packed->row : queries.query;
          tile.base = packed ? packed->base : Value();
          tile.key = b.range(i0, size, 1);
          tile.isVisible = [&](Expr t, Expr i) {
            return visibility.isVisible(t, i);
          };
          auto isSelected = [&](Value word) {
            return SelectionMasks::isSelected(b, word, i0 / selectBlock);
          };
          if (words.before)
            limitToBlocks(b, tile, selectBlock, i0, isSelected(words.own),
                          isSelected(words.before), packed->begin,
                          queries.query);
          else if (words.own)
            tile.selected = isSelected(words.own);
          return body(tile, carried);
        });
  };
  if (!masks)
    return forKeys(firstKey, endKey, {}, inits);
  int64_t tokens = SelectionMasks::blocksPerWord * selectBlock;
  auto load = [&](tile::Operand word) {
    return b.load(masks, {queries.batch, queries.keyHead, word, queries.query});
  };
  // Each tile is to lie in one range of `selectBlock` tokens.
  if (packed)
    firstKey = firstKey / size * size;
  if (int64_t(shape.sequence) <= tokens) {
    MaskWords words = {load(0), {}};
    if (packed)
      words.before = SelectionMasks::ofBlocksBefore(b, words.own, Value());
    return forKeys(firstKey, endKey, words, inits);
  }
  return b.forLoop(packed ? firstKey / tokens * tokens : firstKey, endKey,
                   tokens, inits, [&](Expr first, ArrayRef<Value> carried) {
                     Expr word = first / tokens,
                          end = min(first + tokens, endKey);
                     MaskWords words = {load(word), {}};
                     if (!packed)
                       return forKeys(first, end, words, carried);
                     // No query sees a key of the block before the first one.
                     words.before = SelectionMasks::ofBlocksBefore(
                         b, words.own, load(max(word - 1, 0)));
                     return forKeys(max(first, firstKey), end, words, carried);
                   });
}

HeadProgram::HeadProgram(const DenseAttention &attention, int64_t queries,
                         TileBuilder &b)
    : RowProgram{b, {}, b.programId(1), Value()} {
  range.batch = b.programId(2);
  range.keyHead = b.expr(head) / attention.shape.group();
  range.first = getQueryTileOf(b.programId(0), attention.numQueryTiles(queries),
                               attention.isGPU) *
                queries;
  range.count = queries;
  range.query = stored = b.range(range.first, range.count, 0);
}

RowProgram DenseAttention::makeForwardProgram(TileBuilder &b) const {
  if (packedHeads == 1)
    return HeadProgram(*this, ownQueryTile, b);
  int64_t queries = ownQueryTile / packedHeads;
  Expr tile = getQueryTileOf(b.programId(0), numQueryTiles(queries), isGPU);
  return makeHeadsProgram(shape, queries, packedHeads, b, tile);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

void DenseAttention::buildForward(TileBuilder &b, ArrayRef<Value> args) const {
  Value q = args[0], k = args[1], v = args[2];
  Value masks = selectBlock != 0 ? args[3] : Value();
  Value o = args.drop_back().back(), lse = args.back();
  RowProgram program = makeForwardProgram(b);
  program.range.start = isPacked ? args[masks ? 4 : 3] : Value();
  AttentionShape own = shape;
  own.takesShortcuts = isIssueBound();
  storeAttention(b, program, own, q, o, lse,
                 [&](ArrayRef<Value> inits, KeyTileBody body) {
                   return forEachKeyTile(b, forwardKeyTile, program.range, k, v,
                                         masks, inits, body);
                 });
}

/// `args` are q, k, v, the keys of other branches, the table, the start of
/// packed sequences, o, lse, q rotated and the keys rotated. The program of a
/// query head has the rows of the keys' head of that number.
static void buildRotaryForward(const DenseAttention &attention, TileBuilder &b,
                               ArrayRef<Value> args) {
  size_t numOthers = attention.isPacked ? 2 : 1;
  size_t numKeys = (args.size() - 6 - numOthers) / 2;
  ArrayRef<Value> keys = args.slice(3, numKeys);
  Value table = args[3 + numKeys];
  Value start = attention.isPacked ? args[4 + numKeys] : Value();
  ArrayRef<Value> outputs = args.drop_front(3 + numKeys + numOthers);
  HeadProgram program(attention, attention.ownQueryTile, b);
  const QueryRange &range = program.range;
  Expr head = b.expr(program.head);
  auto rotate = [&](Value from, Value to) {
    rotateRange(b, from, to, table, range.batch, head, range.first, range.count,
                /*stride=*/1, /*inverse=*/false, start);
  };
  rotate(args[0], outputs[2]);
  for (auto [from, to] : llvm::zip_equal(keys, outputs.drop_front(3))) {
    int64_t heads = cast<MemRefType>(from.getType()).getShape()[2];
    b.ifThen(head < static_cast<double>(heads),
             [&, from = from, to = to] { rotate(from, to); });
  }
  SmallVector<Value> own = {outputs[2], args[1], args[2]};
  if (start)
    own.push_back(start);
  own.append({outputs[0], outputs[1]});
  attention.buildForward(b, own);
}

void DenseAttention::buildQueryGrad(TileBuilder &b,
                                    ArrayRef<Value> args) const {
  Value dO = args[0], q = args[1], k = args[2], v = args[3], o = args[4];
  Value lse = args[5], masks = selectBlock != 0 ? args[6] : Value();
  Value dQ = args.drop_back().back(), delta = args.back();
  HeadProgram program(*this, queryTile, b);
  program.range.start = isPacked ? args[masks ? 7 : 6] : Value();
  program.range.isGradient = true;
  const QueryRange &range = program.range;
  Value queries = program.loadRows(q, shape.columns(b, shape.keyWidth));
  Value valueCols = shape.columns(b, shape.valueWidth);
  Value outputGrads = program.loadRows(dO, valueCols);
  RowTerms terms;
  Value rowLse = program.loadStatistic(lse);
  terms.shift = shape.exponent().fromLse(b, rowLse);
  terms.delta = program.dotRows(shape, outputGrads, dO, o);
  shape.buildOnce(b, [&] {
    getStatistics().store(program, /*branch=*/0, terms, rowLse, delta);
  });
  // The elementwise use above keeps dO in registers, but wgmma should read a
  // loop-invariant operand from shared memory: load it again.
  if (hasWarpgroups)
    outputGrads = program.loadRows(dO, valueCols);

  Value sum = forEachKeyTile(
      b, keyTile, range, k, v, masks,
      {b.zeros(range.count, shape.ownWidth(shape.keyWidth))},
      [&](const KeyTile &tile, ArrayRef<Value> carried) -> SmallVector<Value> {
        return {addQueryGrad(b, queries, outputGrads, tile, terms,
                             shape.exponent(), carried[0])};
      })[0];
  program.storeRows(scaled(b, sum, shape.scale), dQ,
                    shape.ownColumns(b, shape.keyWidth));
}

/// Rows of packed sequences are counted from where that of the key `i` begins,
/// and keys from its first one.
void DenseAttention::countFromSequence(TileBuilder &b, Expr batch, Value i,
                                       const KeyValueGradArgs &args,
                                       KeyTile &tile) const {
  int64_t stride = visibility->getKeyStride();
  // A token that is in every block that begins in a stride.
  Value token = b.map({i}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] * stride + (stride - 1);
  });
  tile.begin = b.load(args.start, {batch, token});
  tile.end = b.load(args.ends, {batch, token});
  tile.key = b.map({i, tile.begin}, b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] - visibility.keyBase(x[1]);
  });
  if (selectBlock == 0)
    return;
  tile.isNext = b.map({i, tile.begin}, b.i32(), [&](ArrayRef<Expr> x) {
    Expr border = x[0] / selectBlock * selectBlock + x[1] % selectBlock;
    return convert(x[0] >= border, b.i32());
  });
}

/// Says which of the queries in the columns of a tile selected `block`, and of
/// packed sequences the block before.
void DenseAttention::selectQueries(TileBuilder &b, Expr batch, Expr keyHead,
                                   Expr block, const KeyValueGradArgs &args,
                                   KeyTile &tile) const {
  constexpr int64_t perWord = SelectionMasks::blocksPerWord;
  auto load = [&](tile::Operand word) {
    return b.load(args.masks, {batch, keyHead, word, tile.row});
  };
  Expr word = block / perWord;
  Value words = load(word), before;
  tile.selected = SelectionMasks::isSelected(b, words, block);
  if (!args.start)
    return;
  if (int64_t(shape.sequence) > perWord * selectBlock)
    before = load(max(word - 1, 0));
  tile.selectedBefore = SelectionMasks::isSelected(
      b, SelectionMasks::ofBlocksBefore(b, words, before), block);
}

void DenseAttention::buildKeyValueGrad(TileBuilder &b, Expr number,
                                       const KeyValueGradArgs &args,
                                       std::optional<Expr> part) const {
  Expr i0 = number * ownKeyTile;
  Expr keyHead = b.programId(1), batch = b.programId(2);
  Value i = b.range(i0, ownKeyTile, 0);
  Value keyCols = shape.columns(b, shape.keyWidth);
  Value valueCols = shape.columns(b, shape.valueWidth);

  KeyTile tile;
  tile.keys = b.load(args.k, {batch, i, keyHead, keyCols});
  tile.values = b.load(args.v, {batch, i, keyHead, valueCols});
  tile.key = i;
  tile.isVisible = [&](Expr t, Expr i) { return visibility.isVisible(t, i); };
  if (args.start)
    countFromSequence(b, batch, i, args, tile);
  // Queries that see some key of the tile.
  Expr last = min(i0 + (ownKeyTile - 1), shape.keys - 1);
  // From a multiple of 16 bytes on in rows of f32, where copies begin.
  int64_t before = isGPU ? visibility->getFirstQuery(0).getNumber() % 4 : 0;
  Expr firstQuery = visibility.firstQuery(i0) - static_cast<double>(before);
  Expr endQuery = visibility.endQuery(last);
  if (args.start) {
    int64_t stride = visibility->getKeyStride();
    Expr lastToken = min(last * stride + (stride - 1), shape.sequence - 1);
    endQuery = min(endQuery, b.loadScalar(args.ends, {batch, lastToken}));
  }
  Expr firstHead = keyHead * shape.group();
  auto addQueries = [&](Expr head, Expr t0, ArrayRef<Value> sums) {
    Value t = b.range(t0, queryTile, 0);
    tile.row = b.range(t0, queryTile, 1);
    Value queries = b.load(args.q, {batch, t, head, keyCols});
    Value outputGrads = b.load(args.outputGrad, {batch, t, head, valueCols});
    RowTerms terms = args.loadTerms(b, shape.exponent(), batch, head, tile.row);
    if (args.masks)
      selectQueries(b, batch, keyHead, i0 / selectBlock, args, tile);
    auto [ownQueries, ownOutputGrads] =
        loadOwnColumns(b, shape, args, {batch, t, head});
    return addKeyValueGrad(b, queries, outputGrads, tile, terms,
                           shape.exponent(), sums, ownQueries, ownOutputGrads);
  };
  SmallVector<Value> zeros = {
      b.zeros(ownKeyTile, shape.ownWidth(shape.keyWidth)),
      b.zeros(ownKeyTile, shape.ownWidth(shape.valueWidth))};
  Value ownKeyCols = shape.ownColumns(b, shape.keyWidth);
  Value ownValueCols = shape.ownColumns(b, shape.valueWidth);
  auto addHead = [&](Expr head) {
    return b.forLoop(firstQuery, endQuery, queryTile, zeros,
                     [&](Expr t0, ArrayRef<Value> sums) {
                       return addQueries(head, t0, sums);
                     });
  };
  if (part) {
    auto sums = addHead(firstHead + *part);
    b.store(sums[0], args.keyGrad, {*part, batch, i, keyHead, ownKeyCols});
    b.store(sums[1], args.valueGrad, {*part, batch, i, keyHead, ownValueCols});
    return;
  }
  // A sum for each head first: the rounding errors of one long sum would exceed
  // those of the terms.
  auto sums = b.forLoop(
      firstHead, firstHead + shape.group(), 1, zeros,
      [&](Expr head, ArrayRef<Value> carried) -> SmallVector<Value> {
        auto own = addHead(head);
        return {add(b, carried[0], own[0]), add(b, carried[1], own[1])};
      });
  b.store(scaled(b, sums[0], shape.scale), args.keyGrad,
          {batch, i, keyHead, ownKeyCols});
  b.store(sums[1], args.valueGrad, {batch, i, keyHead, ownValueCols});
}

KernelSpec DenseAttention::forwardSpec(StringRef suffix,
                                       std::string name) const {
  std::array<Extent, 3> grid = {numQueryTiles(ownQueryTile / packedHeads),
                                shape.queryHeads / packedHeads, shape.batch};
  KernelSpec spec = {suffix.str(), std::move(name), grid,
                     flops(shape.keyWidth + shape.valueWidth)};
  spec.minBlocks = minBlocks;
  // Loops of wider heads have one for their sums.
  spec.hasProducer = isIssueBound();
  spec.takesExtents = !isPacked;
  spec.longestFirst = isGraded();
  return spec;
}

KernelSpec DenseAttention::queryGradSpec(StringRef suffix,
                                         std::string name) const {
  KernelSpec spec = {suffix.str(), std::move(name), headGrid(queryTile),
                     flops(2 * shape.keyWidth + shape.valueWidth)};
  spec.takesExtents = !isPacked;
  spec.longestFirst = isGraded();
  return spec;
}

KernelSpec DenseAttention::keyValueGradSpec(StringRef suffix,
                                            std::string name) const {
  KernelSpec spec = {suffix.str(),
                     std::move(name),
                     {numKeyTiles(ownKeyTile), shape.keyHeads, shape.batch},
                     flops(2 * shape.keyWidth + 2 * shape.valueWidth)};
  spec.takesExtents = !isPacked;
  spec.longestFirst = isGraded();
  return spec;
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

static LogicalResult convertForward(AttentionOp op, KernelCache &cache,
                                    PatternRewriter &rewriter) {
  if (op.getIndices())
    return failure();
  ChosenSchedule own =
      getShapeOf(op).choose(cache, op, "", ScheduledKernel::Forward);
  DenseAttention attention = getAttention(op, cache.getSchedule(), own);
  KernelSpec spec = attention.forwardSpec("", getName(attention));
  spec.schedule = own;
  return cache.replace(rewriter, op, spec,
                       [&](TileBuilder &b, ArrayRef<Value> args) {
                         attention.buildForward(b, args);
                       });
}

static LogicalResult convertRotaryForward(RotaryAttentionOp op,
                                          KernelCache &cache,
                                          PatternRewriter &rewriter) {
  ChosenSchedule own =
      getShapeOf(op).choose(cache, op, "", ScheduledKernel::RotaryForward);
  DenseAttention attention = getAttention(op, cache.getSchedule(), own);
  // Programs rotate the rows of one head.
  attention.packedHeads = 1;
  KernelSpec spec = attention.forwardSpec("", getName(attention));
  spec.schedule = own;
  spec.takesExtents = spec.takesExtents &&
                      hasAnglesOfAll(op.getTable(), attention.shape.sequence);
  return cache.replace(rewriter, op, spec,
                       [&](TileBuilder &b, ArrayRef<Value> args) {
                         buildRotaryForward(attention, b, args);
                       });
}

static LogicalResult convertBackward(AttentionBackwardOp op, KernelCache &cache,
                                     PatternRewriter &rewriter) {
  if (op.getIndices())
    return failure();
  AttentionShape shape = getShapeOf(op);
  ChosenSchedule ofQuery =
      shape.choose(cache, op, "dq", ScheduledKernel::QueryGrad);
  DenseAttention attention = getAttention(op, cache.getSchedule(), ofQuery);
  KernelSpec query = attention.queryGradSpec("dq", getName(attention));
  query.schedule = ofQuery;
  auto queryResults = cache.launch(
      rewriter, op, query, op->getOperands(),
      {op.getQuery().getType(), attention.getStatistics().getType(cache)},
      [&](TileBuilder &b, ArrayRef<Value> args) {
        attention.buildQueryGrad(b, args);
      });
  ChosenSchedule ofKeys =
      shape.choose(cache, op, "dkdv", ScheduledKernel::KeyValueGrad);
  attention = getAttention(op, cache.getSchedule(), ofKeys);
  KernelSpec keyValue = attention.keyValueGradSpec("dkdv", getName(attention));
  keyValue.schedule = ofKeys;
  SmallVector<Value> inputs = {op.getOutputGrad(), op.getQuery(),
                               op.getKey(),        op.getValue(),
                               op.getLse(),        queryResults[1]};
  if (attention.isPacked)
    inputs.append({op.getStart(),
                   launchSequenceEnds(cache, rewriter, op, op.getStart())});
  auto keyValueResults =
      cache.launch(rewriter, op, keyValue, inputs,
                   {op.getKey().getType(), op.getValue().getType()},
                   [&](TileBuilder &b, ArrayRef<Value> args) {
                     auto own = KeyValueGradArgs::ofOneBranch(
                         args, attention.getStatistics());
                     if (attention.isPacked) {
                       own.start = args[6];
                       own.ends = args[7];
                     }
                     attention.buildKeyValueGrad(b, b.programId(0), own);
                   });
  rewriter.replaceOp(
      op, ValueRange{queryResults[0], keyValueResults[0], keyValueResults[1]});
  return success();
}

void nsa::populateDenseAttentionPatterns(KernelPatterns &patterns) {
  patterns.add(convertForward, convertRotaryForward, convertBackward);
}
