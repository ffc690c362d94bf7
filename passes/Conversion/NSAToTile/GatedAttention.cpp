//===- GatedAttention.cpp - two branches and the gated sum at once --------===//
//
// A program takes neighbouring queries of a group, as the selected branch does,
// and computes both branches and the sum of its rows: their outputs never have
// to come back from memory. On a GPU the window branch is a launch of its own,
// with the tiles that suit it.
//
//===----------------------------------------------------------------------===//

#include "passes/Conversion/NNToTile/NNToTile.h"
#include "passes/Conversion/NSAToTile/GatedAttentionKernels.h"
#include "passes/Conversion/NSAToTile/NSAToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

SmallVector<tile::Operand> RowGates::place(const GroupProgram &program,
                                           Value query, int64_t branch) const {
  Expr batch = program.range.batch;
  if (gating == Gating::Given)
    return {batch, query, program.head, branch};
  Value channel =
      program.b.map({program.head}, program.b.i32(), [&](ArrayRef<Expr> x) {
        return x[0] * NumBranches + static_cast<double>(branch);
      });
  return {batch, query, channel};
}

BranchTiles RowGates::load(const GroupProgram &program) const {
  TileBuilder &b = program.b;
  BranchTiles values;
  for (int64_t c = 0; c < NumBranches; ++c) {
    SmallVector<tile::Operand> indices = place(program, program.range.query, c);
    values[c] = b.loadF32(gates, indices);
    if (bias)
      values[c] = add(b, values[c], b.load(bias, {indices.back()}));
  }
  if (gating == Gating::Given)
    return values;
  if (gating == Gating::Sigmoid) {
    for (Value &value : values)
      value = b.map({value}, ArrayRef<Type>(b.f32()), activateGates)[0];
    return values;
  }
  auto activated =
      b.map(values, SmallVector<Type>(NumBranches, b.f32()), activateGates);
  llvm::copy(activated, values.begin());
  return values;
}

BranchTiles RowGates::differentiate(TileBuilder &b, const BranchTiles &grads,
                                    const BranchTiles &values) const {
  if (gating == Gating::Given)
    return grads;
  BranchTiles results;
  if (gating == Gating::Sigmoid) {
    for (int64_t c = 0; c < NumBranches; ++c)
      results[c] = b.map({grads[c], values[c]}, ArrayRef<Type>(b.f32()),
                         differentiateGates)[0];
    return results;
  }
  SmallVector<Value> inputs(grads.begin(), grads.end());
  llvm::append_range(inputs, values);
  llvm::copy(b.map(inputs, SmallVector<Type>(NumBranches, b.f32()),
                   differentiateGates),
             results.begin());
  return results;
}

void RowGates::store(const GroupProgram &program, const BranchTiles &values,
                     Value ref) const {
  for (int64_t c = 0; c < NumBranches; ++c)
    program.b.store(values[c], ref, place(program, program.stored, c));
}

//===----------------------------------------------------------------------===//
// Kernel
//===----------------------------------------------------------------------===//

/// Program: (tile of queries, key head, batch). `args` are the operands of the
/// operation, if split the output of the window branch, the union of the
/// selection, and the results of the operation, if split without those of the
/// window branch.
static void buildForward(const GatedAttention &attention, TileBuilder &b,
                         ArrayRef<Value> args, size_t numInputs) {
  ArrayRef<Value> in = args.take_front(numInputs);
  ArrayRef<Value> outputs = args.drop_front(numInputs);
  SelectionUnion selection = attention.selected.takeUnion(in);
  Value q = in[0], compressed = in[1], indices = in[4];
  Value bias = attention.hasBias ? in[8] : Value();
  const AttentionShape &shape = attention.shape;
  GroupProgram program = attention.selected.makeProgram(
      b, attention.selected.queryTileOf(b.programId(0)));
  Value queries = program.loadRows(q, shape.keyWidth);
  auto init = OnlineSoftmax::init(b, program.numRows(), shape.valueWidth);
  auto step = [&](const KeyTile &tile, ArrayRef<Value> carried) {
    return attend(b, queries, tile, shape.exponent(),
                  OnlineSoftmax::fromCarried(carried))
        .carried();
  };
  // Rounded as what the branch would store is.
  Type stored = cast<MemRefType>(outputs[0].getType()).getElementType();
  auto finish = [&](ArrayRef<Value> carried, ArrayRef<Value> kept) {
    auto softmax = OnlineSoftmax::fromCarried(carried);
    Value output = b.convertTo(softmax.output(b), stored);
    if (!kept.empty()) {
      program.storeRows(output, kept[0], shape.valueWidth);
      program.storeStatistic(softmax.lse(b, shape.exponent()), kept[1]);
    }
    return output;
  };
  bool keeps = outputs.size() > 1;
  BranchTiles branches;
  branches[Compressed] = program.loadRows(compressed, shape.valueWidth);
  if (attention.isSplit())
    branches[Window] = program.loadRows(in.back(), shape.valueWidth);
  else
    branches[Window] =
        finish(attention.window.forEachKeyTile(
                   b, attention.window.forwardKeyTile, program.range, in[5],
                   in[6], init.carried(), step),
               keeps ? outputs.slice(3, 2) : ArrayRef<Value>());
  branches[Selected] = finish(
      attention.selected.forEachKeyTile(program, indices, selection, in[2],
                                        in[3], init.carried(), step),
      keeps ? outputs.slice(1, 2) : ArrayRef<Value>());
  RowGates gates(attention.gating, in[7], bias);
  program.storeRows(gatedSum(b, gates.load(program), branches), outputs[0],
                    shape.valueWidth);
}

namespace {
struct ConvertGatedAttention : KernelPattern<GatedAttentionOp> {
  using KernelPattern::KernelPattern;
  LogicalResult matchAndRewrite(GatedAttentionOp op,
                                PatternRewriter &rewriter) const override {
    GatedAttention attention(op, getSchedule());
    const AttentionShape &shape = attention.shape;
    int64_t width = shape.keyWidth + shape.valueWidth;
    KernelSpec spec = {
        "",
        attention.name(),
        {attention.selected.numQueryTiles(), shape.keyHeads, shape.batch},
        attention.selected.flops(width)};
    spec.indices = op.getIndices();
    spec.selectBlock = op.getSelectedVisibility().getIndexBlock();
    SmallVector<Value> inputs(op->getOperands()), windowResults;
    SmallVector<Type> types(op->getResultTypes());
    if (attention.isSplit()) {
      windowResults = launchWindow(op, attention, rewriter);
      inputs.push_back(windowResults[0]);
      types.truncate(std::min<size_t>(types.size(), 3));
    } else {
      spec.flops += attention.window.flops(width);
    }
    llvm::append_range(inputs, attention.selected.launchUnion(
                                   cache, rewriter, op, op.getIndices()));
    SmallVector<Value> results = llvm::to_vector_of<Value>(
        cache.launch(rewriter, op, spec, inputs, types,
                     [&](TileBuilder &b, ArrayRef<Value> args) {
                       buildForward(attention, b, args, inputs.size());
                     }));
    if (results.size() < op->getNumResults())
      llvm::append_range(results, windowResults);
    rewriter.replaceOp(op, results);
    return success();
  }

private:
  /// The output and the log-sum-exp of the window branch.
  SmallVector<Value> launchWindow(GatedAttentionOp op,
                                  const GatedAttention &attention,
                                  PatternRewriter &rewriter) const {
    const AttentionShape &shape = attention.shape;
    auto lse = RankedTensorType::get(
        {shape.batch, shape.queryHeads, shape.sequence}, rewriter.getF32Type());
    return llvm::to_vector_of<Value>(attention.window.launchForward(
        cache, rewriter, op, "win", attention.name(),
        {op.getQuery(), op.getWindowKey(), op.getWindowValue()},
        {op->getResult(0).getType(), lse}));
  }
};
} // namespace

void nsa::populateGatedAttentionPatterns(RewritePatternSet &patterns,
                                         KernelCache &cache) {
  patterns.add<ConvertGatedAttention>(patterns.getContext(), cache);
}
