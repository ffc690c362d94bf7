//===- SelectedAttentionBackward.cpp - gradients of the selected branch ---===//
//
// The gradient of a query iterates over the blocks that it selected, that of a
// key over the queries that selected its block.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/NSA/GatheredAttention.h"
#include "passes/Kernels/NSA/NSAToTile.h"
#include "passes/Kernels/NSA/SelectedForms.h"
#include "llvm/ADT/bit.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

int64_t SelectedAttention::getGradParts(const AttentionShape &shape,
                                        int64_t selectBlock, int64_t count,
                                        const KernelSchedule &schedule) {
  if (!schedule.isGPU)
    return 1;
  constexpr int64_t most = 16;
  // Lists have as many entries as all queries together, that of the first block
  // one for each query.
  int64_t atOnce = 2 * schedule.processors;
  // One row of the batch, which has the fewest lists, if its size is not known.
  int64_t rows = shape.batch.isConstant() ? int64_t(shape.batch) : 1;
  int64_t lists = count * shape.keyHeads * rows;
  auto parts = static_cast<int64_t>(
      llvm::bit_floor(static_cast<uint64_t>(2 * atOnce / lists)));
  int64_t enough = int64_t(shape.sequence) / (2 * count * selectBlock);
  return std::max<int64_t>(std::min({parts, enough, most}), 1);
}

SelectedAttention::GradProgram
SelectedAttention::getGradProgram(TileBuilder &b, int64_t parts) const {
  Expr program = b.programId(0);
  if (!isGPU)
    return {program, b.expr(b.constant(0)), b.programId(1), b.programId(2)};
  int64_t heads = shape.keyHeads;
  Extent pairs = heads * shape.batch;
  // The same tile and part for one head after the other.
  Expr pair = program % pairs, work = program / pairs;
  GradProgram byTiles = {work / parts, work % parts, pair % heads,
                         pair / heads};
  constexpr int64_t manyPrograms = 2048;
  Extent all = numGradTiles() * parts;
  if (all.isConstant() && int64_t(all) < manyPrograms)
    return byTiles;
  int64_t ofFirst = tilesPerBlock();
  Extent others = atLeast(numGradTiles() - ofFirst, 1);
  Extent firstPrograms = ofFirst * parts * pairs;
  Expr isFirst = program < firstPrograms;
  if (!all.isConstant())
    isFirst = isFirst | (toExpr(all, program) < manyPrograms);
  // Tiles of one part, parts of one head.
  Expr other = max(program - firstPrograms, 0);
  Expr part = other / others, otherPair = part / parts;
  return {select(isFirst, byTiles.tile, other % others + ofFirst),
          select(isFirst, byTiles.part, part % parts),
          select(isFirst, byTiles.keyHead, otherPair % heads),
          select(isFirst, byTiles.batch, otherPair / heads)};
}

std::array<Extent, 3> SelectedAttention::gradGrid(int64_t parts) const {
  if (!isGPU)
    return {numGradTiles(), shape.keyHeads, shape.batch};
  return {numGradTiles() * parts * shape.keyHeads * shape.batch, 1, 1};
}

void SelectedAttention::buildKeyValueGrad(TileBuilder &b,
                                          const GradProgram &program,
                                          const KeyValueGradArgs &args,
                                          Value offsets, Value list,
                                          int64_t parts) const {
  auto build = [&] { buildPartOfGrad(b, program, args, offsets, list, parts); };
  if (parts == 1)
    return build();
  // Others are unused.
  Expr block = firstKeyOf(program.tile) / selectBlock;
  b.ifThen(program.part >= firstPart(block), build);
}

/// Makes rows of queries that selected `block` see its keys up to their own.
void SelectedAttention::limitToBlock(TileBuilder &b, Value start, Expr batch,
                                     Expr block, KeyTile &tile) const {
  Value starts = b.load(start, {batch, tile.row});
  auto bounds = b.map({tile.row, starts}, {b.i32(), b.i32()},
                      [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                        Expr first = block * selectBlock + x[1] % selectBlock;
                        return {first, min(x[0] - first, selectBlock - 1)};
                      });
  tile.base = bounds[0];
  tile.row = bounds[1];
}

/// Runs `body` for the numbers of the blocks that the keys from `u0` on are in:
/// one or two.
SmallVector<Value> SelectedAttention::forEachBlockOf(
    TileBuilder &b, Value start, Expr batch, Expr u0, ArrayRef<Value> inits,
    llvm::function_ref<SmallVector<Value>(Expr, ArrayRef<Value>)> body) const {
  auto numberOf = [&](Expr token) {
    Expr begin = b.loadScalar(start, {batch, token});
    return begin / selectBlock + (token - begin) / selectBlock;
  };
  Expr last = min(u0 + (ownKeyTile - 1), shape.sequence - 1);
  if (reachesBeyondBlocks(ownKeyTile))
    last = min(last, (u0 / selectBlock + 1) * selectBlock - 1);
  return b.forLoop(numberOf(u0), numberOf(last) + 1, 1, inits, body);
}

void SelectedAttention::buildPartOfGrad(TileBuilder &b,
                                        const GradProgram &program,
                                        const KeyValueGradArgs &args,
                                        Value offsets, Value list,
                                        int64_t parts) const {
  Expr u0 = firstKeyOf(program.tile);
  Expr keyHead = program.keyHead, batch = program.batch;
  Expr block = u0 / selectBlock, firstHead = keyHead * shape.group();
  int64_t rows = gatherRows, listed = gatherTile * shape.group();
  Value u = b.range(u0, ownKeyTile, 0), stored = u;
  if (reachesBeyondBlocks(ownKeyTile))
    stored = b.map({u}, b.i32(), [&](ArrayRef<Expr> x) {
      return select(x[0] < block * selectBlock + selectBlock, x[0], -1);
    });
  Value keyCols = shape.columns(b, shape.keyWidth);
  Value valueCols = shape.columns(b, shape.valueWidth);
  Value ownKeyCols = shape.ownColumns(b, shape.keyWidth);
  Value ownValueCols = shape.ownColumns(b, shape.valueWidth);

  KeyTile tile;
  tile.keys = b.load(args.k, {batch, u, keyHead, keyCols});
  tile.values = b.load(args.v, {batch, u, keyHead, valueCols});
  tile.key = u;
  tile.isVisible = [](Expr t, Expr u) { return u <= t; };
  Expr begin, end;
  auto findList = [&] {
    std::tie(begin, end) =
        getListPart(b, offsets, batch, keyHead, block, program.part, parts);
  };
  if (!isPacked)
    findList();
  // Rows past the end of the list get a query outside of the sequence: they
  // read as 0.
  auto queryOfRow = [&](Expr entry, int axis) {
    Value place =
        b.map({b.range(0, rows, axis)}, b.i32(), [&](ArrayRef<Expr> x) {
          Expr own = entry + x[0] / shape.group();
          return rows == listed ? own : select(x[0] < listed, own, end);
        });
    Value query = b.load(list, {batch, keyHead, place});
    return b.map({place, query}, b.i32(), [&](ArrayRef<Expr> x) {
      return select(x[0] < end, x[1], shape.sequence);
    });
  };
  auto headOfRow = [&](int axis) {
    return b.map({b.range(0, rows, axis)}, b.i32(), [&](ArrayRef<Expr> x) {
      return firstHead + x[0] % shape.group();
    });
  };
  Value head = headOfRow(0), headRow = headOfRow(1);
  auto addQueries = [&](Expr entry, ArrayRef<Value> sums) {
    Value t = queryOfRow(entry, 0);
    tile.row = queryOfRow(entry, 1);
    tile.base = {};
    Value queries = b.load(args.q, {batch, t, head, keyCols});
    Value outputGrads = b.load(args.outputGrad, {batch, t, head, valueCols});
    RowTerms terms =
        args.loadTerms(b, shape.exponent(), batch, headRow, tile.row);
    if (args.start)
      limitToBlock(b, args.start, batch, block, tile);
    auto [ownQueries, ownOutputGrads] =
        loadOwnColumns(b, shape, args, {batch, t, head});
    return addKeyValueGrad(b, queries, outputGrads, tile, terms,
                           shape.exponent(), sums, ownQueries, ownOutputGrads);
  };
  // Every query selects the first block. The rounding errors of one sum that
  // long would exceed those of the terms: sums of ranges first.
  int64_t perSum = 16 * gatherTile;
  SmallVector<Value> zeros = {
      b.zeros(ownKeyTile, shape.ownWidth(shape.keyWidth)),
      b.zeros(ownKeyTile, shape.ownWidth(shape.valueWidth))};
  auto addList = [&](ArrayRef<Value> sums) {
    return b.forLoop(
        begin, end, perSum, sums,
        [&](Expr first, ArrayRef<Value> carried) -> SmallVector<Value> {
          auto own = b.forLoop(first, min(first + perSum, end), gatherTile,
                               zeros, addQueries);
          return {add(b, carried[0], own[0]), add(b, carried[1], own[1])};
        });
  };
  auto addBlock = [&](Expr listed, ArrayRef<Value> sums) {
    block = listed;
    findList();
    return addList(sums);
  };
  auto sums = isPacked
                  ? forEachBlockOf(b, args.start, batch, u0, zeros, addBlock)
                  : addList(zeros);
  if (parts > 1) {
    Expr part = program.part;
    b.store(sums[0], args.keyGrad, {part, batch, stored, keyHead, ownKeyCols});
    b.store(sums[1], args.valueGrad,
            {part, batch, stored, keyHead, ownValueCols});
    return;
  }
  b.store(scaled(b, sums[0], shape.scale), args.keyGrad,
          {batch, stored, keyHead, ownKeyCols});
  b.store(sums[1], args.valueGrad, {batch, stored, keyHead, ownValueCols});
}

/// Program: (tile of queries, key head, batch). Also writes do . o of every
/// row, which the gradients of keys and values need. Where queries are
/// gathered, that is all, and `args` end without dq.
static void buildQueryGrad(const SelectedAttention &attention, TileBuilder &b,
                           ArrayRef<Value> args, bool gathers) {
  ArrayRef<Value> in = args.drop_back(gathers ? 1 : 2);
  SelectionUnion selection;
  if (!gathers)
    selection = attention.takeUnion(in);
  Value dO = in[0], q = in[1], k = in[2], v = in[3], o = in[4];
  Value lse = in[5], indices = in[6];
  Value delta = args.back();
  const AttentionShape &shape = attention.shape;
  GroupProgram program =
      attention.makeProgram(b, attention.queryTileOf(b.programId(0)));
  program.range.start = attention.isPacked ? in[7] : Value();
  program.range.isGradient = true;
  Value valueCols = shape.columns(b, shape.valueWidth);
  Value queries = program.loadRows(q, shape.columns(b, shape.keyWidth));
  Value outputGrads = program.loadRows(dO, valueCols);
  RowTerms terms;
  Value rowLse = program.loadStatistic(lse);
  terms.shift = shape.exponent().fromLse(b, rowLse);
  terms.delta = program.dotRows(shape, outputGrads, dO, o);
  shape.buildOnce(b, [&] {
    RowStatistics(shape, attention.isGPU)
        .store(program, /*branch=*/0, terms, rowLse, delta);
  });
  if (gathers)
    return;

  auto sum = attention.forEachKeyTile(
      program, indices, selection, k, v,
      {b.zeros(program.numRows(), shape.ownWidth(shape.keyWidth))},
      [&](const KeyTile &tile, ArrayRef<Value> carried) -> SmallVector<Value> {
        return {addQueryGrad(b, queries, outputGrads, tile, terms,
                             shape.exponent(), carried[0])};
      });
  program.storeRows(scaled(b, sum[0], shape.scale), args.drop_back().back(),
                    shape.ownColumns(b, shape.keyWidth));
}

//===----------------------------------------------------------------------===//
// Pattern
//===----------------------------------------------------------------------===//

namespace {
/// The launches of one operation. Those of keys and values take do . o of every
/// row.
struct Launcher {
  Launcher(AttentionBackwardOp op, KernelCache &cache, OpBuilder &builder)
      : op(op), cache(cache), builder(builder),
        attention(op, cache.getSchedule()),
        masked(makeMasked(attention, cache.getSchedule())) {
    indices = attention.launchNumbers(cache, builder, op, op.getIndices(),
                                      op.getStart());
  }

  /// Cuts the kernel with this suffix.
  void cut(StringRef suffix, ScheduledKernel kernel) {
    own = attention.shape.choose(cache, op, suffix, kernel);
    KernelSchedule schedule = own.applyTo(cache.getSchedule());
    attention = SelectedAttention(op, schedule);
    attention.shape.columnParts = own.columnParts;
    masked = makeMasked(attention, schedule);
  }
  SmallVector<Value> launchQueryGrad();
  SmallVector<Value> launchGatheredQueryGrad(ArrayRef<Value> lists);
  SmallVector<Value> launchMaskedQueryGrad();
  /// Of kernels that have the rows of lists.
  KernelSpec listSpec(StringRef suffix);
  ResultRange launchKeyValueGrad(Value delta, ArrayRef<Value> lists);
  ResultRange launchMaskedKeyValueGrad(Value delta);
  Value launchMasks() {
    return SelectionMasks::launch(cache, builder, op, indices,
                                  attention.selectBlock);
  }
  int64_t queryFlops() const {
    return attention.flops(2 * attention.shape.keyWidth +
                           attention.shape.valueWidth);
  }
  int64_t keyValueFlops() const {
    return attention.flops(2 * attention.shape.keyWidth +
                           2 * attention.shape.valueWidth);
  }
  SmallVector<Type> queryTypes() {
    return {op.getQuery().getType(), masked.getStatistics().getType(cache)};
  }
  SmallVector<Type> keyValueTypes() {
    return {op.getKey().getType(), op.getValue().getType()};
  }

  AttentionBackwardOp op;
  KernelCache &cache;
  OpBuilder &builder;
  ChosenSchedule own;
  SelectedAttention attention;
  DenseAttention masked;
  /// Numbers of blocks.
  Value indices;
};
} // namespace

KernelSpec Launcher::listSpec(StringRef suffix) {
  cut(suffix, ScheduledKernel::ListQueryGrad);
  const AttentionShape &shape = attention.shape;
  KernelSpec spec = {suffix.str(),
                     attention.name(),
                     {attention.numQueryTiles(), shape.keyHeads, shape.batch},
                     queryFlops()};
  spec.indices = indices;
  spec.selectBlock = op.getVisibility().getIndexBlock();
  spec.takesExtents = !attention.isPacked;
  spec.schedule = own;
  return spec;
}

SmallVector<Value> Launcher::launchQueryGrad() {
  KernelSpec spec = listSpec("dq");
  SmallVector<Value> inputs(op->getOperands());
  inputs[6] = indices;
  llvm::append_range(inputs, attention.launchUnion(cache, builder, op, indices,
                                                   op.getStart()));
  return llvm::to_vector_of<Value>(
      cache.launch(builder, op, spec, inputs, queryTypes(),
                   [&](TileBuilder &b, ArrayRef<Value> args) {
                     buildQueryGrad(attention, b, args, /*gathers=*/false);
                   }));
}

SmallVector<Value> Launcher::launchGatheredQueryGrad(ArrayRef<Value> lists) {
  KernelSpec spec = listSpec("dq_rows");
  spec.flops = 0;
  Value statistics =
      cache.launch(builder, op, spec, op->getOperands(), queryTypes()[1],
                   [&](TileBuilder &b, ArrayRef<Value> args) {
                     buildQueryGrad(attention, b, args, /*gathers=*/true);
                   })[0];
  return {GatheredAttention::launchQueryGrad(
              op, op,
              {op.getOutputGrad(), op.getQuery(), op.getKey(), op.getValue(),
               op.getLse(), statistics, masked.getStatistics(), /*branch=*/0},
              indices, op.getQuery().getType(), attention.shape.scale, lists,
              cache, builder),
          statistics};
}

SmallVector<Value> Launcher::launchMaskedQueryGrad() {
  cut("dq_masks", ScheduledKernel::MaskedQueryGrad);
  KernelSpec spec = masked.queryGradSpec("dq_masks", attention.name());
  spec.schedule = own;
  spec.flops = queryFlops();
  SmallVector<Value> inputs(op->getOperands());
  inputs[6] = launchMasks();
  return llvm::to_vector_of<Value>(
      cache.launch(builder, op, spec, inputs, queryTypes(),
                   [&](TileBuilder &b, ArrayRef<Value> args) {
                     masked.buildQueryGrad(b, args);
                   }));
}

ResultRange Launcher::launchKeyValueGrad(Value delta, ArrayRef<Value> lists) {
  cut("dkdv", ScheduledKernel::ListKeyValueGrad);
  KernelSpec spec = {"dkdv", attention.name(), attention.gradGrid(/*parts=*/1),
                     keyValueFlops()};
  spec.schedule = own;
  spec.takesExtents = !attention.isPacked;
  SmallVector<Value> inputs = {op.getOutputGrad(), op.getQuery(), op.getKey(),
                               op.getValue(),      op.getLse(),   delta,
                               lists[0],           lists[1]};
  if (op.getStart())
    inputs.push_back(op.getStart());
  return cache.launch(
      builder, op, spec, inputs, keyValueTypes(),
      [&](TileBuilder &b, ArrayRef<Value> args) {
        auto own = KeyValueGradArgs::ofOneBranch(args, masked.getStatistics());
        own.start = attention.isPacked ? args[8] : Value();
        attention.buildKeyValueGrad(b, attention.getGradProgram(b, /*parts=*/1),
                                    own, args[6], args[7]);
      });
}

ResultRange Launcher::launchMaskedKeyValueGrad(Value delta) {
  cut("dkdv_masks", ScheduledKernel::MaskedKeyValueGrad);
  KernelSpec spec = masked.keyValueGradSpec("dkdv_masks", attention.name());
  spec.schedule = own;
  spec.flops = keyValueFlops();
  SmallVector<Value> inputs = {op.getOutputGrad(), op.getQuery(), op.getKey(),
                               op.getValue(),      op.getLse(),   delta,
                               launchMasks()};
  if (op.getStart())
    inputs.append(
        {op.getStart(), launchSequenceEnds(cache, builder, op, op.getStart())});
  return cache.launch(builder, op, spec, inputs, keyValueTypes(),
                      [&](TileBuilder &b, ArrayRef<Value> args) {
                        auto own = KeyValueGradArgs::ofOneBranch(
                            args, masked.getStatistics());
                        own.masks = args[6];
                        if (masked.isPacked) {
                          own.start = args[7];
                          own.ends = args[8];
                        }
                        masked.buildKeyValueGrad(b, b.programId(0), own);
                      });
}

static LogicalResult
convertSelectedAttentionBackward(AttentionBackwardOp op, KernelCache &cache,
                                 PatternRewriter &rewriter) {
  if (!op.getIndices())
    return failure();
  Launcher launcher(op, cache, rewriter);
  SelectedForms forms(launcher.attention, cache.getSchedule());
  SmallVector<Value> lists;
  if (forms.keyValueGrad == SelectedForm::Lists)
    lists =
        launcher.attention.launchLists(cache, rewriter, op, launcher.indices);
  SmallVector<Value> queryGrad = forms.queryGrad == SelectedForm::Masks
                                     ? launcher.launchMaskedQueryGrad()
                                 : forms.queryGrad == SelectedForm::Gathered
                                     ? launcher.launchGatheredQueryGrad(lists)
                                     : launcher.launchQueryGrad();
  ResultRange keyValueGrad =
      forms.keyValueGrad == SelectedForm::Masks
          ? launcher.launchMaskedKeyValueGrad(queryGrad[1])
          : launcher.launchKeyValueGrad(queryGrad[1], lists);
  rewriter.replaceOp(
      op, ValueRange{queryGrad[0], keyValueGrad[0], keyValueGrad[1]});
  return success();
}

void nsa::populateSelectedAttentionBackwardPatterns(KernelPatterns &patterns) {
  patterns.add(convertSelectedAttentionBackward);
}
