//===- NNToTile.cpp - kernels of the nn dialect ---------------------------===//

#include "passes/Kernels/NN/NNToTile.h"

#include "dialects/NN/NNOps.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

int64_t nsa::pickTile(int64_t extent, int64_t limit) {
  int64_t covering = std::clamp<int64_t>(llvm::PowerOf2Ceil(extent), 16, limit);
  for (int64_t tile = covering; tile >= std::max<int64_t>(covering / 8, 16);
       tile -= 16)
    if (extent % tile == 0)
      return tile;
  return covering;
}

//===----------------------------------------------------------------------===//
// Grids
//===----------------------------------------------------------------------===//

/// The smallest number of rows of equal length that coordinates of 32 bits
/// reach, or 0.
static int64_t countRows(int64_t elements) {
  constexpr int64_t longest = INT32_MAX - 1024, mostRows = 1 << 16;
  for (int64_t rows = 1; rows < mostRows; ++rows)
    if (elements % rows == 0 && elements / rows <= longest)
      return rows;
  return 0;
}

FlatGrid::FlatGrid(const Extent &elements, MachineAttr machine,
                   int64_t elementsPerProgram)
    : elements(elements), rows(countRows(int64_t(elements))) {
  // What is no constant is one row, or too much.
  Extent width = elements;
  if (rows != 1)
    width = int64_t(elements) / std::max<int64_t>(rows, 1);
  tile = pickTile(int64_t(width), machine.getElementsPerTile());
  tilesPerRow = ceilDiv(width, tile);
  tiles = rows * tilesPerRow;
  perProgram = llvm::divideCeil(elementsPerProgram, tile);
  programs = atLeast(ceilDiv(tiles, perProgram), 1);
  if (rows != 1 && !elements.isConstant())
    rows = 0;
}

/// The elements of a tensor, without the last dimensions.
static Extent countElements(Value tensor, unsigned dropped = 0) {
  Extent elements = 1;
  for (unsigned d = 0, rank = getShape(tensor).size(); d + dropped < rank; ++d)
    elements = elements * getExtent(tensor, d);
  return elements;
}

FlatGrid::FlatGrid(Value tensor, MachineAttr machine)
    : FlatGrid(countElements(tensor), machine) {
  constexpr int64_t fewest = 64;
  ArrayRef<int64_t> shape = nsa::getShape(tensor);
  if (shape.size() < 3 || int64_t(elements) == 0 || rows != 1)
    return;
  int64_t width = ShapedType::getNumElements(shape.drop_front(2));
  int64_t divisor = pickTile(width, machine.getElementsPerTile());
  if (width % divisor != 0 || divisor < fewest)
    return;
  int64_t each = perProgram * tile;
  tile = divisor;
  tiles = tilesPerRow = floorDiv(elements, tile);
  perProgram = llvm::divideCeil(each, tile);
  programs = ceilDiv(tiles, perProgram);
}

SmallVector<Value> FlatGrid::forEachTile(TileBuilder &b, ArrayRef<Value> inits,
                                         TileBody body, int64_t first) const {
  Expr program = b.programId(0);
  Expr start = (first ? program - first : program) * perProgram;
  Expr end = min(start + perProgram, tiles);
  return b.forLoop(start, end, 1, inits, [&](Expr i, ArrayRef<Value> carried) {
    if (rows == 1)
      return body({b.range(i * tile, tile, 1)}, carried);
    Expr row = i / tilesPerRow, first = i % tilesPerRow * tile;
    return body({row, b.range(first, tile, 1)}, carried);
  });
}

RowGrid::RowGrid(Value tensor, int64_t elementsPerProgram, int64_t maxPrograms,
                 int64_t step)
    : rows(countElements(tensor, /*dropped=*/1)),
      width(getShape(tensor).back()), step(step) {
  int64_t some = elementsPerProgram / std::max<int64_t>(width, 1);
  Extent wanted =
      maxPrograms ? atLeast(ceilDiv(rows, maxPrograms), some) : Extent(some);
  perProgram = getSteps(wanted) * step;
  // How many programs rows of an unknown number fill is no expression; others
  // have no rows.
  programs = perProgram.isConstant()
                 ? atLeast(ceilDiv(rows, int64_t(perProgram)), 1)
                 : Extent(maxPrograms);
}

SmallVector<Value> RowGrid::forEachRow(TileBuilder &b, ArrayRef<Value> inits,
                                       TileBuilder::LoopBody body) const {
  Extent steps = floorDiv(perProgram, step);
  Expr start = b.programId(0) * steps;
  Expr end = min(start + steps, ceilDiv(rows, step));
  return b.forLoop(start, end, 1, inits, [&](Expr i, ArrayRef<Value> carried) {
    return body(step == 1 ? i : i * step, carried);
  });
}

//===----------------------------------------------------------------------===//
// Shared kernels
//===----------------------------------------------------------------------===//

Value nsa::sumRows(TileBuilder &b, Value partials, Value cols, int64_t atOnce) {
  int64_t rows = cast<MemRefType>(partials.getType()).getDimSize(0);
  int64_t tile = cast<TileType>(cols.getType()).getCols();
  if (rows < atOnce)
    atOnce = 1;
  Value sums =
      b.forLoop(0, rows, atOnce, {b.zeros(atOnce, tile)},
                [&](Expr row, ArrayRef<Value> carried) -> SmallVector<Value> {
                  Value part =
                      atOnce == 1
                          ? b.load(partials, {row, cols})
                          : b.load(partials, {b.range(row, atOnce, 0), cols});
                  return {add(b, carried[0], part)};
                })[0];
  return atOnce == 1 ? sums : b.reduceAdd(sums, /*axis=*/0);
}

Value nsa::launchSumOfRows(KernelCache &cache, OpBuilder &builder,
                           Operation *op, Value partials, Type result) {
  int64_t rows = getDim(partials, 0), width = getDim(partials, 1);
  MachineAttr machine = cache.getMachine();
  int64_t tile = pickTile(width, machine.getSumColumns());
  KernelSpec spec = {
      "sum",
      "t" + std::to_string(rows) + "x" + std::to_string(width),
      {static_cast<int64_t>(llvm::divideCeil(width, tile)), 1, 1},
      rows * width};
  return cache.launch(builder, op, spec, partials, result,
                      [&](TileBuilder &b, ArrayRef<Value> args) {
                        auto [rows, sums] = named<2>(args);
                        Value cols = b.range(b.programId(0) * tile, tile, 1);
                        Value sum =
                            sumRows(b, rows, cols, machine.getSumRows());
                        b.store(sum, b.view(sums, {width}), {cols});
                      })[0];
}

/// A sum over rows that is not partial, computed by `op` or inside of it.
static OpResult findRowSum(Operation *op) {
  OpResult sum;
  op->walk([&](RowSumOpInterface summing) {
    if (OpResult result = summing.getRowSum())
      sum = result;
  });
  return sum;
}

/// The result of `op` that is `sum`, computed by it or inside of it; null if
/// only the inside uses it.
static OpResult getResultFor(Operation *op, OpResult sum) {
  if (sum.getOwner() == op)
    return sum;
  for (auto [yielded, result] :
       llvm::zip_equal(cast<nn::FusedOp>(op).getYielded(), op->getResults()))
    if (yielded == sum)
      return cast<OpResult>(result);
  return {};
}

FailureOr<SmallVector<Value>>
nsa::launchWithRowSum(KernelCache &cache, PatternRewriter &rewriter,
                      Operation *op,
                      llvm::function_ref<FailureOr<ResultRange>()> launch) {
  OpResult sum = findRowSum(op);
  OpResult result = sum ? getResultFor(op, sum) : OpResult();
  Type type = result ? result.getType() : Type();
  if (sum)
    rewriter.modifyOpInPlace(op, [&] {
      cast<RowSumOpInterface>(sum.getOwner())
          .makeRowSumPartial(cache.getMachine().getPrograms());
      if (result)
        result.setType(sum.getType());
    });
  FailureOr<ResultRange> launched = launch();
  if (failed(launched))
    return failure();
  SmallVector<Value> results(launched->begin(), launched->end());
  if (result) {
    Value &partial = results[result.getResultNumber()];
    partial = launchSumOfRows(cache, rewriter, op, partial, type);
  }
  return results;
}

void nsa::populateNNToTilePatterns(KernelPatterns &patterns) {
  populateFusiblePatterns(patterns);
  populateEmbeddingPatterns(patterns);
  populateArgmaxPatterns(patterns);
  populateDrawPatterns(patterns);
  populateRowSumPatterns(patterns);
  populateGatePatterns(patterns);
  populateCrossEntropyPatterns(patterns);
  populateChunkPatterns(patterns);
  populateOptimizerPatterns(patterns);
}
