//===- GatedAttentionBackward.cpp - gradients of branches that share rows -===//

#include "passes/Kernels/NSA/GatedAttentionBackward.h"

#include <functional>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// What a kernel reads of a branch.
struct BranchArgs {
  Value key, value, output, lse, indices;
};
} // namespace

/// `in` are the gradient of the sum, the queries, what belongs to each branch,
/// what the gates come from, the start of packed sequences, the union of the
/// selection if there is one, and the table if the queries are rotated back
/// here. With masks, these are in the place of the indices, and there is no
/// union. If split, the gradient of the queries is that of the selected branch,
/// in fp32 and without the scale. Where queries are gathered, their gradient is
/// made elsewhere, and its output null. Returns the tile's part of the gradient
/// of the bias, f32 [heads, branches], or null without one.
Value GatedAttentionBackward::buildQueryGrad(TileBuilder &b, Expr tile,
                                             ArrayRef<Value> in,
                                             ArrayRef<Value> out) const {
  Value table;
  if (rotatesAtOnce()) {
    table = in.back();
    in = in.drop_back();
  }
  SelectionUnion selection;
  if (listsQueries())
    selection = selected.takeUnion(in);
  Value start;
  if (selected.isPacked) {
    start = in.back();
    in = in.drop_back();
  }
  auto take = [&] {
    Value first = in.front();
    in = in.drop_front();
    return first;
  };
  Value dO = take(), q = take();
  SmallVector<BranchArgs> own(branches);
  for (auto [c, args] : llvm::enumerate(own)) {
    args.key = take();
    args.value = take();
    args.output = take();
    args.lse = take();
    if (static_cast<int64_t>(c) == branch)
      args.indices = take();
  }
  Value gatesOrLogits = take();
  std::optional<GroupProgram> group;
  if (!masksQueries())
    group.emplace(selected.makeProgram(b, tile));
  RowProgram program =
      group ? RowProgram(*group)
            : HeadProgram(masked.attention, masked.attention.queryTile, b);
  program.range.start = start;
  program.range.isGradient = true;
  if (group)
    group->range = program.range;
  Value queries = program.loadRows(q, shape.columns(b, shape.keyWidth));
  Value valueCols = shape.columns(b, shape.valueWidth);
  Value outputGrads = program.loadRows(dO, valueCols);
  RowGates rowGates = getGates(gatesOrLogits, hasBias ? take() : Value());
  BranchTiles gates = rowGates.load(program), gateGrads;
  SmallVector<RowTerms> terms(branches);
  const QueryRange &range = program.range;
  for (int64_t c = 0; c < branches; ++c) {
    gateGrads.push_back(program.dotRows(shape, outputGrads, dO, own[c].output));
    Value lse = program.loadStatistic(own[c].lse);
    terms[c].shift = shape.exponent().fromLse(b, lse);
    if (foldsGates()) {
      terms[c].shift = shape.exponent().withFactor(b, terms[c].shift, gates[c]);
      terms[c].delta = gateGrads[c];
    } else {
      terms[c].gate = gates[c];
      terms[c].delta = b.map({gates[c], gateGrads[c]}, b.f32(),
                             [](ArrayRef<Expr> x) { return x[0] * x[1]; });
    }
    shape.buildOnce(b, [&] {
      statistics.store(program, c, terms[c], lse, out[Statistics]);
    });
  }
  BranchTiles grads = rowGates.differentiate(b, gateGrads, gates);
  shape.buildOnce(b, [&] { rowGates.store(program, grads, out[GatesGrad]); });
  Value biasGrad =
      hasBias ? sumBiasGrads(b, group ? &*group : nullptr, grads) : Value();
  if (gathersQueries())
    return biasGrad;
  // For warpgroups, as in DenseAttention::buildQueryGrad.
  if (masksQueries() && masked.attention.hasWarpgroups)
    outputGrads = program.loadRows(dO, valueCols);

  auto step = [&](int64_t branch) {
    return [&, branch](const KeyTile &tile,
                       ArrayRef<Value> carried) -> SmallVector<Value> {
      return {addQueryGrad(b, queries, outputGrads, tile, terms[branch],
                           shape.exponent(), carried[0])};
    };
  };
  SmallVector<Value> sum = {
      b.zeros(program.numRows(), shape.ownWidth(shape.keyWidth))};
  if (!isSplit())
    for (const Dense &one : dense)
      sum = one.attention.forEachKeyTile(
          b, one.attention.keyTile, range, own[one.branch].key,
          own[one.branch].value, /*masks=*/Value(), sum, step(one.branch));
  const BranchArgs &args = own[branch];
  sum = group
            ? selected.forEachKeyTile(*group, args.indices, selection, args.key,
                                      args.value, sum, step(branch))
            : masked.attention.forEachKeyTile(b, masked.attention.keyTile,
                                              range, args.key, args.value,
                                              args.indices, sum, step(branch));
  program.storeRows(isSplit() ? sum[0] : scaled(b, sum[0], shape.scale),
                    out[QueryGrad], shape.ownColumns(b, shape.keyWidth));
  if (table)
    rotateRows(
        b, out[QueryGrad], out[QueryGrad], table,
        {range.batch, range.query, program.head},
        getPackedPositions(b, range.query, start, range.batch, shape.sequence),
        /*inverse=*/true);
  return biasGrad;
}

/// Program: (tiles of queries, key head, batch), with masks (tile of queries,
/// query head, batch).
void GatedAttentionBackward::buildQueryGrads(TileBuilder &b, ArrayRef<Value> in,
                                             ArrayRef<Value> out) const {
  int64_t tiles = tilesPerProgram();
  Expr number =
      getQueryTileOf(b.programId(0), numQueryPrograms(), selected.isGPU);
  SmallVector<Value> biasGrad;
  if (tiles == 1) {
    biasGrad = {buildQueryGrad(b, number, in, out)};
  } else {
    if (hasBias)
      biasGrad = {b.zeros(shape.group(), branches)};
    biasGrad =
        b.forLoop(number * tiles, number * tiles + tiles, 1, biasGrad,
                  [&](Expr tile, ArrayRef<Value> sum) -> SmallVector<Value> {
                    Value part = buildQueryGrad(b, tile, in, out);
                    if (!hasBias)
                      return {};
                    return {add(b, sum[0], part)};
                  });
  }
  if (!hasBias)
    return;
  Expr batch = b.programId(2);
  int64_t heads = masksQueries() ? 1 : shape.group();
  Expr firstHead = b.programId(1) * heads;
  Value channel =
      b.map({b.range(0, heads, 0), b.range(0, branches, 1)}, b.i32(),
            [&](ArrayRef<Expr> x) {
              return (firstHead + x[0]) * static_cast<double>(branches) + x[1];
            });
  shape.buildOnce(b, [&] {
    b.store(biasGrad[0], out[BiasParts],
            {batch * numQueryPrograms() + number, channel});
  });
}

/// Program: (query tile, query head, batch). `args` are what
/// `launchDenseQueryGrad` gives it.
void GatedAttentionBackward::buildDenseQueryGrad(TileBuilder &b,
                                                 ArrayRef<Value> args) const {
  const DenseAttention &first = dense.front().attention;
  HeadProgram program(first, first.queryTile, b);
  program.range.isGradient = true;
  const QueryRange &range = program.range;
  Value outputGrads =
      program.loadRows(args[0], shape.columns(b, shape.valueWidth));
  Value queries = program.loadRows(args[1], shape.columns(b, shape.keyWidth));
  Value ownColumns = shape.ownColumns(b, shape.keyWidth);
  ArrayRef<Value> last = args.take_back(3);
  if (selected.isPacked)
    program.range.start = args.drop_back(3).back();
  SmallVector<Value> sum = {program.loadRows(last[1], ownColumns)};
  size_t perBranch = foldsGates() ? 2 : 3;
  for (auto [number, one] : llvm::enumerate(dense)) {
    ArrayRef<Value> in = args.slice(2 + perBranch * number, perBranch);
    Value lse = foldsGates() ? Value() : in[2];
    RowTerms terms =
        statistics.load(b, shape.exponent(), one.branch, last[0], lse,
                        range.batch, program.head, range.query);
    sum = one.attention.forEachKeyTile(
        b, one.attention.keyTile, range, in[0], in[1], /*masks=*/Value(), sum,
        [&](const KeyTile &tile,
            ArrayRef<Value> carried) -> SmallVector<Value> {
          return {addQueryGrad(b, queries, outputGrads, tile, terms,
                               shape.exponent(), carried[0])};
        });
  }
  program.storeRows(scaled(b, sum[0], shape.scale), last[2], ownColumns);
}

/// The sums of `grads` over the queries of `program` for each head of the
/// group: of several, a dot with the matrix that says which row is of which
/// head. Without `program`, rows are those of one head.
Value GatedAttentionBackward::sumBiasGrads(TileBuilder &b,
                                           const GroupProgram *program,
                                           const BranchTiles &grads) const {
  SmallVector<Value> inputs(grads);
  inputs.push_back(b.range(0, branches, 1));
  Value columns = b.map(inputs, b.f32(), [&](ArrayRef<Expr> x) {
    std::function<Expr(int64_t)> pick = [&](int64_t c) -> Expr {
      if (c + 1 == branches)
        return x[c];
      Expr isOwn = x[branches] == static_cast<double>(c);
      return select(isOwn, x[c], pick(c + 1));
    };
    return pick(0);
  });
  if (!program)
    return b.reduceAdd(columns, /*axis=*/0);
  int64_t group = program->group, rows = program->numRows();
  if (rows == group)
    return columns;
  Value isOfHead =
      b.map({b.range(0, rows, 0), b.range(0, group, 1)}, b.f32(),
            [&](ArrayRef<Expr> x) {
              return convert(program->headInGroup(x[0]) == x[1], b.f32());
            });
  return b.dot(isOfHead, columns, b.zeros(group, branches),
               /*transposeB=*/false, /*transposeA=*/true);
}

/// Adds the rows of `parts`: one after the other, or on GPUs every n-th
/// before those sums are added.
void GatedAttentionBackward::buildBiasGrad(TileBuilder &b, Value parts,
                                           Value biasGrad) const {
  int64_t width = gateWidth(), rows = 1;
  Expr first = b.constant(0);
  if (selected.isGPU) {
    // Each key head has a program for its part.
    width = branches * shape.group();
    first = b.programId(1) * width;
    auto fitting =
        static_cast<int64_t>(llvm::bit_floor<uint64_t>(16384 / width));
    rows = std::clamp<int64_t>(fitting, 64, 512);
  }
  Value channel = b.range(first, width, 1);
  Value sum = b.forLoop(
      0, shape.batch * numQueryPrograms(), rows, {b.zeros(rows, width)},
      [&](Expr first, ArrayRef<Value> sum) -> SmallVector<Value> {
        tile::Operand row = rows == 1 ? tile::Operand(first)
                                      : tile::Operand(b.range(first, rows, 0));
        return {add(b, sum[0], b.load(parts, {row, channel}))};
      })[0];
  if (rows > 1)
    sum = b.reduceAdd(sum, /*axis=*/0);
  b.store(sum, biasGrad, {channel});
}
