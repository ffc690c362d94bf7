//===- QueryGrad.cpp - gradients of queries and of gates ------------------===//

#include "passes/Kernels/NSA/QueryGrad.h"
#include "passes/Kernels/Rotation.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

Extent QueryGradKernel::numTiles() const {
  if (const DenseAttention *range = attention.getRange())
    return range->numQueryTiles(range->queryTile);
  return attention.selected->numQueryTiles();
}

int64_t QueryGradKernel::tilesPerProgram() const {
  if (!attention.isGated || !attention.isParallel || !attention.hasLists())
    return 1;
  bool isSmall = attention.selected->queryTile * attention.shape.group() <= 16;
  return isSmall ? 8 : 1;
}

KernelSpec QueryGradKernel::spec() const {
  const AttentionShape &shape = attention.shape;
  const DenseAttention *range = attention.getRange();
  KernelSpec spec = {
      attention.hasMasks() ? "dq_masks"
      : gathers            ? "dq_rows"
      : isSplit()          ? "dq_selected"
                           : "dq",
      attention.name(),
      {numPrograms(), range ? shape.queryHeads : shape.keyHeads, shape.batch}};
  if (attention.selected && !gathers)
    spec.flops = attention.selected->flops(flopsWidth());
  if (!isSplit())
    spec.flops += attention.denseFlops(flopsWidth());
  spec.longestFirst = range && range->isGraded();
  spec.lastRowsFirst = shape.isPlaced;
  if (range)
    spec.minBlocks = range->getQueryGradBlocks(attention.isGated);
  return spec;
}

KernelSpec QueryGradKernel::denseSpec() const {
  SmallVector<int64_t> branches = attention.getDense();
  const DenseAttention &first = *attention.ranges[branches.front()];
  KernelSpec spec = {"dq_dense", attention.name(),
                     first.headGrid(first.queryTile),
                     attention.denseFlops(flopsWidth())};
  spec.longestFirst = llvm::any_of(branches, [&](int64_t branch) {
    return attention.ranges[branch]->isGraded();
  });
  spec.lastRowsFirst = attention.shape.isPlaced;
  return spec;
}

/// The sum with the gradient of the program's queries by a branch.
Value QueryGradKernel::addBranch(const RowProgram &program, int64_t branch,
                                 const AttentionOperands &in, Value queries,
                                 Value outputGrads, const RowTerms &terms,
                                 Value sum) const {
  auto addTile = [&](const KeyTile &tile,
                     ArrayRef<Value> carried) -> SmallVector<Value> {
    return {addQueryGrad(program.b, queries, outputGrads, tile, terms,
                         attention.shape.exponent(), carried.front())};
  };
  return attention.forEachKeyTile(program, branch, in, sum, addTile).front();
}

/// Returns the tile's part of the gradient of the bias, f32 [heads, branches],
/// or null without one.
Value QueryGradKernel::buildTile(TileBuilder &b, Expr tile,
                                 const AttentionOperands &in,
                                 const QueryGradResults &out) const {
  const AttentionShape &shape = attention.shape;
  Exponent exponent = shape.exponent();
  const DenseAttention *range = attention.getRange();
  RowProgram program =
      range ? RowProgram(HeadProgram(*range, range->queryTile, b))
            : RowProgram(attention.selected->makeProgram(b, tile));
  program.range.setSequences(b, shape, in.at, in.start);
  program.range.isGradient = true;
  Value queries = program.loadRows(in.query, shape.columns(b, shape.keyWidth));
  Value valueCols = shape.columns(b, shape.valueWidth);
  Value outputGrads = program.loadRows(in.outputGrad, valueCols);

  // What the rows of each branch need, and the gates.
  RowGates rowGates = attention.getGates(in);
  BranchTiles gates, gateGrads;
  if (attention.isGated)
    gates = rowGates.load(program);
  SmallVector<RowTerms> terms(attention.size());
  for (int64_t c = 0; c < attention.size(); ++c) {
    const AttentionOperands::Branch &branch = in.branches[c];
    auto dot = [&] {
      return program.dotRows(shape, outputGrads, in.outputGrad, branch.output);
    };
    if (attention.isGated)
      gateGrads.push_back(dot());
    Value lse = program.loadStatistic(branch.lse);
    terms[c].shift = exponent.fromLse(b, lse);
    terms[c].delta = attention.isGated ? gateGrads[c] : dot();
    if (attention.foldsGates()) {
      terms[c].shift = exponent.withFactor(b, terms[c].shift, gates[c]);
    } else if (attention.isGated) {
      terms[c].gate = gates[c];
      terms[c].delta = b.map({gates[c], gateGrads[c]}, b.f32(),
                             [](ArrayRef<Expr> x) { return x[0] * x[1]; });
    }
    shape.buildOnce(b, [&] {
      statistics.store(program, c, terms[c], lse, out.statistics);
    });
  }
  Value biasGrad;
  if (attention.isGated) {
    BranchTiles grads = rowGates.differentiate(b, gateGrads, gates);
    shape.buildOnce(b, [&] { rowGates.store(program, grads, out.gatesGrad); });
    if (attention.hasBias)
      biasGrad = RowGates::sumOverQueries(program, grads);
  }
  if (gathers)
    return biasGrad;
  // The elementwise use above keeps dO in registers, but wgmma should read a
  // loop-invariant operand from shared memory: load it again.
  if (range ? range->hasWarpgroups : attention.selected->multipliesUnions())
    outputGrads = program.loadRows(in.outputGrad, valueCols);

  Value sum = b.zeros(program.numRows(), shape.ownWidth(shape.keyWidth));
  SmallVector<int64_t> branches;
  if (!isSplit())
    branches = attention.getDense();
  if (attention.selected)
    branches.push_back(attention.number);
  for (int64_t branch : branches)
    sum = addBranch(program, branch, in, queries, outputGrads, terms[branch],
                    sum);
  program.storeRows(isSplit() ? sum : scaled(b, sum, shape.scale),
                    out.queryGrad, shape.ownColumns(b, shape.keyWidth));
  if (in.table)
    rotateRows(b, out.queryGrad, out.queryGrad, in.table,
               {program.range.batch, program.range.query, program.head},
               getPackedPositions(b, program.range.query, in.start,
                                  program.range.batch, shape.sequence),
               /*inverse=*/true);
  return biasGrad;
}

void QueryGradKernel::build(TileBuilder &b, const AttentionOperands &in,
                            const QueryGradResults &out) const {
  const AttentionShape &shape = attention.shape;
  int64_t tiles = tilesPerProgram(), branches = attention.size();
  Expr number =
      getQueryTileOf(b.programId(0), numPrograms(), attention.isParallel);
  SmallVector<Value> biasGrad;
  if (tiles == 1) {
    biasGrad = {buildTile(b, number, in, out)};
  } else {
    if (attention.hasBias)
      biasGrad = {b.zeros(shape.group(), branches)};
    biasGrad =
        b.forLoop(number * tiles, number * tiles + tiles, 1, biasGrad,
                  [&](Expr tile, ArrayRef<Value> sum) -> SmallVector<Value> {
                    Value part = buildTile(b, tile, in, out);
                    if (!attention.hasBias)
                      return {};
                    return {add(b, sum[0], part)};
                  });
  }
  if (!attention.hasBias)
    return;
  Expr batch = b.programId(2);
  int64_t heads = attention.hasLists() ? shape.group() : 1;
  Expr firstHead = b.programId(1) * heads;
  Value channel =
      b.map({b.range(0, heads, 0), b.range(0, branches, 1)}, b.i32(),
            [&](ArrayRef<Expr> x) {
              return (firstHead + x[0]) * static_cast<double>(branches) + x[1];
            });
  shape.buildOnce(b, [&] {
    b.store(biasGrad[0], out.biasParts,
            {batch * numPrograms() + number, channel});
  });
}

void QueryGradKernel::buildDense(TileBuilder &b, const AttentionOperands &in,
                                 Value queryGrad) const {
  const AttentionShape &shape = attention.shape;
  SmallVector<int64_t> branches = attention.getDense();
  const DenseAttention &first = *attention.ranges[branches.front()];
  HeadProgram program(first, first.queryTile, b);
  program.range.isGradient = true;
  program.range.setSequences(b, shape, in.at, in.start);
  Value outputGrads =
      program.loadRows(in.outputGrad, shape.columns(b, shape.valueWidth));
  Value queries = program.loadRows(in.query, shape.columns(b, shape.keyWidth));
  Value ownColumns = shape.ownColumns(b, shape.keyWidth);
  Value sum = program.loadRows(in.queryGrad, ownColumns);
  for (int64_t branch : branches) {
    RowTerms terms = statistics.load(
        b, shape.exponent(), branch, in.statistics, in.branches[branch].lse,
        program.range.batch, program.head, program.range.query);
    sum = addBranch(program, branch, in, queries, outputGrads, terms, sum);
  }
  program.storeRows(scaled(b, sum, shape.scale), queryGrad, ownColumns);
}

void QueryGradKernel::buildBiasGrad(TileBuilder &b, Value parts,
                                    Value biasGrad) const {
  int64_t width = gateWidth(), rows = 1;
  Expr first = b.constant(0);
  if (attention.isParallel) {
    // Each key head has a program for its part.
    width = attention.size() * attention.shape.group();
    first = b.programId(1) * width;
    auto fitting =
        static_cast<int64_t>(llvm::bit_floor<uint64_t>(16384 / width));
    rows = std::clamp<int64_t>(fitting, 64, 512);
  }
  Value channel = b.range(first, width, 1);
  Value sum = b.forLoop(
      0, attention.shape.batch * numPrograms(), rows, {b.zeros(rows, width)},
      [&](Expr first, ArrayRef<Value> sum) -> SmallVector<Value> {
        tile::Operand row = rows == 1 ? tile::Operand(first)
                                      : tile::Operand(b.range(first, rows, 0));
        return {add(b, sum[0], b.load(parts, {row, channel}))};
      })[0];
  if (rows > 1)
    sum = b.reduceAdd(sum, /*axis=*/0);
  b.store(sum, biasGrad, {channel});
}
