//===- GatedAttentionLaunches.cpp - launches for gradients of a sum -------===//
//
// lists  the queries that selected a block; on a GPU after counts, how many of
//        some queries selected it.
// dq     the gradient of the queries, of all branches in one sum, and that of
//        the gates; writes the gate and do . o of every row and branch. On a
//        GPU two launches: dq_selected has the rows of the selected branch,
//        dq_dense adds the other branches; one, dq_masks, where the selected
//        branch has masks and the rows of the others. Where queries are
//        gathered for blocks, dq_rows has all that belongs to rows, and the
//        gradient comes from dq_parts and their sums.
// dkdv   one launch for each branch to tokens; a last one for branches to
//        blocks also adds the programs' parts of the gradient of the bias and,
//        where many programs share the list of a block, those of the selected
//        branch.
//
// The gradient of queries or keys is rotated back in place: on a CPU by the
// program that writes it, while it is in the cache. On a GPU by programs of the
// last launch, since else each of many programs would read the table of angles.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/LaunchGroup.h"
#include "passes/Kernels/NSA/GatedAttentionBackward.h"
#include "passes/Kernels/NSA/GatheredAttention.h"
#include "passes/Kernels/NSA/NSAToTile.h"

#include <deque>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// The launches of one operation.
class Launcher {
public:
  Launcher(KernelCache &cache, PatternRewriter &rewriter, FusedOp op)
      : cache(cache), rewriter(rewriter), op(op),
        grads(*FusedGradients::get(op)),
        attention(grads.branches, grads.gate, grads.turnsTokens,
                  cache.getSchedule()),
        table(grads.table ? op.getOutside(grads.table) : Value()),
        start(grads.start ? op.getOutside(grads.start) : Value()),
        indices(attention.selected.launchNumbers(
            cache, rewriter, op,
            op.getOutside(grads.branches[attention.branch].getIndices()),
            start)),
        ends(start ? launchSequenceEnds(cache, rewriter, op, start) : Value()) {
  }

  /// Values in place of the results.
  SmallVector<Value> launch();

private:
  using Dense = GatedAttention::Dense;

  /// The kernels, as the one with a suffix is cut.
  struct Cut {
    ChosenSchedule schedule;
    GatedAttentionBackward kernels;

    /// The branch as it is cut.
    const DenseAttention &of(const Dense &branch) const {
      if (branch.attention.selectBlock != 0)
        return kernels.masked.attention;
      return llvm::find_if(
                 kernels.dense,
                 [&](const Dense &own) { return own.branch == branch.branch; })
          ->attention;
    }
  };
  const Cut &cut(StringRef suffix, ScheduledKernel kernel);

  SmallVector<Value> launchQueryGrad(ArrayRef<Value> lists);
  Value launchGatheredQueryGrad(Value statistics, Type type,
                                ArrayRef<Value> lists);
  SmallVector<Value> getQueryInputs();
  Value launchDenseQueryGrad(ValueRange query);
  ResultRange launchBlockParts(const Dense &blocks, const Cut &made,
                               ValueRange query);
  LaunchPart makeBlocks(const Dense &blocks, ValueRange query);
  LaunchPart makeBiasGrad(ValueRange query);
  ResultRange launchSelected(ValueRange query, ArrayRef<Value> lists);
  LaunchPart sumSelected(ValueRange parts);
  ResultRange launchTokens(const Dense &tokens, ValueRange query);
  SmallVector<Value> getResults(ValueRange query, Value queryGrad,
                                Value biasGrad,
                                ArrayRef<SmallVector<Value>> keyValueGrads);

  Value outside(Value inside) { return op.getOutside(inside); }
  /// What the gates come from, inside.
  Value getGates() {
    return grads.gate ? Value(grads.gate.getLogits())
                      : Value(grads.combine.getGates());
  }
  Value launchMasks() {
    return SelectionMasks::launch(cache, rewriter, op, indices,
                                  attention.selected.selectBlock);
  }
  /// What a kernel of dk and dv of a branch reads: KeyValueGradArgs in order,
  /// and where packed sequences begin and end.
  SmallVector<Value> getInputs(int64_t branch, ValueRange query) {
    AttentionBackwardOp own = grads.branches[branch];
    SmallVector<Value> inputs = {outside(grads.combine.getOutputGrad()),
                                 outside(own.getQuery()), outside(own.getKey()),
                                 outside(own.getValue())};
    if (!attention.foldsGates())
      inputs.push_back(outside(own.getLse()));
    inputs.push_back(query[Statistics]);
    if (start)
      inputs.append({start, ends});
    return inputs;
  }
  size_t numRows() const { return attention.foldsGates() ? 5 : 6; }
  size_t numInputs() const { return numRows() + (start ? 2 : 0); }
  KeyValueGradArgs getArgs(int64_t branch, ArrayRef<Value> args,
                           ArrayRef<Value> out) const {
    Value lse = attention.foldsGates() ? Value() : args[4];
    return {args[0],
            args[1],
            args[2],
            args[3],
            lse,
            args[numRows() - 1],
            attention.statistics,
            branch,
            out[0],
            out[1],
            /*masks=*/Value(),
            getStart(args),
            start ? args[numRows() + 1] : Value()};
  }
  /// The start among the arguments of a kernel of dk and dv.
  Value getStart(ArrayRef<Value> args) const {
    return start ? args[numRows()] : Value();
  }
  SmallVector<Type> getTypes(int64_t branch) {
    AttentionBackwardOp own = grads.branches[branch];
    return {own.getKey().getType(), own.getValue().getType()};
  }
  /// Types of sums of parts of the gradients of a branch.
  SmallVector<Type> getPartTypes(int64_t parts, int64_t branch) {
    return llvm::map_to_vector(getTypes(branch), [&](Type type) -> Type {
      SmallVector<Extent> shape = {parts};
      llvm::append_range(shape,
                         ExtentTable::of(op).getShape(cast<ShapedType>(type)));
      return cache.getTensorType(shape, rewriter.getF32Type());
    });
  }
  std::string getKind(int64_t branch) {
    return grads.branches[branch].getVisibility().getKind().str();
  }
  /// A kernel of dk and dv of a branch.
  KernelSpec spec(int64_t branch, StringRef suffix, const Extent &tiles,
                  int64_t flops) {
    const AttentionShape &shape = attention.shape;
    KernelSpec own = {"dkdv_" + getKind(branch) + suffix.str(),
                      attention.name(),
                      {tiles, shape.keyHeads, shape.batch},
                      flops};
    own.key = std::to_string(branch);
    own.takesExtents = takesExtents();
    return own;
  }
  /// Adds the parts of dk and dv of some rows of a program's head and batch.
  void sumParts(TileBuilder &b, ArrayRef<Value> parts, ArrayRef<Value> out,
                Value row, tile::Operand firstPart = 0) const {
    Expr head = b.programId(1), batch = b.programId(2);
    addParts(b, parts[0], out[0], batch, row, head, attention.shape.scale,
             firstPart);
    addParts(b, parts[1], out[1], batch, row, head, 1, firstPart);
  }
  bool takesExtents() const {
    return !start && hasAnglesOfAll(table, attention.shape.sequence);
  }
  int64_t queryWidth() const {
    return 2 * attention.shape.keyWidth + attention.shape.valueWidth;
  }
  int64_t keyValueWidth() const {
    return 2 * (attention.shape.keyWidth + attention.shape.valueWidth);
  }

  KernelCache &cache;
  PatternRewriter &rewriter;
  FusedOp op;
  FusedGradients grads;
  /// As the machine cuts it: what is the same for all schedules.
  GatedAttentionBackward attention;
  /// Of kernels that are built last, too.
  std::deque<Cut> cuts;
  /// How dq is cut.
  const Cut *ofQuery = nullptr;
  /// The table and where packed sequences begin, null without; the numbers of
  /// the blocks that are selected, and where packed sequences end.
  Value table, start, indices, ends;
};
} // namespace

const Launcher::Cut &Launcher::cut(StringRef suffix, ScheduledKernel kernel) {
  ChosenSchedule own = attention.shape.choose(cache, op, suffix, kernel);
  Cut &made = cuts.emplace_back(Cut{
      own, GatedAttentionBackward(grads.branches, grads.gate, grads.turnsTokens,
                                  own.applyTo(cache.getSchedule()))});
  made.kernels.forms = attention.forms;
  made.kernels.shareColumns(own.columnParts);
  return made;
}

/// QueryResults; where queries are gathered, one launch makes all but their
/// gradient.
SmallVector<Value> Launcher::launchQueryGrad(ArrayRef<Value> lists) {
  const AttentionShape &shape = attention.shape;
  bool isSplit = attention.isSplit(), gathers = attention.gathersQueries();
  bool hasMasks = attention.masksQueries();
  StringRef suffix = hasMasks  ? "dq_masks"
                     : gathers ? "dq_rows"
                     : isSplit ? "dq_selected"
                               : "dq";
  ofQuery = &cut(suffix, hasMasks ? ScheduledKernel::MaskedQueryGrad
                                  : ScheduledKernel::ListQueryGrad);
  const GatedAttentionBackward &own = ofQuery->kernels;
  KernelSpec spec = {suffix.str(),
                     attention.name(),
                     {own.numQueryPrograms(),
                      hasMasks ? shape.queryHeads : shape.keyHeads,
                      shape.batch},
                     gathers ? 0 : attention.selected.flops(queryWidth())};
  AttentionBackwardOp selected = grads.branches[attention.branch];
  if (!hasMasks) {
    spec.indices = indices;
    spec.selectBlock = selected.getVisibility().getIndexBlock();
  }
  spec.takesExtents = takesExtents();
  spec.schedule = ofQuery->schedule;
  if (hasMasks) {
    spec.minBlocks = own.masked.attention.getQueryGradBlocks();
    spec.longestFirst = true;
  }
  if (!isSplit)
    spec.flops += attention.denseFlops(queryWidth());

  SmallVector<Value> operands = getQueryInputs();
  Type f32 = rewriter.getF32Type();
  RankedTensorType query = selected.getQuery().getType();
  SmallVector<Type> types = {isSplit ? query.clone(f32) : query,
                             getGates().getType(),
                             attention.statistics.getType(cache)};
  if (attention.hasBias)
    types.push_back(cache.getTensorType(
        {shape.batch * own.numQueryPrograms(), attention.gateWidth()}, f32));
  Type queryType = types.front();
  if (gathers)
    types.erase(types.begin());
  auto made = llvm::to_vector_of<Value>(cache.launch(
      rewriter, op, spec, operands, types,
      [&](TileBuilder &b, ArrayRef<Value> args) {
        SmallVector<Value> out(args.drop_front(operands.size()));
        if (gathers)
          out.insert(out.begin(), Value());
        own.buildQueryGrads(b, args.take_front(operands.size()), out);
      }));
  if (gathers) {
    made.insert(made.begin(), Value());
    made[QueryGrad] =
        launchGatheredQueryGrad(made[Statistics], queryType, lists);
  }
  return made;
}

Value Launcher::launchGatheredQueryGrad(Value statistics, Type type,
                                        ArrayRef<Value> lists) {
  AttentionBackwardOp selected = grads.branches[attention.branch];
  return GatheredAttention::launchQueryGrad(
      op, selected,
      {outside(grads.combine.getOutputGrad()), outside(selected.getQuery()),
       outside(selected.getKey()), outside(selected.getValue()),
       attention.foldsGates() ? Value() : outside(selected.getLse()),
       statistics, attention.statistics, attention.branch},
      indices, type, attention.isSplit() ? 1 : attention.shape.scale, lists,
      cache, rewriter);
}

SmallVector<Value> Launcher::getQueryInputs() {
  AttentionBackwardOp selected = grads.branches[attention.branch];
  SmallVector<Value> operands = {outside(grads.combine.getOutputGrad()),
                                 outside(selected.getQuery())};
  for (AttentionBackwardOp branch : grads.branches) {
    operands.append({outside(branch.getKey()), outside(branch.getValue()),
                     outside(branch.getOutput()), outside(branch.getLse())});
    if (hasIndices(branch))
      operands.push_back(attention.masksQueries() ? launchMasks() : indices);
  }
  operands.push_back(outside(getGates()));
  if (attention.hasBias)
    operands.push_back(outside(grads.gate.getBias()));
  if (start)
    operands.push_back(start);
  if (attention.listsQueries())
    llvm::append_range(operands, ofQuery->kernels.selected.launchUnion(
                                     cache, rewriter, op, indices, start));
  if (attention.rotatesAtOnce())
    operands.push_back(table);
  return operands;
}

/// The gradient of the queries: what `query` has of it, and the branches whose
/// rows are those of one head.
Value Launcher::launchDenseQueryGrad(ValueRange query) {
  const Cut &made = cut("dq_dense", ScheduledKernel::QueryGrad);
  const DenseAttention &first = made.kernels.dense.front().attention;
  KernelSpec spec = {"dq_dense", attention.name(),
                     first.headGrid(first.queryTile),
                     attention.denseFlops(queryWidth())};
  spec.takesExtents = takesExtents();
  spec.schedule = made.schedule;
  spec.longestFirst = llvm::any_of(attention.dense, [](const Dense &one) {
    return one.attention.isGraded();
  });
  AttentionBackwardOp selected = grads.branches[attention.branch];
  SmallVector<Value> inputs = {outside(grads.combine.getOutputGrad()),
                               outside(selected.getQuery())};
  for (const Dense &one : attention.dense) {
    AttentionBackwardOp branch = grads.branches[one.branch];
    inputs.append({outside(branch.getKey()), outside(branch.getValue())});
    if (!attention.foldsGates())
      inputs.push_back(outside(branch.getLse()));
  }
  if (start)
    inputs.push_back(start);
  inputs.append({query[Statistics], query[QueryGrad]});
  return cache.launch(rewriter, op, spec, inputs,
                      {selected.getQuery().getType()},
                      [&](TileBuilder &b, ArrayRef<Value> args) {
                        made.kernels.buildDenseQueryGrad(b, args);
                      })[0];
}

/// dk and dv of a branch to ranges of tokens, or of the selected one by masks.
ResultRange Launcher::launchTokens(const Dense &tokens, ValueRange query) {
  bool hasMasks = tokens.attention.selectBlock != 0;
  StringRef suffix = hasMasks ? "_masks" : "";
  const Cut &made = cut("dkdv_" + getKind(tokens.branch) + suffix.str(),
                        hasMasks ? ScheduledKernel::MaskedKeyValueGrad
                                 : ScheduledKernel::KeyValueGrad);
  const DenseAttention &own = made.of(tokens);
  SmallVector<Value> inputs = getInputs(tokens.branch, query);
  if (hasMasks)
    inputs.push_back(launchMasks());
  if (attention.rotatesAtOnce())
    inputs.push_back(table);
  KernelSpec whole =
      spec(tokens.branch, suffix, own.numKeyTiles(own.ownKeyTile),
           hasMasks ? attention.selected.flops(keyValueWidth())
                    : own.flops(keyValueWidth()));
  whole.longestFirst = own.isGraded();
  whole.schedule = made.schedule;
  return cache.launch(
      rewriter, op, whole, inputs, getTypes(tokens.branch),
      [&](TileBuilder &b, ArrayRef<Value> args) {
        ArrayRef<Value> out = args.take_back(2);
        KeyValueGradArgs values = getArgs(tokens.branch, args, out);
        if (hasMasks)
          values.masks = args[numInputs()];
        own.buildKeyValueGrad(b, b.programId(0), values);
        if (attention.rotatesAtOnce())
          attention.rotateTokens(
              b, out[0], args[numInputs()], values.start, b.programId(2),
              b.programId(1), b.programId(0) * own.ownKeyTile, own.ownKeyTile);
      });
}

/// dk and dv of the selected branch, or sums of parts of them.
ResultRange Launcher::launchSelected(ValueRange query, ArrayRef<Value> lists) {
  int64_t branch = attention.branch;
  const Cut &made =
      cut("dkdv_" + getKind(branch), ScheduledKernel::ListKeyValueGrad);
  const SelectedAttention &selected = made.kernels.selected;
  int64_t parts = selected.gradParts;
  KernelSpec whole = spec(branch, "", 0, selected.flops(keyValueWidth()));
  whole.grid = selected.gradGrid(parts);
  whole.schedule = made.schedule;
  SmallVector<Value> inputs = getInputs(branch, query);
  llvm::append_range(inputs, lists.take_front(2));
  bool rotates = parts == 1 && attention.rotatesAtOnce();
  if (rotates)
    inputs.push_back(table);
  return cache.launch(
      rewriter, op, whole, inputs,
      parts == 1 ? getTypes(branch) : getPartTypes(parts, branch),
      [&](TileBuilder &b, ArrayRef<Value> args) {
        ArrayRef<Value> out = args.take_back(2);
        ArrayRef<Value> others = args.drop_front(numInputs());
        SelectedAttention::GradProgram program =
            selected.getGradProgram(b, parts);
        selected.buildKeyValueGrad(b, program, getArgs(branch, args, out),
                                   others[0], others[1], parts);
        if (rotates)
          attention.rotateTokens(b, out[0], others[2], getStart(args),
                                 program.batch, program.keyHead,
                                 program.tile * selected.keyTile,
                                 selected.keyTile);
      });
}

/// Adds what the programs of `launchSelected` have.
LaunchPart Launcher::sumSelected(ValueRange parts) {
  const SelectedAttention &selected = attention.selected;
  SmallVector<Value> inputs = llvm::to_vector_of<Value>(parts);
  if (attention.rotatesTokens)
    inputs.push_back(table);
  if (attention.rotatesTokens && start)
    inputs.push_back(start);
  return {spec(attention.branch, "_sum", selected.numKeyTiles(), 0), inputs,
          getTypes(attention.branch),
          [this](TileBuilder &b, ArrayRef<Value> args) {
            const SelectedAttention &selected = attention.selected;
            ArrayRef<Value> out = args.take_back(2);
            Expr first = b.programId(0) * selected.keyTile;
            sumParts(b, args, out, b.range(first, selected.keyTile, 0),
                     selected.firstPart(first / selected.selectBlock));
            if (attention.rotatesTokens)
              attention.rotateTokens(b, out[0], args[2],
                                     start ? args[3] : Value(), b.programId(2),
                                     b.programId(1), first, selected.keyTile);
          }};
}

/// Sums of parts of dk and dv of a branch to blocks, a head of the group each.
ResultRange Launcher::launchBlockParts(const Dense &blocks, const Cut &made,
                                       ValueRange query) {
  const DenseAttention &own = made.of(blocks);
  int64_t parts = own.numGradParts();
  KernelSpec whole =
      spec(blocks.branch, "_parts", parts * own.numKeyTiles(own.ownKeyTile),
           own.flops(keyValueWidth()));
  whole.longestFirst = own.isGraded();
  whole.schedule = made.schedule;
  return cache.launch(rewriter, op, whole, getInputs(blocks.branch, query),
                      getPartTypes(parts, blocks.branch),
                      [&](TileBuilder &b, ArrayRef<Value> args) {
                        Expr program = b.programId(0);
                        own.buildKeyValueGrad(
                            b, program / parts,
                            getArgs(blocks.branch, args, args.take_back(2)),
                            program % parts);
                      });
}

/// dk and dv of a branch to blocks, from parts where there are any.
LaunchPart Launcher::makeBlocks(const Dense &blocks, ValueRange query) {
  const Cut &made =
      cut("dkdv_" + getKind(blocks.branch), ScheduledKernel::KeyValueGrad);
  const DenseAttention &own = made.of(blocks);
  // What a program has a part of, it cannot rotate.
  bool hasParts = own.numGradParts() > 1 || own.shape.columnParts > 1;
  int64_t keys = hasParts ? own.sumTile : own.ownKeyTile;
  SmallVector<Value> inputs =
      hasParts
          ? llvm::to_vector_of<Value>(launchBlockParts(blocks, made, query))
          : getInputs(blocks.branch, query);
  Value grad = grads.branches[blocks.branch].getKeyGrad();
  bool isRotated = FusedGradients::getStored(grad) != grad;
  if (isRotated && hasParts && start)
    inputs.push_back(start);
  if (isRotated)
    inputs.push_back(table);
  auto build = [this, hasParts, isRotated, keys, &blocks,
                &own](TileBuilder &b, ArrayRef<Value> args) {
    ArrayRef<Value> out = args.take_back(2);
    Expr number = b.programId(0), first = number * keys;
    if (hasParts)
      sumParts(b, args, out, b.range(first, keys, 0));
    else
      own.buildKeyValueGrad(b, number, getArgs(blocks.branch, args, out));
    Value begin = hasParts && start ? args[2] : getStart(args);
    if (isRotated)
      rotateRange(b, out[0], out[0], args[args.size() - 3], b.programId(2),
                  b.programId(1), first, keys, own.visibility->getKeyStride(),
                  /*inverse=*/true, begin);
  };
  KernelSpec whole = spec(blocks.branch, "", own.numKeyTiles(keys),
                          hasParts ? 0 : own.flops(keyValueWidth()));
  if (!hasParts)
    whole.schedule = made.schedule;
  return {whole, inputs, getTypes(blocks.branch), build};
}

/// Of all heads, or on wide machines a program for each key head.
LaunchPart Launcher::makeBiasGrad(ValueRange query) {
  KernelSpec own = {"dbias", attention.name()};
  own.grid = {1, attention.selected.isGPU ? attention.shape.keyHeads : 1, 1};
  own.takesExtents = takesExtents();
  return {own,
          {query[BiasParts]},
          {grads.gate.getBias().getType()},
          [this](TileBuilder &b, ArrayRef<Value> args) {
            ofQuery->kernels.buildBiasGrad(b, args[0], args[1]);
          }};
}

SmallVector<Value>
Launcher::getResults(ValueRange query, Value queryGrad, Value biasGrad,
                     ArrayRef<SmallVector<Value>> keyValueGrads) {
  llvm::DenseMap<Value, Value> found;
  if (grads.queryGrad)
    found[FusedGradients::getStored(grads.queryGrad)] = queryGrad;
  for (auto [branch, own] : llvm::zip_equal(grads.branches, keyValueGrads)) {
    found[FusedGradients::getStored(branch.getKeyGrad())] = own[0];
    found[branch.getValueGrad()] = own[1];
  }
  if (grads.gateBackward) {
    found[grads.gateBackward.getLogitsGrad()] = query[GatesGrad];
    found[grads.gateBackward.getBiasGrad()] = biasGrad;
  } else {
    found[grads.combine.getGatesGrad()] = query[GatesGrad];
  }
  return llvm::map_to_vector(op.getYielded(), [&](Value inside) {
    Value value = found.lookup(inside);
    assert(value && "no kernel gives this result");
    return value;
  });
}

SmallVector<Value> Launcher::launch() {
  const SelectedAttention &selected = attention.selected;
  SmallVector<Value> lists;
  if (!attention.masksKeys())
    lists = selected.launchLists(cache, rewriter, op, indices);
  SmallVector<Value> query = launchQueryGrad(lists);
  Value queryGrad = attention.isSplit() ? launchDenseQueryGrad(query)
                                        : Value(query[QueryGrad]);
  auto attendsToTokens = [](const Dense &dense) {
    return dense.attention.visibility->attendsToTokens();
  };
  // dk and dv of each branch.
  SmallVector<SmallVector<Value>> own(attention.branches);
  for (const Dense &dense : attention.dense)
    if (attendsToTokens(dense))
      own[dense.branch] = llvm::to_vector_of<Value>(launchTokens(dense, query));
  SmallVector<Value> &ofSelected = own[attention.branch];
  ofSelected = llvm::to_vector_of<Value>(
      attention.masksKeys() ? launchTokens(attention.masked, query)
                            : launchSelected(query, lists));

  // What is left are sums, and gradients that need no sum.
  std::vector<LaunchPart> last;
  std::string suffix = "dkdv_sums";
  // Where the results of parts go.
  SmallVector<MutableArrayRef<Value>> places;
  Value biasGrad;
  if (attention.hasBias) {
    last.push_back(makeBiasGrad(query));
    places.push_back(biasGrad);
  }
  for (const Dense &dense : attention.dense) {
    if (attendsToTokens(dense))
      continue;
    suffix = "dkdv_" + getKind(dense.branch);
    last.push_back(makeBlocks(dense, query));
    own[dense.branch].resize(2);
    places.push_back(own[dense.branch]);
  }
  bool hasParts = selected.gradParts > 1 && !attention.masksKeys();
  if (hasParts) {
    last.push_back(sumSelected(ofSelected));
    places.push_back(ofSelected);
  }
  // What these programs rotate back.
  if (attention.rotatesTokens && !attention.rotatesAtOnce()) {
    places.push_back(queryGrad);
    for (const Dense &dense : attention.dense)
      if (attendsToTokens(dense))
        places.push_back(own[dense.branch][0]);
    if (!hasParts)
      places.push_back(ofSelected[0]);
    for (MutableArrayRef<Value> grad : ArrayRef(places).drop_front(last.size()))
      last.push_back(rotateTensor(grad[0], table, start, /*inverse=*/true));
  }
  if (!last.empty())
    for (auto [place, results] : llvm::zip_equal(
             places, launchTogether(cache, rewriter, op, suffix, last)))
      llvm::copy(results, place.begin());
  return getResults(query, queryGrad, biasGrad, own);
}

static LogicalResult convertGatedAttentionBackward(FusedOp op,
                                                   KernelCache &cache,
                                                   PatternRewriter &rewriter) {
  if (!op.isBackward())
    return failure();
  rewriter.replaceOp(op, Launcher(cache, rewriter, op).launch());
  return success();
}

void nsa::populateGatedAttentionBackwardPatterns(KernelPatterns &patterns) {
  patterns.add(convertGatedAttentionBackward);
}
