//===- GatedAttention.cpp - branches and the gated sum at once ------------===//
//
// A program takes neighbouring queries of a group, as the selected branch does,
// and computes its branches and the sum of its rows: their outputs never have
// to come back from memory.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/NN/NNToTile.h"
#include "passes/Kernels/NSA/GatedAttentionKernels.h"
#include "passes/Kernels/NSA/NSAToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

SmallVector<tile::Operand> RowGates::place(const RowProgram &program,
                                           Value query, int64_t branch) const {
  Expr batch = program.range.batch;
  if (!activation)
    return {batch, query, program.head, branch};
  Value head = program.head;
  if (!isa<TileType>(head.getType()))
    head = program.b.splat(head, program.numRows(), 1);
  Value channel = program.b.map({head}, program.b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] * static_cast<double>(branches) + static_cast<double>(branch);
  });
  return {batch, query, channel};
}

BranchTiles RowGates::load(const RowProgram &program) const {
  TileBuilder &b = program.b;
  BranchTiles values;
  for (int64_t c = 0; c < branches; ++c) {
    SmallVector<tile::Operand> indices = place(program, program.range.query, c);
    Value value = b.loadF32(gates, indices);
    if (bias)
      value = add(b, value, b.load(bias, {indices.back()}));
    values.push_back(value);
  }
  if (!activation)
    return values;
  if (activation == nn::GateActivation::Softmax)
    return b.map(values, SmallVector<Type>(branches, b.f32()), activateGates);
  for (Value &value : values)
    value = b.map({value}, ArrayRef<Type>(b.f32()), activateGates)[0];
  return values;
}

BranchTiles RowGates::differentiate(TileBuilder &b, const BranchTiles &grads,
                                    const BranchTiles &values) const {
  if (!activation)
    return grads;
  if (activation == nn::GateActivation::Softmax) {
    SmallVector<Value> inputs(grads);
    llvm::append_range(inputs, values);
    return b.map(inputs, SmallVector<Type>(branches, b.f32()),
                 differentiateGates);
  }
  BranchTiles results;
  for (auto [grad, value] : llvm::zip_equal(grads, values))
    results.push_back(
        b.map({grad, value}, ArrayRef<Type>(b.f32()), differentiateGates)[0]);
  return results;
}

void RowGates::store(const RowProgram &program, const BranchTiles &values,
                     Value ref) const {
  for (auto [c, value] : llvm::enumerate(values))
    program.b.store(value, ref,
                    place(program, program.stored, static_cast<int64_t>(c)));
}

//===----------------------------------------------------------------------===//
// Kernel
//===----------------------------------------------------------------------===//

std::string GatedAttention::name() const {
  std::string name = activation ? stringifyGateActivation(*activation).str()
                                : std::string("given");
  name += "_" + selected.name();
  for (const Dense &own : dense)
    name += "_" + own.attention.visibility->getShapeName();
  return name;
}

int64_t GatedAttention::denseFlops(int64_t width) const {
  int64_t flops = 0;
  for (const Dense &own : dense)
    flops += own.attention.flops(width);
  return flops;
}

namespace {
/// What a kernel of the sum has of a branch: its output if it is given, else
/// what attention reads. `kept` and `keptLse` are null if nothing else reads
/// them.
struct BranchArgs {
  Value given, key, value, indices, kept, keptLse;
};

struct ForwardKernel {
  ForwardKernel(const FusedSum &sum, KernelCache &cache, FusedOp op)
      : sum(sum),
        attention(ArrayRef(sum.branches), sum.gate, cache.getSchedule()) {
    SelectedForms forms(attention.selected, cache.getSchedule());
    bool hasMasks = forms.forward == SelectedForm::Masks;
    own = attention.shape.choose(cache, op, hasMasks ? "masks" : "",
                                 hasMasks ? ScheduledKernel::MaskedForward
                                          : ScheduledKernel::ListForward);
    KernelSchedule schedule = own.applyTo(cache.getSchedule());
    attention =
        GatedAttention(ArrayRef(this->sum.branches), this->sum.gate, schedule);
    attention.setColumnParts(own.columnParts);
    if (hasMasks)
      masked = makeMasked(attention.selected, schedule);
  }

  KernelSpec spec() const;
  /// The inputs, in the order in which `build` takes them: instead of indices
  /// `selection`.
  SmallVector<Value> getInputs(FusedOp op, Value selection);
  /// Where packed sequences begin, or null.
  Value getStart(FusedOp op) {
    Value inside = sum.branches[attention.branch].getStart();
    return inside ? op.getOutside(inside) : Value();
  }
  /// Program: (tile of queries, key head, batch), or that of masked attention.
  /// `args` are the inputs, the union of the selection, and the results of the
  /// operation.
  void build(TileBuilder &b, FusedOp op, ArrayRef<Value> args,
             size_t numInputs);

  FusedSum sum;
  GatedAttention attention;
  ChosenSchedule own;
  /// The selected branch where it has masks.
  std::optional<DenseAttention> masked;
};
} // namespace

KernelSpec ForwardKernel::spec() const {
  const AttentionShape &shape = attention.shape;
  KernelSpec spec = {
      "",
      attention.name(),
      {attention.selected.numQueryTiles(), shape.keyHeads, shape.batch}};
  if (masked)
    spec = masked->forwardSpec("masks", attention.name());
  int64_t width = shape.keyWidth + shape.valueWidth;
  spec.flops = attention.selected.flops(width) + attention.denseFlops(width);
  spec.takesExtents = !attention.selected.isPacked;
  spec.schedule = own;
  return spec;
}

SmallVector<Value> ForwardKernel::getInputs(FusedOp op, Value selection) {
  SmallVector<Value> inputs = {sum.branches[attention.branch].getQuery()};
  for (auto [branch, output] :
       llvm::zip_equal(sum.branches, sum.combine.getBranches())) {
    if (!branch) {
      inputs.push_back(output);
      continue;
    }
    inputs.append({branch.getKey(), branch.getValue()});
    if (hasIndices(branch))
      inputs.push_back(branch.getIndices());
  }
  if (sum.gate)
    llvm::append_range(inputs, sum.gate->getOperands());
  else
    inputs.push_back(sum.combine.getGates());
  Value indices = sum.branches[attention.branch].getIndices();
  for (Value &input : inputs)
    input = input == indices ? selection : op.getOutside(input);
  if (Value start = getStart(op))
    inputs.push_back(start);
  return inputs;
}

void ForwardKernel::build(TileBuilder &b, FusedOp op, ArrayRef<Value> args,
                          size_t numInputs) {
  ArrayRef<Value> in = args.take_front(numInputs);
  ArrayRef<Value> outputs = args.drop_front(numInputs);
  SelectionUnion selection;
  if (!masked)
    selection = attention.selected.takeUnion(in);
  Value start;
  if (attention.selected.isPacked) {
    start = in.back();
    in = in.drop_back();
  }
  auto take = [&] {
    Value first = in.front();
    in = in.drop_front();
    return first;
  };
  auto getKept = [&](Value inside) {
    auto yielded = op.getYielded();
    auto found = llvm::find(yielded, inside);
    return found == yielded.end() ? Value() : outputs[found - yielded.begin()];
  };
  Value q = take();
  SmallVector<BranchArgs> own(sum.branches.size());
  for (auto [branch, taken] : llvm::zip_equal(sum.branches, own)) {
    if (!branch) {
      taken.given = take();
      continue;
    }
    taken.key = take();
    taken.value = take();
    if (hasIndices(branch))
      taken.indices = take();
    taken.kept = getKept(branch.getOutput());
    taken.keptLse = getKept(branch.getLse());
  }

  const AttentionShape &shape = attention.shape;
  std::optional<GroupProgram> group;
  if (!masked)
    group.emplace(attention.selected.makeProgram(
        b, attention.selected.queryTileOf(b.programId(0))));
  RowProgram program = masked ? masked->makeForwardProgram(b) : *group;
  program.range.start = start;
  if (group)
    group->range.start = start;
  Value queries = program.loadRows(q, shape.columns(b, shape.keyWidth));
  Value columns = shape.ownColumns(b, shape.valueWidth);
  auto init = OnlineSoftmax::init(b, program.numRows(),
                                  shape.ownWidth(shape.valueWidth));
  auto step = [&](const KeyTile &tile, ArrayRef<Value> carried) {
    return attend(b, queries, tile, shape.exponent(),
                  OnlineSoftmax::fromCarried(carried))
        .carried();
  };
  // Rounded as what the branch would store is.
  Type stored = cast<MemRefType>(outputs[0].getType()).getElementType();
  auto finish = [&](ArrayRef<Value> carried, const BranchArgs &branch) {
    auto softmax = OnlineSoftmax::fromCarried(carried);
    Value output = b.convertTo(softmax.output(b), stored);
    if (branch.kept)
      program.storeRows(output, branch.kept, columns);
    if (branch.keptLse)
      shape.buildOnce(b, [&] {
        program.storeStatistic(softmax.lse(b, shape.exponent()),
                               branch.keptLse);
      });
    return output;
  };
  BranchTiles branches(own.size());
  auto loadGiven = [&] {
    for (auto [branch, tile] : llvm::zip_equal(own, branches))
      if (branch.given)
        tile = program.loadRows(branch.given, columns);
  };
  if (!masked)
    loadGiven();
  for (const GatedAttention::Dense &dense : attention.dense) {
    const BranchArgs &branch = own[dense.branch];
    branches[dense.branch] =
        finish(dense.attention.forEachKeyTile(
                   b, dense.attention.forwardKeyTile, program.range, branch.key,
                   branch.value, /*masks=*/Value(), init.carried(), step),
               branch);
  }
  const BranchArgs &selected = own[attention.branch];
  SmallVector<Value> softmax =
      masked ? masked->forEachKeyTile(b, masked->forwardKeyTile, program.range,
                                      selected.key, selected.value,
                                      selected.indices, init.carried(), step)
             : attention.selected.forEachKeyTile(
                   *group, selected.indices, selection, selected.key,
                   selected.value, init.carried(), step);
  branches[attention.branch] = finish(softmax, selected);
  // Two such programs share the registers of a multiprocessor.
  if (masked)
    loadGiven();
  Value gates = take();
  RowGates rowGates =
      attention.getGates(gates, attention.hasBias ? take() : Value());
  program.storeRows(gatedSum(b, rowGates.load(program), branches), outputs[0],
                    columns);
}

static LogicalResult convertGatedAttention(FusedOp op, KernelCache &cache,
                                           PatternRewriter &rewriter) {
  if (op.isBackward())
    return failure();
  ForwardKernel kernel(*FusedSum::get(op), cache, op);
  const SelectedAttention &attention = kernel.attention.selected;
  AttentionOp selected = kernel.sum.branches[kernel.attention.branch];
  Value start = kernel.getStart(op);
  Value indices = attention.launchNumbers(
      cache, rewriter, op, op.getOutside(selected.getIndices()), start);
  KernelSpec spec = kernel.spec();
  SmallVector<Value> inputs;
  if (kernel.masked) {
    inputs = kernel.getInputs(
        op, SelectionMasks::launch(cache, rewriter, op, indices,
                                   attention.selectBlock));
  } else {
    spec.indices = indices;
    spec.selectBlock = selected.getVisibility().getIndexBlock();
    inputs = kernel.getInputs(op, indices);
    llvm::append_range(
        inputs, attention.launchUnion(cache, rewriter, op, indices, start));
  }
  return cache.replace(rewriter, op, spec, inputs,
                       [&](TileBuilder &b, ArrayRef<Value> args) {
                         kernel.build(b, op, args, inputs.size());
                       });
}

void nsa::populateGatedAttentionPatterns(KernelPatterns &patterns) {
  patterns.add(convertGatedAttention);
}
