//===- AttentionForward.cpp - attention and gated sums of it --------------===//
//
// One kernel: a program goes through the keys of its rows with an online
// softmax, once for each branch, and stores the output, or the gated sum of the
// outputs of all branches, which then never have to come back from memory.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/AttentionBranches.h"
#include "passes/Kernels/NSA/GatheredAttention.h"
#include "passes/Kernels/NSA/NSAToTile.h"
#include "passes/Kernels/Rotation.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Kernel
//===----------------------------------------------------------------------===//

namespace {
/// Results of a kernel; null where nothing reads one.
struct ForwardResults {
  struct Branch {
    Value output, lse;
  };

  /// The gated sum, and what there is of each branch.
  Value sum;
  SmallVector<Branch> branches;
};
} // namespace

/// Program: (tile of queries, key head, batch), with ranges of keys (tile of
/// queries, some heads of a group, batch).
static void buildForward(TileBuilder &b, const AttentionBranches &attention,
                         const AttentionOperands &in,
                         const ForwardResults &out) {
  const DenseAttention *range = attention.getRange();
  AttentionShape shape = attention.shape;
  shape.takesShortcuts = range && range->isIssueBound();
  RowProgram program =
      range ? range->makeForwardProgram(b)
            : attention.selected->makeProgram(
                  b, attention.selected->queryTileOf(b.programId(0)));
  program.range.setSequences(b, shape, in.at, in.start);
  Value queries = program.loadRows(in.query, shape.columns(b, shape.keyWidth));
  Value columns = shape.ownColumns(b, shape.valueWidth);

  BranchTiles outputs(attention.size());
  auto loadGiven = [&] {
    for (auto [branch, output] : llvm::zip_equal(in.branches, outputs))
      if (branch.output)
        output = program.loadRows(branch.output, columns);
  };
  auto attendTo = [&](int64_t branch) {
    OnlineSoftmax softmax = attendToKeys(
        b, shape, queries, [&](ArrayRef<Value> inits, KeyTileBody body) {
          return attention.forEachKeyTile(program, branch, in, inits, body);
        });
    Value output = softmax.output(b);
    const ForwardResults::Branch &kept = out.branches[branch];
    // Rounded as what the branch would store is.
    if (out.sum)
      output = b.convertTo(
          output, cast<MemRefType>(out.sum.getType()).getElementType());
    if (kept.output)
      program.storeRows(output, kept.output, columns);
    if (kept.lse)
      shape.buildOnce(b, [&] {
        program.storeStatistic(softmax.lse(b, shape.exponent()), kept.lse);
      });
    outputs[branch] = output;
  };

  // Several programs of warpgroups share the registers of a multiprocessor.
  bool loadsLater =
      attention.hasMasks() ||
      (attention.selected && attention.selected->multipliesUnions());
  if (!loadsLater)
    loadGiven();
  for (int64_t branch : attention.getDense())
    attendTo(branch);
  if (attention.selected)
    attendTo(attention.number);
  if (loadsLater)
    loadGiven();
  if (out.sum)
    program.storeRows(
        gatedSum(b, attention.getGates(in).load(program), outputs), out.sum,
        columns);
}

//===----------------------------------------------------------------------===//
// Launch
//===----------------------------------------------------------------------===//

/// Replaces `op`, which is the attention of `sum` or holds it.
static LogicalResult launchForward(Operation *op, FusedSum sum,
                                   KernelCache &cache,
                                   PatternRewriter &rewriter) {
  MachineAttr machine = cache.getMachine();
  AttentionBranches attention(sum, machine);
  bool hasMasks = false;
  auto kernel = AttentionKernel::Forward;
  if (attention.selected) {
    SelectedForms forms(op, *attention.selected);
    auto own = dyn_cast<AttentionOp>(op);
    if (own && forms.forward == SelectionForm::Gathered) {
      rewriter.replaceOp(
          op, GatheredAttention::launchForward(own, cache, rewriter));
      return success();
    }
    hasMasks = forms.forward == SelectionForm::Masks;
    kernel = AttentionKernel::SelectedForward;
  }
  ChosenSchedule own =
      attention.shape.choose(cache, op, hasMasks ? "masks" : "", kernel);
  attention = AttentionBranches(sum, KernelCut(machine, own.sizes), hasMasks,
                                own.columnParts);

  const AttentionShape &shape = attention.shape;
  KernelSpec spec;
  if (const DenseAttention *range = attention.getRange())
    spec = range->forwardSpec(hasMasks ? "masks" : "", attention.name());
  else
    spec = {"",
            attention.name(),
            {attention.selected->numQueryTiles(), shape.keyHeads, shape.batch}};
  int64_t width = shape.keyWidth + shape.valueWidth;
  spec.flops = attention.denseFlops(width);
  if (attention.selected)
    spec.flops += attention.selected->flops(width);
  spec.takesExtents = !attention.isPacked() && !shape.isPlaced;
  spec.lastRowsFirst = shape.isPlaced;
  spec.schedule = own;

  AttentionOp first = AttentionBranches::getFirst(sum);
  Value indices, start = getOutside(op, first.getStart());
  Value at = getOutside(op, first.getAt());
  if (const auto &selected = attention.selected)
    indices = selected->launchNumbers(
        cache, rewriter, op, getOutside(op, first.getIndices()), start, at);
  if (attention.hasLists()) {
    spec.setIndices(indices, first.getVisibility().getIndexBlock(), at);
  } else if (hasMasks) {
    indices = SelectionMasks::launch(cache, rewriter, op, indices,
                                     *attention.selected, at);
  }
  AttentionOperands operands = attention.getOperands(op, sum, indices);
  for (auto [number, branch] : llvm::enumerate(operands.branches))
    if (!branch.key)
      branch.output = getOutside(op, sum.combine.getBranches()[number]);
  if (attention.hasLists())
    operands.selection = attention.selected->launchUnion(cache, rewriter, op,
                                                         indices, start, at);

  auto fused = dyn_cast<FusedOp>(op);
  ValueRange results =
      fused ? ValueRange(fused.getYielded()) : ValueRange(op->getResults());
  return replaceBy(
      cache, rewriter, op, spec, operands,
      [&](TileBuilder &b, const AttentionOperands &in, ArrayRef<Value> out) {
        auto find = [&](Value inside) {
          auto found = llvm::find(results, inside);
          return found == results.end() ? Value()
                                        : out[found - results.begin()];
        };
        ForwardResults own;
        if (fused)
          own.sum = out.front();
        for (AttentionOp branch : sum.branches) {
          own.branches.emplace_back();
          if (branch)
            own.branches.back() = {find(branch.getOutput()),
                                   find(branch.getLse())};
        }
        buildForward(b, attention, in, own);
      });
}

static LogicalResult convertAttention(AttentionOp op, KernelCache &cache,
                                      PatternRewriter &rewriter) {
  return launchForward(op, FusedSum::of(op), cache, rewriter);
}

static LogicalResult convertFused(FusedOp op, KernelCache &cache,
                                  PatternRewriter &rewriter) {
  if (op.isBackward())
    return failure();
  return launchForward(op, *FusedSum::get(op), cache, rewriter);
}

//===----------------------------------------------------------------------===//
// Rotary attention
//===----------------------------------------------------------------------===//

/// The program of a query head rotates its rows, and those of the keys' head of
/// that number, before it goes through keys.
static void buildRotaryForward(TileBuilder &b,
                               const AttentionBranches &attention,
                               RotaryAttentionOp::Adaptor in,
                               ArrayRef<Value> out) {
  auto [output, lse, rotatedQuery] = named<3>(out.take_front(3));
  RowProgram program = attention.getRange()->makeForwardProgram(b);
  const QueryRange &range = program.range;
  Expr head = b.expr(program.head);
  auto rotate = [&](Value from, Value to) {
    rotateRange(b, from, to, in.getTable(), range.batch, head, range.first,
                range.count, /*stride=*/1, /*inverse=*/false, in.getStart());
  };
  rotate(in.getQuery(), rotatedQuery);
  for (auto [from, to] : llvm::zip_equal(in.getKeys(), out.drop_front(3))) {
    int64_t heads = cast<MemRefType>(from.getType()).getShape()[2];
    b.ifThen(head < static_cast<double>(heads),
             [&, from = from, to = to] { rotate(from, to); });
  }
  AttentionOperands own;
  own.query = rotatedQuery;
  own.branches = {{in.getKey(), in.getValue()}};
  own.start = in.getStart();
  buildForward(b, attention, own, {/*sum=*/Value(), {{output, lse}}});
}

static LogicalResult convertRotaryAttention(RotaryAttentionOp op,
                                            KernelCache &cache,
                                            PatternRewriter &rewriter) {
  ChosenSchedule own =
      getShapeOf(op).choose(cache, op, "", AttentionKernel::RotaryForward);
  DenseAttention range(getShapeOf(op), op.getVisibility(),
                       KernelCut(cache.getMachine(), own.sizes));
  range.shape.columnParts = own.columnParts;
  range.isPacked = op.getStart() != nullptr;
  // Programs rotate the rows of one head.
  range.packedHeads = 1;
  KernelSpec spec = range.forwardSpec("", range.name());
  spec.schedule = own;
  spec.takesExtents =
      spec.takesExtents && hasAnglesOfAll(op.getTable(), range.shape.sequence);
  return replaceByKernel(
      cache, rewriter, op, spec, [&](auto &b, auto in, ArrayRef<Value> out) {
        buildRotaryForward(b, AttentionBranches(range), in, out);
      });
}

void nsa::populateAttentionPatterns(KernelPatterns &patterns) {
  patterns.add(convertAttention, convertFused, convertRotaryAttention);
}
