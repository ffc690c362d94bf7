//===- Chunks.cpp - rows out of a tensor and back, losses of all ----------===//

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// Copies between tensors of rows and a tensor of all of them. Program: a
/// range of rows of one part.
static void copyRows(TileBuilder &b, const RowGrid &grid, ArrayRef<Value> parts,
                     Value whole, bool split) {
  int64_t tile = pickTile(grid.width, 1024), firstProgram = 0, firstRow = 0;
  auto each = int64_t(grid.perProgram);
  whole = grid.viewRows(b, whole);
  Expr program = b.programId(0);
  auto copy = [&](Value source, Expr from, Value target, Expr to) {
    b.forLoop(0, int64_t(llvm::divideCeil(grid.width, tile)), 1, {},
              [&](Expr i, ArrayRef<Value>) -> SmallVector<Value> {
                Value cols = b.range(i * tile, tile, 1);
                b.store(b.load(source, {from, cols}), target, {to, cols});
                return {};
              });
  };
  for (Value part : parts) {
    int64_t rows = cast<MemRefType>(part.getType()).getDimSize(0);
    int64_t end = firstProgram + llvm::divideCeil(rows, each);
    b.ifThen((program >= firstProgram) & (program < end), [&] {
      Expr start = (program - firstProgram) * each;
      b.forLoop(start, min(start + each, rows), 1, {},
                [&](Expr row, ArrayRef<Value>) -> SmallVector<Value> {
                  if (split)
                    copy(whole, row + firstRow, part, row);
                  else
                    copy(part, row, whole, row + firstRow);
                  return {};
                });
    });
    firstProgram = end;
    firstRow += rows;
  }
}

/// `nn.split_rows` and `nn.concat_rows`.
template <typename OpT>
static LogicalResult convertRows(OpT op, KernelCache &cache,
                                 PatternRewriter &rewriter) {
  constexpr bool split = std::is_same_v<OpT, nn::SplitRowsOp>;
  Value whole;
  if constexpr (split)
    whole = op.getInput();
  else
    whole = op.getOutput();
  RowGrid grid(whole, cache.getMachine().getElementsPerProgram());
  int64_t programs = 0;
  for (Value part : op.getParts())
    programs += llvm::divideCeil(getDim(part, 0), int64_t(grid.perProgram));
  KernelSpec spec = {"", grid.name(), {std::max<int64_t>(programs, 1), 1, 1}};
  auto build = [&](TileBuilder &b, ArrayRef<Value> args) {
    copyRows(b, grid, split ? args.drop_front() : args.drop_back(),
             split ? args.front() : args.back(), split);
  };
  return cache.replace(rewriter, op, spec, build);
}

/// One program: counts in tiles, exact as integers are.
static LogicalResult convertCountTargets(nn::CountTargetsOp op,
                                         KernelCache &cache,
                                         PatternRewriter &rewriter) {
  int64_t elements = ShapedType::getNumElements(getShape(op.getTargets()));
  int64_t tile = pickTile(elements, 1024);
  auto build = [&](TileBuilder &b, auto in, ArrayRef<Value> out) {
    Value targets = b.view(in.getTargets(), {elements});
    Value counts = b.forLoop(
        0, int64_t(llvm::divideCeil(elements, tile)), 1, {b.zeros(1, tile)},
        [&](Expr i, ArrayRef<Value> carried) -> SmallVector<Value> {
          Value place = b.range(i * tile, tile, 1);
          return {b.map({carried[0], b.load(targets, {place}), place}, b.f32(),
                        [&](ArrayRef<Expr> x) {
                          Expr counts = (x[1] >= 0) & (x[2] < elements);
                          return x[0] + convert(counts, b.f32());
                        })};
        })[0];
    Value count = b.reduceAdd(counts);
    if (op.getOverAll())
      count = b.map({count}, b.f32(),
                    [&](ArrayRef<Expr> x) { return x[0] / double(elements); });
    b.store(count, b.view(out.front(), {1}), {b.range(0, 1, 0)});
  };
  KernelSpec spec = {op.getOverAll() ? "over_all" : "",
                     "n" + std::to_string(elements),
                     {1, 1, 1}};
  return replaceByKernel(cache, rewriter, op, spec, build);
}

/// One program: the losses of each chunk in order.
static LogicalResult convertMeanLoss(nn::MeanLossOp op, KernelCache &cache,
                                     PatternRewriter &rewriter) {
  auto build = [&](TileBuilder &b, auto in, ArrayRef<Value> out) {
    constexpr int64_t tile = 256;
    Value sums = b.zeros(1, tile);
    for (Value losses : in.getLosses()) {
      int64_t rows = cast<MemRefType>(losses.getType()).getDimSize(0);
      sums =
          b.forLoop(0, int64_t(llvm::divideCeil(rows, tile)), 1, {sums},
                    [&](Expr i, ArrayRef<Value> carried) -> SmallVector<Value> {
                      Value part = b.load(losses, {b.range(i * tile, tile, 1)});
                      return {add(b, carried[0], part)};
                    })[0];
    }
    Value place = b.range(0, 1, 0);
    Value count = b.load(b.view(in.getCount(), {1}), {place});
    b.store(b.map({b.reduceAdd(sums), count}, b.f32(),
                  [](ArrayRef<Expr> x) { return x[0] / max(x[1], 1); }),
            b.view(out.front(), {1}), {place});
  };
  KernelSpec spec = {
      "", "n" + std::to_string(op.getLosses().size()), {1, 1, 1}};
  return replaceByKernel(cache, rewriter, op, spec, build);
}

void nsa::populateChunkPatterns(KernelPatterns &patterns) {
  patterns.add(convertRows<nn::SplitRowsOp>, convertRows<nn::ConcatRowsOp>,
               convertCountTargets, convertMeanLoss);
}
