//===- GatedAttentionBackward.cpp - gradients of branches that share rows -===//
//
// lists  the queries that selected a block; on a GPU after counts, how many of
//        some queries selected it.
// dq     the gradient of the queries, of all branches in one sum, and that of
//        the gates; writes the gate and do . o of every row and branch. On a
//        GPU two launches: dq_slc has the rows of the selected branch, dq_dense
//        adds the other branches.
// dkdv   one launch for each branch; that of the compressed branch also adds
//        the programs' parts of the gradient of the bias and, where many
//        programs share the list of a block, those of the selected branch.
//
// What writes the gradient of queries or keys also rotates it back, where it
// lies: on a CPU at once, while it is in the cache. On a GPU, where each of
// many programs would read the table of angles, programs of the last launch do
// it.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/LaunchGroup.h"
#include "passes/Conversion/NSAToTile/GatedAttentionKernels.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"
#include "passes/Conversion/Rotation.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
struct GatedAttentionBackward : GatedAttention {
  GatedAttentionBackward(GatedAttentionBackwardOp op,
                         const KernelSchedule &schedule)
      : GatedAttention(op, schedule),
        compressed(AttentionShape(op.getQuery(), op.getCompressedKey(),
                                  op.getCompressedValue(),
                                  op.getScaleOrDefault()),
                   op.getCompressedVisibility(), schedule),
        rotatesTokens(op.getRotateTokens()) {}

  /// The name of the shape, the compressed branch included.
  std::string wholeName() const {
    return name() + "_" + compressed.visibility->getShapeName();
  }
  int64_t numQueryTiles() const { return selected.numQueryTiles(); }
  /// Tiles of queries of a program of dq: with few rows several, since each
  /// program has a part of the gradient of the bias.
  int64_t tilesPerProgram() const {
    return isSplit() && selected.queryTile * shape.group() <= 16 ? 8 : 1;
  }
  int64_t numQueryPrograms() const {
    return llvm::divideCeil(numQueryTiles(), tilesPerProgram());
  }
  int64_t gateWidth() const { return NumBranches * shape.queryHeads; }
  /// Of the branches that are not selected.
  int64_t denseFlops(int64_t width) const {
    return compressed.flops(width) + window.flops(width);
  }

  Value buildQueryGrad(TileBuilder &b, Expr tile, ArrayRef<Value> in,
                       ArrayRef<Value> out) const;
  void buildQueryGrads(TileBuilder &b, ArrayRef<Value> in,
                       ArrayRef<Value> out) const;
  void buildDenseQueryGrad(TileBuilder &b, ArrayRef<Value> args) const;
  Value sumBiasGrads(const GroupProgram &program,
                     const BranchTiles &grads) const;
  void buildBiasGrad(TileBuilder &b, Value parts, Value biasGrad) const;
  /// Rotates the gradient of the queries or keys of some tokens back.
  static void rotateTokens(TileBuilder &b, Value grad, Value table, Expr batch,
                           Expr head, Expr first, int64_t count) {
    rotateStretch(b, grad, grad, table, batch, head, first, count, /*stride=*/1,
                  /*inverse=*/true);
  }
  /// Whether those who write the gradient of tokens rotate it back at once.
  bool rotatesAtOnce() const { return rotatesTokens && !isSplit(); }

  DenseAttention compressed;
  bool rotatesTokens;
};

/// Results of the launch of dq.
enum QueryResult { QueryGrad, GatesGrad, Statistics, BiasParts };
} // namespace

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// `in` are the operands of the operation but the table, the union of the
/// selection if there is one, and the table if the queries are rotated back
/// here. If split, the gradient of the queries is that of the selected branch,
/// in fp32 and without the scale. Returns the tile's part of the gradient of
/// the bias, f32 [group, branches], or null without one.
Value GatedAttentionBackward::buildQueryGrad(TileBuilder &b, Expr tile,
                                             ArrayRef<Value> in,
                                             ArrayRef<Value> out) const {
  Value table;
  if (rotatesAtOnce()) {
    table = in.back();
    in = in.drop_back();
  }
  SelectionUnion selection = selected.takeUnion(in);
  Value indices = in[10];
  GroupProgram program = selected.makeProgram(b, tile);
  Value queries = program.loadRows(in[1], shape.keyWidth);
  Value outputGrads = program.loadRows(in[0], shape.valueWidth);
  std::array<Value, NumBranches> outputs = {in[4], in[8], in[13]};
  std::array<Value, NumBranches> lses = {in[5], in[9], in[14]};
  RowGates rowGates(gating, in[15], hasBias ? in[16] : Value());
  BranchTiles gates = rowGates.load(program), gateGrads;
  std::array<RowTerms, NumBranches> terms;
  const QueryRange &range = program.range;
  for (int64_t c = 0; c < NumBranches; ++c) {
    gateGrads[c] =
        rowDot(b, outputGrads, program.loadRows(outputs[c], shape.valueWidth));
    terms[c].gate = gates[c];
    terms[c].delta = b.map({gates[c], gateGrads[c]}, b.f32(),
                           [](ArrayRef<Expr> x) { return x[0] * x[1]; });
    terms[c].shift =
        shape.exponent().fromLse(b, program.loadStatistic(lses[c]));
    auto storeStatistic = [&](Value value, int64_t number) {
      b.store(value, out[Statistics],
              {range.batch, program.head, number, program.stored});
    };
    storeStatistic(terms[c].gate, KeyValueGradArgs::gateOf(c));
    storeStatistic(terms[c].delta, KeyValueGradArgs::deltaOf(c));
  }
  BranchTiles grads = rowGates.differentiate(b, gateGrads, gates);
  rowGates.store(program, grads, out[GatesGrad]);
  Value biasGrad = hasBias ? sumBiasGrads(program, grads) : Value();

  auto step = [&](Branch branch) {
    return [&, branch](const KeyTile &tile,
                       ArrayRef<Value> carried) -> SmallVector<Value> {
      return {addQueryGrad(b, queries, outputGrads, tile, terms[branch],
                           shape.exponent(), carried[0])};
    };
  };
  SmallVector<Value> sum = {b.zeros(program.numRows(), shape.keyWidth)};
  if (!isSplit()) {
    sum = compressed.forEachKeyTile(b, compressed.keyTile, range, in[2], in[3],
                                    sum, step(Compressed));
    sum = window.forEachKeyTile(b, window.keyTile, range, in[11], in[12], sum,
                                step(Window));
  }
  sum = selected.forEachKeyTile(program, indices, selection, in[6], in[7], sum,
                                step(Selected));
  program.storeRows(isSplit() ? sum[0] : scaled(b, sum[0], shape.scale),
                    out[QueryGrad], shape.keyWidth);
  if (table)
    rotateRows(b, out[QueryGrad], out[QueryGrad], table,
               {range.batch, range.query, program.head}, range.query,
               /*inverse=*/true);
  return biasGrad;
}

/// Program: (tiles of queries, key head, batch).
void GatedAttentionBackward::buildQueryGrads(TileBuilder &b, ArrayRef<Value> in,
                                             ArrayRef<Value> out) const {
  int64_t tiles = tilesPerProgram();
  Expr number = getQueryTileOf(b.programId(0), numQueryPrograms(), isSplit());
  SmallVector<Value> biasGrad;
  if (tiles == 1) {
    biasGrad = {buildQueryGrad(b, number, in, out)};
  } else {
    if (hasBias)
      biasGrad = {b.zeros(shape.group(), NumBranches)};
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
  Expr firstHead = b.programId(1) * shape.group();
  Value channel =
      b.map({b.range(0, shape.group(), 0), b.range(0, NumBranches, 1)}, b.i32(),
            [&](ArrayRef<Expr> x) {
              return (firstHead + x[0]) * NumBranches + x[1];
            });
  b.store(biasGrad[0], out[BiasParts],
          {batch * numQueryPrograms() + number, channel});
}

/// Program: (query tile, query head, batch). `args` are what
/// `launchDenseQueryGrad` gives it.
void GatedAttentionBackward::buildDenseQueryGrad(TileBuilder &b,
                                                 ArrayRef<Value> args) const {
  HeadProgram program(compressed, compressed.queryTile, b);
  const QueryRange &range = program.range;
  Value outputGrads = program.loadRows(args[0], shape.valueWidth);
  Value queries = program.loadRows(args[1], shape.keyWidth);
  SmallVector<Value> sum = {program.loadRows(args[9], shape.keyWidth)};
  auto addBranch = [&](const DenseAttention &dense, Branch branch, Value k,
                       Value v, Value lse) {
    KeyValueGradArgs own;
    own.lse = lse;
    own.statistics = args[8];
    own.branch = branch;
    RowTerms terms = own.loadTerms(b, shape.exponent(), range.batch,
                                   program.head, range.query);
    sum = dense.forEachKeyTile(
        b, dense.keyTile, range, k, v, sum,
        [&](const KeyTile &tile,
            ArrayRef<Value> carried) -> SmallVector<Value> {
          return {addQueryGrad(b, queries, outputGrads, tile, terms,
                               shape.exponent(), carried[0])};
        });
  };
  addBranch(compressed, Compressed, args[2], args[3], args[4]);
  addBranch(window, Window, args[5], args[6], args[7]);
  program.storeRows(scaled(b, sum[0], shape.scale), args[10], shape.keyWidth);
}

/// The sums of `grads` over the queries of the program for each head of the
/// group: of several, a product with the matrix that says which row is of which
/// head.
Value GatedAttentionBackward::sumBiasGrads(const GroupProgram &program,
                                           const BranchTiles &grads) const {
  TileBuilder &b = program.b;
  int64_t group = program.group, rows = program.numRows();
  Value branch = b.range(0, NumBranches, 1);
  Value columns = b.map(
      {grads[0], grads[1], grads[2], branch}, b.f32(), [](ArrayRef<Expr> x) {
        return select(x[3] == 0, x[0], select(x[3] == 1, x[1], x[2]));
      });
  if (rows == group)
    return columns;
  Value isOfHead =
      b.map({b.range(0, rows, 0), b.range(0, group, 1)}, b.f32(),
            [&](ArrayRef<Expr> x) {
              return convert(program.headInGroup(x[0]) == x[1], b.f32());
            });
  return b.dot(isOfHead, columns, b.zeros(group, NumBranches),
               /*transposeB=*/false, /*transposeA=*/true);
}

/// Adds the rows of `parts`: one after the other, or on wide machines every
/// so manieth before those sums are added.
void GatedAttentionBackward::buildBiasGrad(TileBuilder &b, Value parts,
                                           Value biasGrad) const {
  int64_t width = gateWidth(), rows = 1;
  Expr first = b.constant(0);
  if (isSplit()) {
    // Each key head has a program for its part.
    width = NumBranches * shape.group();
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

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

namespace {
/// The launches of one operation.
class Launcher {
public:
  Launcher(KernelCache &cache, PatternRewriter &rewriter,
           GatedAttentionBackwardOp op)
      : cache(cache), rewriter(rewriter), op(op),
        attention(op, cache.getSchedule()) {}

  /// Values in place of the results.
  SmallVector<Value> launch();

private:
  ResultRange launchQueryGrad(ArrayRef<Value> lists);
  Value launchDenseQueryGrad(ResultRange query);
  ResultRange launchCompressedParts(ResultRange query);
  LaunchPart makeCompressed(ResultRange query);
  LaunchPart makeBiasGrad(ResultRange query);
  ResultRange launchSelected(ResultRange query, ArrayRef<Value> lists);
  LaunchPart sumSelected(ValueRange grads);
  ResultRange launchWindow(ResultRange query);
  /// A kernel of dk and dv of one branch.
  KernelSpec spec(StringRef branch, int64_t tiles, int64_t flops) const {
    const AttentionShape &shape = attention.shape;
    return {("dkdv_" + branch).str(),
            attention.wholeName(),
            {tiles, shape.keyHeads, shape.batch},
            flops};
  }
  /// Types of sums of parts of these gradients.
  SmallVector<Type> partTypes(int64_t parts, ValueRange values) const {
    return llvm::map_to_vector(values, [&](Value value) -> Type {
      SmallVector<int64_t> shape = {parts};
      llvm::append_range(shape, getShape(value));
      return RankedTensorType::get(shape, rewriter.getF32Type());
    });
  }
  /// Adds the parts of dk and dv of some rows of a program's head and batch.
  void sumParts(TileBuilder &b, ArrayRef<Value> parts, ArrayRef<Value> out,
                Value row, tile::Operand firstPart = 0) const {
    Expr head = b.programId(1), batch = b.programId(2);
    addParts(b, parts[0], out[0], batch, row, head, attention.shape.scale,
             firstPart);
    addParts(b, parts[1], out[1], batch, row, head, 1, firstPart);
  }
  int64_t queryWidth() const {
    return 2 * attention.shape.keyWidth + attention.shape.valueWidth;
  }
  int64_t keyValueWidth() const {
    return 2 * (attention.shape.keyWidth + attention.shape.valueWidth);
  }

  KernelCache &cache;
  PatternRewriter &rewriter;
  GatedAttentionBackwardOp op;
  GatedAttentionBackward attention;
};
} // namespace

ResultRange Launcher::launchQueryGrad(ArrayRef<Value> lists) {
  const AttentionShape &shape = attention.shape;
  bool isSplit = attention.isSplit();
  KernelSpec spec = {
      isSplit ? "dq_slc" : "dq",
      attention.wholeName(),
      {attention.numQueryPrograms(), shape.keyHeads, shape.batch},
      attention.selected.flops(queryWidth())};
  spec.indices = op.getIndices();
  spec.selectBlock = op.getSelectedVisibility().getIndexBlock();
  if (!isSplit)
    spec.flops += attention.denseFlops(queryWidth());
  Type f32 = rewriter.getF32Type();
  RankedTensorType query = op.getQuery().getType();
  SmallVector<Type> types = {
      isSplit ? query.clone(f32) : query, op.getGates().getType(),
      RankedTensorType::get(
          {shape.batch, shape.queryHeads, 2 * NumBranches, shape.sequence},
          f32)};
  if (attention.hasBias)
    types.push_back(RankedTensorType::get(
        {shape.batch * attention.numQueryPrograms(), attention.gateWidth()},
        f32));
  // All operands but the table, which is last.
  SmallVector<Value> operands(op->getOperands());
  if (op.getTable())
    operands.pop_back();
  llvm::append_range(operands, lists.drop_front(2));
  if (attention.rotatesAtOnce())
    operands.push_back(op.getTable());
  return cache.launch(rewriter, op, spec, operands, types,
                      [&](TileBuilder &b, ArrayRef<Value> args) {
                        attention.buildQueryGrads(
                            b, args.take_front(operands.size()),
                            args.drop_front(operands.size()));
                      });
}

/// The gradient of the queries: what `query` has of it, and the branches whose
/// rows are those of one head.
Value Launcher::launchDenseQueryGrad(ResultRange query) {
  KernelSpec spec = {
      "dq_dense", attention.wholeName(),
      attention.compressed.headGrid(attention.compressed.queryTile),
      attention.denseFlops(queryWidth())};
  return cache.launch(rewriter, op, spec,
                      {op.getOutputGrad(), op.getQuery(), op.getCompressedKey(),
                       op.getCompressedValue(), op.getCompressedLse(),
                       op.getWindowKey(), op.getWindowValue(),
                       op.getWindowLse(), query[Statistics], query[QueryGrad]},
                      {op.getQuery().getType()},
                      [&](TileBuilder &b, ArrayRef<Value> args) {
                        attention.buildDenseQueryGrad(b, args);
                      })[0];
}

ResultRange Launcher::launchWindow(ResultRange query) {
  const DenseAttention &window = attention.window;
  SmallVector<Value> inputs = {op.getOutputGrad(), op.getQuery(),
                               op.getWindowKey(),  op.getWindowValue(),
                               op.getWindowLse(),  query[Statistics]};
  if (attention.rotatesAtOnce())
    inputs.push_back(op.getTable());
  return cache.launch(
      rewriter, op,
      spec("win", window.numKeyTiles(window.ownKeyTile),
           window.flops(keyValueWidth())),
      inputs, {op.getWindowKey().getType(), op.getWindowValue().getType()},
      [&](TileBuilder &b, ArrayRef<Value> args) {
        ArrayRef<Value> out = args.take_back(2);
        window.buildKeyValueGrad(b, b.programId(0),
                                 {args[0], args[1], args[2], args[3], args[4],
                                  args[5], Window, out[0], out[1]});
        if (attention.rotatesAtOnce())
          attention.rotateTokens(
              b, out[0], args[6], b.programId(2), b.programId(1),
              b.programId(0) * window.ownKeyTile, window.ownKeyTile);
      });
}

/// dk and dv of the selected branch, or sums of parts of them.
ResultRange Launcher::launchSelected(ResultRange query, ArrayRef<Value> lists) {
  const SelectedAttention &selected = attention.selected;
  int64_t parts = selected.gradParts;
  SmallVector<Value> operands = {op.getSelectedKey(), op.getSelectedValue()};
  SmallVector<Type> types = {operands[0].getType(), operands[1].getType()};
  KernelSpec whole = spec("slc", 0, selected.flops(keyValueWidth()));
  whole.grid = selected.gradGrid(parts);
  SmallVector<Value> inputs = {
      op.getOutputGrad(),  op.getQuery(),     operands[0], operands[1],
      op.getSelectedLse(), query[Statistics], lists[0],    lists[1]};
  bool rotates = parts == 1 && attention.rotatesAtOnce();
  if (rotates)
    inputs.push_back(op.getTable());
  return cache.launch(
      rewriter, op, whole, inputs,
      parts == 1 ? types : partTypes(parts, operands),
      [&](TileBuilder &b, ArrayRef<Value> args) {
        ArrayRef<Value> out = args.take_back(2);
        SelectedAttention::GradProgram program =
            selected.getGradProgram(b, parts);
        selected.buildKeyValueGrad(b, program,
                                   {args[0], args[1], args[2], args[3], args[4],
                                    args[5], Selected, out[0], out[1]},
                                   args[6], args[7], parts);
        if (rotates)
          attention.rotateTokens(
              b, out[0], args[8], program.batch, program.keyHead,
              program.tile * selected.keyTile, selected.keyTile);
      });
}

/// Adds what the programs of `launchSelected` have.
LaunchPart Launcher::sumSelected(ValueRange grads) {
  const SelectedAttention &selected = attention.selected;
  SmallVector<Value> inputs = llvm::to_vector_of<Value>(grads);
  if (attention.rotatesTokens)
    inputs.push_back(op.getTable());
  return {spec("slc_sum", selected.numKeyTiles(), 0),
          inputs,
          {op.getSelectedKey().getType(), op.getSelectedValue().getType()},
          [this](TileBuilder &b, ArrayRef<Value> args) {
            const SelectedAttention &selected = attention.selected;
            ArrayRef<Value> out = args.take_back(2);
            Expr first = b.programId(0) * selected.keyTile;
            sumParts(b, args, out, b.range(first, selected.keyTile, 0),
                     selected.firstPart(first / selected.selectBlock));
            if (attention.rotatesTokens)
              attention.rotateTokens(b, out[0], args[2], b.programId(2),
                                     b.programId(1), first, selected.keyTile);
          }};
}

/// Sums of parts of dk and dv, a head of the group each.
ResultRange Launcher::launchCompressedParts(ResultRange query) {
  const DenseAttention &compressed = attention.compressed;
  int64_t parts = compressed.numGradParts();
  return cache.launch(
      rewriter, op,
      spec("cmp_parts", parts * compressed.numKeyTiles(compressed.ownKeyTile),
           compressed.flops(keyValueWidth())),
      {op.getOutputGrad(), op.getQuery(), op.getCompressedKey(),
       op.getCompressedValue(), op.getCompressedLse(), query[Statistics]},
      partTypes(parts, {op.getCompressedKey(), op.getCompressedValue()}),
      [&](TileBuilder &b, ArrayRef<Value> args) {
        Expr program = b.programId(0);
        compressed.buildKeyValueGrad(b, program / parts,
                                     {args[0], args[1], args[2], args[3],
                                      args[4], args[5], Compressed, args[6],
                                      args[7]},
                                     program % parts);
      });
}

/// dk and dv of the compressed branch, from parts where there are any.
LaunchPart Launcher::makeCompressed(ResultRange query) {
  const DenseAttention &compressed = attention.compressed;
  bool hasParts = compressed.numGradParts() > 1;
  int64_t keys = hasParts ? compressed.sumTile : compressed.ownKeyTile;
  SmallVector<Value> inputs = {op.getOutputGrad(),    op.getQuery(),
                               op.getCompressedKey(), op.getCompressedValue(),
                               op.getCompressedLse(), query[Statistics]};
  if (hasParts)
    inputs = llvm::to_vector_of<Value>(launchCompressedParts(query));
  bool isRotated = bool(op.getTable());
  if (isRotated)
    inputs.push_back(op.getTable());
  auto build = [this, hasParts, isRotated, keys](TileBuilder &b,
                                                 ArrayRef<Value> args) {
    const DenseAttention &compressed = attention.compressed;
    ArrayRef<Value> out = args.take_back(2);
    Expr number = b.programId(0), first = number * keys;
    if (hasParts) {
      sumParts(b, args, out, b.range(first, keys, 0));
    } else {
      compressed.buildKeyValueGrad(b, number,
                                   {args[0], args[1], args[2], args[3], args[4],
                                    args[5], Compressed, out[0], out[1]});
    }
    if (isRotated)
      rotateStretch(b, out[0], out[0], args[args.size() - 3], b.programId(2),
                    b.programId(1), first, keys,
                    compressed.visibility->getKeyStride(),
                    /*inverse=*/true);
  };
  return {spec("cmp", compressed.numKeyTiles(keys),
               hasParts ? 0 : compressed.flops(keyValueWidth())),
          inputs,
          {op.getCompressedKey().getType(), op.getCompressedValue().getType()},
          build};
}

/// Of all heads, or on wide machines a program for each key head.
LaunchPart Launcher::makeBiasGrad(ResultRange query) {
  KernelSpec own = spec("dbias", 1, 0);
  own.grid = {1, attention.isSplit() ? attention.shape.keyHeads : 1, 1};
  return {own,
          {query[BiasParts]},
          {op.getBias().getType()},
          [this](TileBuilder &b, ArrayRef<Value> args) {
            attention.buildBiasGrad(b, args[0], args[1]);
          }};
}

SmallVector<Value> Launcher::launch() {
  SmallVector<Value> lists =
      attention.selected.launchLists(cache, rewriter, op, op.getIndices());
  ResultRange query = launchQueryGrad(lists);
  Value queryGrad = attention.isSplit() ? launchDenseQueryGrad(query)
                                        : Value(query[QueryGrad]);
  SmallVector<Value> windowGrads =
      llvm::to_vector_of<Value>(launchWindow(query));
  SmallVector<Value> selected =
      llvm::to_vector_of<Value>(launchSelected(query, lists));

  // What is left are sums, and the gradient that needs no sum.
  std::vector<LaunchPart> last;
  if (attention.hasBias)
    last.push_back(makeBiasGrad(query));
  size_t compressed = last.size();
  last.push_back(makeCompressed(query));
  bool hasParts = attention.selected.gradParts > 1;
  if (hasParts)
    last.push_back(sumSelected(selected));
  // What these programs rotate back.
  SmallVector<Value *> rotated;
  if (attention.rotatesTokens && attention.isSplit()) {
    rotated = {&queryGrad, &windowGrads[0]};
    if (!hasParts)
      rotated.push_back(&selected[0]);
  }
  for (Value *grad : rotated)
    last.push_back(rotateTensor(*grad, op.getTable(), /*inverse=*/true));
  auto results = launchTogether(cache, rewriter, op, "dkdv_cmp", last);
  if (hasParts)
    selected = results[compressed + 1];
  for (auto [grad, result] :
       llvm::zip(rotated, ArrayRef(results).take_back(rotated.size())))
    *grad = result[0];
  SmallVector<Value> grads = {queryGrad,
                              results[compressed][0],
                              results[compressed][1],
                              selected[0],
                              selected[1],
                              windowGrads[0],
                              windowGrads[1],
                              query[GatesGrad]};
  if (attention.hasBias)
    grads.push_back(results.front()[0]);
  return grads;
}

namespace {
struct ConvertGatedAttentionBackward : KernelPattern<GatedAttentionBackwardOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(GatedAttentionBackwardOp op,
                                PatternRewriter &rewriter) const override {
    rewriter.replaceOp(op, Launcher(cache, rewriter, op).launch());
    return success();
  }
};
} // namespace

void nsa::populateGatedAttentionBackwardPatterns(RewritePatternSet &patterns,
                                                 KernelCache &cache) {
  patterns.add<ConvertGatedAttentionBackward>(patterns.getContext(), cache);
}
