//===- AttentionBackward.cpp - launches for gradients of attention --------===//
//
// Of one attention, or of all branches of a gated sum and of its gates:
//
// lists  the queries that selected a block; on a GPU after counts, how many of
//        some queries selected it.
// dq     the gradient of the queries, of all branches in one sum, and that of
//        the gates; writes what dk and dv need of every row and branch. On a
//        GPU two launches: dq_selected has the rows of the selected branch,
//        dq_dense adds the other branches; one, dq_masks, where the selected
//        branch has masks and the rows of the others. Where queries are
//        gathered for blocks, dq_rows has all that belongs to rows, and the
//        gradient comes from dq_parts and their sums.
// dkdv   one launch for each branch to tokens. A last one has, of a gated sum,
//        the branches to blocks and adds the programs' parts of the gradient of
//        the bias; where many programs share the list of a block it adds those
//        of the selected branch.
//
// The gradient of queries or keys is rotated back in place: on a CPU by the
// program that writes it, while it is in the cache. On a GPU by programs of the
// last launch, since else each of many programs would read the table of angles.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/GatheredAttention.h"
#include "passes/Kernels/NSA/NSAToTile.h"
#include "passes/Kernels/NSA/QueryGrad.h"
#include "passes/Kernels/Rotation.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// Parts of dk and dv, and what turns their sum back.
struct PartsOperands {
  SmallVector<Value *> slots() {
    return {&keyGrad, &valueGrad, &table, &start};
  }

  Value keyGrad, valueGrad, table = {}, start = {};
};

/// The launches of one operation.
class Gradients {
public:
  Gradients(Operation *op, FusedGradients grads, KernelCache &cache,
            PatternRewriter &rewriter);

  /// Values in place of the results of the operation.
  SmallVector<Value> launch();

private:
  /// The branches as a kernel is cut.
  struct Cut : AttentionBranches {
    ChosenSchedule schedule;
  };
  Cut cut(StringRef suffix, AttentionKernel kernel, bool hasMasks);

  QueryGradResults launchQueryGrad(const InverseIndex &lists);
  Value launchDenseQueryGrad(const QueryGradResults &query);
  LaunchPart makeBiasGrad(const QueryGradResults &query);

  KeyValueGradArgs getKeyValueOperands(int64_t branch,
                                       const QueryGradResults &query);
  LaunchPart makeKeyValueGrad(int64_t branch, const Cut &cut,
                              KeyValueGradArgs in, int64_t parts);
  SmallVector<Value> launchKeyValueGrad(int64_t branch,
                                        const QueryGradResults &query,
                                        const InverseIndex &lists);
  LaunchPart makeBlocks(int64_t branch, const QueryGradResults &query);
  LaunchPart makeSums(int64_t branch, ValueRange parts, const Extent &tiles,
                      int64_t keys);
  SmallVector<Value> getResults(const QueryGradResults &query, Value queryGrad,
                                Value biasGrad,
                                ArrayRef<SmallVector<Value>> keyValueGrads);

  bool masksKeys() const {
    return forms && forms->keyValueGrad == SelectionForm::Masks;
  }
  /// Whether programs have parts of the list of a block, for the last launch.
  bool hasListParts() const {
    return machine.selected && !masksKeys() && machine.selected->gradParts > 1;
  }
  bool masksQueries() const {
    return forms && forms->queryGrad == SelectionForm::Masks;
  }
  bool gathersQueries() const {
    return forms && forms->queryGrad == SelectionForm::Gathered;
  }
  Value outside(Value inside) { return getOutside(op, inside); }
  Value launchMasks() {
    return SelectionMasks::launch(cache, rewriter, op, indices,
                                  *machine.selected, at);
  }
  bool attendsToTokens(int64_t branch) {
    return grads.branches[branch].getVisibility().attendsToTokens();
  }
  /// Whether the gradient of the keys is turned back, and by the program that
  /// has the whole of it.
  bool isTurned(int64_t branch) {
    Value grad = grads.branches[branch].getKeyGrad();
    return table && FusedGradients::getStored(grad) != grad;
  }
  bool isTurnedAtOnce(int64_t branch) {
    return isTurned(branch) &&
           (!machine.isParallel || !attendsToTokens(branch));
  }
  /// "dkdv" of the kind of a branch of a sum.
  std::string getSuffix(int64_t branch) {
    AttentionBackwardOp own = grads.branches[branch];
    return machine.isGated ? "dkdv_" + own.getVisibility().getKind().str()
                           : "dkdv";
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
  /// A kernel of dk and dv of a branch.
  KernelSpec spec(int64_t branch, const Twine &suffix, const Extent &tiles) {
    KernelSpec own = {suffix.str(),
                      machine.name(),
                      {tiles, machine.shape.keyHeads, machine.shape.keyBatch}};
    own.key = std::to_string(branch);
    own.takesExtents = takesExtents();
    return own;
  }
  bool takesExtents() const {
    return !start && !at && hasAnglesOfAll(table, machine.shape.sequence);
  }
  int64_t keyValueWidth() const {
    return 2 * (machine.shape.keyWidth + machine.shape.valueWidth);
  }

  Operation *op;
  FusedGradients grads;
  KernelCache &cache;
  PatternRewriter &rewriter;
  /// As the machine cuts them: what is the same for all schedules.
  AttentionBranches machine;
  std::optional<SelectedForms> forms;
  RowStatistics statistics;
  /// How dq is cut.
  std::optional<QueryGradKernel> queryGrad;
  /// The table, where packed sequences begin and where rows of queries do, null
  /// without; the numbers of the blocks that are selected, and where packed
  /// sequences end.
  Value table, start, at, indices, ends;
};
} // namespace

Gradients::Gradients(Operation *op, FusedGradients grads, KernelCache &cache,
                     PatternRewriter &rewriter)
    : op(op), grads(grads), cache(cache), rewriter(rewriter),
      machine(grads, cache.getMachine()),
      statistics(machine.shape, machine.size(), machine.isGated,
                 machine.foldsGates(), machine.isParallel),
      table(outside(grads.table)), start(outside(grads.start)),
      at(outside(AttentionBranches::getFirst(grads).getAt())) {
  if (machine.selected) {
    forms.emplace(op, *machine.selected);
    AttentionBackwardOp selected = grads.branches[machine.number];
    indices = machine.selected->launchNumbers(
        cache, rewriter, op, outside(selected.getIndices()), start, at);
  }
  if (start)
    ends = launchSequenceEnds(cache, rewriter, op, start);
}

Gradients::Cut Gradients::cut(StringRef suffix, AttentionKernel kernel,
                              bool hasMasks) {
  ChosenSchedule own = machine.shape.choose(cache, op, suffix, kernel);
  return {AttentionBranches(grads, KernelCut(cache.getMachine(), own.sizes),
                            hasMasks, own.columnParts),
          own};
}

//===----------------------------------------------------------------------===//
// Queries and gates
//===----------------------------------------------------------------------===//

/// Where queries are gathered, one launch makes all but their gradient, which
/// `lists` lead to.
QueryGradResults Gradients::launchQueryGrad(const InverseIndex &lists) {
  bool hasMasks = masksQueries(), gathers = gathersQueries();
  auto kernel = !machine.selected ? AttentionKernel::QueryGrad
                : gathers         ? AttentionKernel::QueryRows
                                  : AttentionKernel::SelectedQueryGrad;
  AttentionBranches uncut(grads, cache.getMachine(), hasMasks);
  KernelSpec spec = QueryGradKernel(uncut, statistics, gathers).spec();
  Cut made = cut(spec.suffix, kernel, hasMasks);
  queryGrad.emplace(made, statistics, gathers);
  const QueryGradKernel &own = *queryGrad;
  spec = own.spec();
  spec.takesExtents = takesExtents();
  spec.schedule = made.schedule;

  AttentionBackwardOp first = AttentionBranches::getFirst(grads);
  AttentionOperands in =
      made.getOperands(op, grads, hasMasks ? launchMasks() : indices);
  in.outputGrad = outside(machine.isGated ? grads.combine.getOutputGrad()
                                          : first.getOutputGrad());
  for (auto [branch, values] : llvm::zip_equal(grads.branches, in.branches)) {
    AttentionBackwardOp backward = branch;
    values.output = outside(backward.getOutput());
    values.lse = outside(backward.getLse());
  }
  if (made.hasLists()) {
    spec.setIndices(indices, first.getVisibility().getIndexBlock(), at);
    if (!gathers)
      in.selection =
          made.selected->launchUnion(cache, rewriter, op, indices, start, at);
  }
  if (grads.turnsTokens && !machine.isParallel)
    in.table = table;

  Type f32 = rewriter.getF32Type();
  RankedTensorType query = first.getQuery().getType();
  SmallVector<Type> types = {own.isSplit() ? query.clone(f32) : query,
                             statistics.getType(cache)};
  if (machine.isGated)
    types.insert(types.begin() + 1, in.gates.getType());
  if (machine.hasBias)
    types.push_back(cache.getTensorType(
        {machine.shape.batch * own.numPrograms(), own.gateWidth()}, f32));
  Type queryType = types.front();
  if (gathers)
    types.erase(types.begin());
  auto withQueryGrad = [&](ValueRange results) {
    SmallVector<Value> all(results);
    if (gathers)
      all.insert(all.begin(), Value());
    return QueryGradResults(all, machine.isGated);
  };
  QueryGradResults results = withQueryGrad(
      nsa::launch(cache, rewriter, op,
                  makeLaunch(spec, in, types,
                             [&](TileBuilder &b, const AttentionOperands &in,
                                 ArrayRef<Value> out) {
                               own.build(b, in, withQueryGrad(out));
                             })));
  if (gathers)
    results.queryGrad = GatheredAttention::launchQueryGrad(
        op, first,
        {in.outputGrad, in.query, outside(first.getKey()),
         outside(first.getValue()),
         machine.foldsGates() ? Value() : outside(first.getLse()),
         results.statistics, statistics, machine.number},
        indices, queryType, own.isSplit() ? 1 : machine.shape.scale, lists,
        cache, rewriter);
  return results;
}

/// The gradient of the queries: what `query` has of it, and the branches whose
/// rows are those of one head.
Value Gradients::launchDenseQueryGrad(const QueryGradResults &query) {
  Cut made = cut("dq_dense", AttentionKernel::QueryGrad, /*hasMasks=*/false);
  QueryGradKernel own(made, statistics, /*gathers=*/false);
  KernelSpec spec = own.denseSpec();
  spec.takesExtents = takesExtents();
  spec.schedule = made.schedule;
  AttentionBackwardOp first = AttentionBranches::getFirst(grads);
  AttentionOperands in = made.getOperands(op, grads, indices);
  in.branches[made.number] = {};
  in.gates = in.bias = {};
  in.outputGrad = outside(grads.combine.getOutputGrad());
  if (!made.foldsGates())
    for (int64_t branch : made.getDense())
      in.branches[branch].lse = outside(grads.branches[branch].getLse());
  in.statistics = query.statistics;
  in.queryGrad = query.queryGrad;
  return nsa::launch(cache, rewriter, op,
                     makeLaunch(spec, in, {first.getQuery().getType()},
                                [&](TileBuilder &b, const AttentionOperands &in,
                                    ArrayRef<Value> out) {
                                  own.buildDense(b, in, out.front());
                                }))
      .front();
}

/// Of all heads, or on wide machines a program for each key head.
LaunchPart Gradients::makeBiasGrad(const QueryGradResults &query) {
  KernelSpec own = {"dbias", machine.name()};
  own.grid = {1, machine.isParallel ? machine.shape.keyHeads : 1, 1};
  own.takesExtents = takesExtents();
  return {own,
          {query.biasParts},
          {grads.gate.getBias().getType()},
          [this](TileBuilder &b, ArrayRef<Value> args) {
            auto [parts, biasGrad] = named<2>(args);
            queryGrad->buildBiasGrad(b, parts, biasGrad);
          }};
}

//===----------------------------------------------------------------------===//
// Keys and values
//===----------------------------------------------------------------------===//

KeyValueGradArgs Gradients::getKeyValueOperands(int64_t branch,
                                                const QueryGradResults &query) {
  AttentionBackwardOp own = grads.branches[branch];
  KeyValueGradArgs in{statistics, branch};
  in.outputGrad = outside(machine.isGated ? grads.combine.getOutputGrad()
                                          : own.getOutputGrad());
  in.q = outside(own.getQuery());
  in.k = outside(own.getKey());
  in.v = outside(own.getValue());
  if (!machine.foldsGates())
    in.lse = outside(own.getLse());
  in.statistics = query.statistics;
  in.start = start;
  in.ends = ends;
  in.at = at;
  return in;
}

/// dk and dv of a branch; with `parts` that many sums of what programs have of
/// them, 0 for none.
LaunchPart Gradients::makeKeyValueGrad(int64_t branch, const Cut &cut,
                                       KeyValueGradArgs in, int64_t parts) {
  KernelSpec whole = spec(branch, getSuffix(branch), 0);
  whole.flops = cut.flops(branch, keyValueWidth());
  whole.schedule = cut.schedule;
  whole.minBlocks = cut.ranges[branch]
                        ? cut.ranges[branch]->getKeyValueGradBlocks()
                        : cut.selected->getGradBlocks();
  if (parts == 0 && isTurnedAtOnce(branch))
    in.table = table;
  SmallVector<Type> types =
      parts == 0 ? getTypes(branch) : getPartTypes(parts, branch);
  int64_t stride = grads.branches[branch].getVisibility().getKeyStride();
  auto make = [&](const auto &keys) {
    whole.grid = keys.keyGrid(parts);
    return makeLaunch(
        whole, in, types,
        [=](TileBuilder &b, KeyValueGradArgs in, ArrayRef<Value> out) {
          auto [keyGrad, valueGrad] = named<2>(out);
          in.keyGrad = keyGrad;
          in.valueGrad = valueGrad;
          KeyProgram program = keys.getKeyProgram(b, parts);
          keys.buildKeyValueGrad(b, program, in);
          if (in.table)
            rotateRange(b, in.keyGrad, in.keyGrad, in.table, program.batch,
                        program.keyHead, program.first, program.keys, stride,
                        /*inverse=*/true, in.start);
        });
  };
  return cut.ranges[branch] ? make(*cut.ranges[branch]) : make(*cut.selected);
}

/// dk and dv of a branch to tokens, or sums of parts of them.
SmallVector<Value> Gradients::launchKeyValueGrad(int64_t branch,
                                                 const QueryGradResults &query,
                                                 const InverseIndex &lists) {
  bool isSelected = branch == machine.number;
  bool hasMasks = isSelected && masksKeys();
  std::string suffix = getSuffix(branch) + (hasMasks ? "_masks" : "");
  Cut made = cut(suffix,
                 isSelected ? AttentionKernel::SelectedKeyValueGrad
                            : AttentionKernel::KeyValueGrad,
                 hasMasks);
  KeyValueGradArgs in = getKeyValueOperands(branch, query);
  int64_t parts = 0;
  if (hasMasks) {
    in.masks = launchMasks();
  } else if (isSelected) {
    in.offsets = lists.offsets;
    in.list = lists.list;
    if (hasListParts())
      parts = made.selected->gradParts;
  }
  LaunchPart part = makeKeyValueGrad(branch, made, in, parts);
  part.spec.suffix = suffix;
  part.spec.longestFirst =
      made.ranges[branch] && made.ranges[branch]->isGraded();
  return llvm::to_vector_of<Value>(nsa::launch(cache, rewriter, op, part));
}

/// dk and dv of a branch to blocks, from parts where there are any.
LaunchPart Gradients::makeBlocks(int64_t branch,
                                 const QueryGradResults &query) {
  Cut made = cut(getSuffix(branch), AttentionKernel::KeyValueGrad,
                 /*hasMasks=*/false);
  const DenseAttention &own = *made.ranges[branch];
  KeyValueGradArgs in = getKeyValueOperands(branch, query);
  int64_t parts = own.numGradParts();
  // What a program has a part of, it cannot rotate.
  if (parts == 1 && own.shape.columnParts == 1)
    return makeKeyValueGrad(branch, made, in, /*parts=*/0);
  LaunchPart part = makeKeyValueGrad(branch, made, in, parts);
  part.spec.suffix += "_parts";
  part.spec.longestFirst = own.isGraded();
  return makeSums(branch, nsa::launch(cache, rewriter, op, part),
                  own.numKeyTiles(own.sumTile), own.sumTile);
}

/// Adds `parts` of dk and dv, a program for each of `tiles` of `keys`.
LaunchPart Gradients::makeSums(int64_t branch, ValueRange parts,
                               const Extent &tiles, int64_t keys) {
  auto [keyParts, valueParts] = named<2>(parts);
  PartsOperands in = {keyParts, valueParts};
  if (isTurned(branch)) {
    in.table = table;
    in.start = start;
  }
  bool hasLists = branch == machine.number;
  int64_t stride = grads.branches[branch].getVisibility().getKeyStride();
  return makeLaunch(
      spec(branch, getSuffix(branch) + "_sum", tiles), in, getTypes(branch),
      [=](TileBuilder &b, const PartsOperands &in, ArrayRef<Value> out) {
        Expr batch = b.programId(2), head = b.programId(1);
        Expr first = b.programId(0) * keys;
        Value row = b.range(first, keys, 0);
        tile::Operand firstPart = 0;
        if (hasLists)
          firstPart = machine.selected->firstPart(
              first / machine.selected->selectBlock);
        auto [keyGrad, valueGrad] = named<2>(out);
        addParts(b, in.keyGrad, keyGrad, batch, row, head, machine.shape.scale,
                 firstPart);
        addParts(b, in.valueGrad, valueGrad, batch, row, head, 1, firstPart);
        if (in.table)
          rotateRange(b, keyGrad, keyGrad, in.table, batch, head, first, keys,
                      stride, /*inverse=*/true, in.start);
      });
}

//===----------------------------------------------------------------------===//
// All launches
//===----------------------------------------------------------------------===//

SmallVector<Value>
Gradients::getResults(const QueryGradResults &query, Value queryGrad,
                      Value biasGrad,
                      ArrayRef<SmallVector<Value>> keyValueGrads) {
  auto fused = dyn_cast<FusedOp>(op);
  if (!fused) {
    auto [keyGrad, valueGrad] = named<2>(keyValueGrads.front());
    return {queryGrad, keyGrad, valueGrad};
  }
  llvm::DenseMap<Value, Value> found;
  if (grads.queryGrad)
    found[FusedGradients::getStored(grads.queryGrad)] = queryGrad;
  for (auto [branch, own] : llvm::zip_equal(grads.branches, keyValueGrads)) {
    auto [keyGrad, valueGrad] = named<2>(own);
    found[FusedGradients::getStored(branch.getKeyGrad())] = keyGrad;
    found[branch.getValueGrad()] = valueGrad;
  }
  if (grads.gateBackward) {
    found[grads.gateBackward.getLogitsGrad()] = query.gatesGrad;
    found[grads.gateBackward.getBiasGrad()] = biasGrad;
  } else {
    found[grads.combine.getGatesGrad()] = query.gatesGrad;
  }
  return llvm::map_to_vector(fused.getYielded(), [&](Value inside) {
    Value value = found.lookup(inside);
    assert(value && "no kernel gives this result");
    return value;
  });
}

SmallVector<Value> Gradients::launch() {
  InverseIndex lists;
  if (machine.selected && !masksKeys())
    lists = machine.selected->launchLists(cache, rewriter, op, indices, at);
  QueryGradResults query = launchQueryGrad(lists);
  Value ofQueries =
      queryGrad->isSplit() ? launchDenseQueryGrad(query) : query.queryGrad;
  // dk and dv of each branch; those that the last launch has come from it.
  SmallVector<SmallVector<Value>> own(machine.size());
  SmallVector<int64_t> tokens = machine.getDense(), blocks;
  if (machine.isGated) {
    llvm::copy_if(tokens, std::back_inserter(blocks),
                  [&](int64_t branch) { return !attendsToTokens(branch); });
    llvm::erase_if(tokens,
                   [&](int64_t branch) { return !attendsToTokens(branch); });
  }
  if (machine.selected)
    tokens.push_back(machine.number);
  for (int64_t branch : tokens)
    own[branch] = launchKeyValueGrad(branch, query, lists);

  std::vector<LaunchPart> last;
  // Where the results of these parts go.
  SmallVector<MutableArrayRef<Value>> places;
  auto addLast = [&](LaunchPart part, MutableArrayRef<Value> place) {
    last.push_back(std::move(part));
    places.push_back(place);
  };
  std::string suffix = "dkdv_sums";
  Value biasGrad;
  if (machine.hasBias)
    addLast(makeBiasGrad(query), biasGrad);
  for (int64_t branch : blocks) {
    suffix = getSuffix(branch);
    own[branch].resize(2);
    addLast(makeBlocks(branch, query), own[branch]);
  }
  if (hasListParts())
    addLast(makeSums(machine.number, own[machine.number],
                     machine.selected->numKeyTiles(),
                     machine.selected->keyTile),
            own[machine.number]);
  auto turnBack = [&](Value &grad) {
    addLast(rotateTensor(grad, table, start, /*inverse=*/true), grad);
  };
  // What no other kernel turns back.
  if (grads.turnsTokens && machine.isParallel) {
    turnBack(ofQueries);
    for (int64_t branch : tokens)
      if (branch != machine.number || !hasListParts())
        turnBack(own[branch].front());
  }
  if (!last.empty())
    for (auto [place, results] : llvm::zip_equal(
             places, launchTogether(cache, rewriter, op, suffix, last)))
      llvm::copy(results, place.begin());
  return getResults(query, ofQueries, biasGrad, own);
}

static LogicalResult convertAttentionBackward(AttentionBackwardOp op,
                                              KernelCache &cache,
                                              PatternRewriter &rewriter) {
  Gradients own(op, FusedGradients::of(op), cache, rewriter);
  rewriter.replaceOp(op, own.launch());
  return success();
}

static LogicalResult convertFusedGradients(FusedOp op, KernelCache &cache,
                                           PatternRewriter &rewriter) {
  if (!op.isBackward())
    return failure();
  Gradients own(op, *FusedGradients::get(op), cache, rewriter);
  rewriter.replaceOp(op, own.launch());
  return success();
}

void nsa::populateAttentionBackwardPatterns(KernelPatterns &patterns) {
  patterns.add(convertAttentionBackward, convertFusedGradients);
}
