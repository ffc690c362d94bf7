//===- Optimizer.cpp - gradient norm and updates --------------------------===//

#include "dialects/Interfaces/OptimizerOpInterface.h"
#include "dialects/NN/NNOptimizers.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Kernels/NN/NNToTile.h"

#include <limits>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Gradient norm
//===----------------------------------------------------------------------===//

/// Each gradient has as many partial sums as the schedule allows, so that one
/// kernel adds them whatever the shapes.
static FlatGrid getNormGrid(Value gradient, MachineAttr machine) {
  FlatGrid grid(ShapedType::getNumElements(getShape(gradient)), machine);
  grid.programs = machine.getPrograms();
  grid.perProgram = std::max<int64_t>(
      llvm::divideCeil(int64_t(grid.tiles), int64_t(grid.programs)),
      4096 / grid.tile);
  return grid;
}

/// Program: a range of what the grid is over, possibly empty. Sums its squares.
template <typename GridT>
static void buildSquares(TileBuilder &b, const GridT &grid,
                         ArrayRef<Value> args) {
  auto [elements, sum] = named<2>(args);
  Value input = grid.view(b, elements);
  Value sums = grid.forEachTile(
      b, {b.zeros(1, grid.tile)},
      [&](ArrayRef<Operand> at, ArrayRef<Value> carried) -> SmallVector<Value> {
        return {b.map({carried[0], b.load(input, at)}, b.f32(),
                      [](ArrayRef<Expr> x) { return x[0] + x[1] * x[1]; })};
      })[0];
  b.store(b.reduceAdd(sums), sum, {b.range(b.programId(0), 1, 0)});
}

/// Gradients whose parts one kernel adds: GPUs take a few hundred pointers.
static constexpr size_t kMostParts = 128;

/// The parts of gradients, in order, as a row.
static Value sumParts(TileBuilder &b, ArrayRef<Value> gradients) {
  int64_t count =
      cast<MemRefType>(gradients.front().getType()).getNumElements();
  Value i = b.range(0, count, 1);
  Value sums = b.zeros(1, count);
  for (Value parts : gradients)
    sums = add(b, sums, b.load(parts, {i}));
  return sums;
}

/// One program: the parts of the first gradients, for a kernel that goes on.
static void buildSumOfParts(TileBuilder &b, ArrayRef<Value> args) {
  int64_t count = cast<MemRefType>(args.back().getType()).getNumElements();
  b.store(sumParts(b, args.drop_back()), args.back(), {b.range(0, count, 1)});
}

/// One program: the parts of all gradients, in order.
static void buildNorm(TileBuilder &b, bool squared, ArrayRef<Value> args) {
  Value sums = sumParts(b, args.drop_back());
  Value norm = b.map({b.reduceAdd(sums)}, b.f32(), [&](ArrayRef<Expr> x) {
    return squared ? x[0] : sqrt(x[0]);
  });
  b.store(norm, b.view(args.back(), {1}), {b.range(0, 1, 0)});
}

//===----------------------------------------------------------------------===//
// Norms of matrices
//===----------------------------------------------------------------------===//

namespace {
/// The grid of one of `batch` matrices that lie one below the other: program
/// `p` of the kernel is `p % programs` of matrix `p / programs`.
struct MatrixGrid : private FlatGrid {
  MatrixGrid(nn::NormalizeOp op, MachineAttr machine)
      : FlatGrid(op.getInput().getType().getNumElements() / op.getBatch(),
                 machine),
        batch(op.getBatch()) {
    // Every program adds up the partial sums of its matrix.
    perProgram = std::max<int64_t>(
        perProgram, llvm::divideCeil(int64_t(tiles), machine.getPrograms()));
    programs =
        std::max<int64_t>(llvm::divideCeil(int64_t(tiles), perProgram), 1);
  }

  using FlatGrid::tile;
  bool fits() const { return rows == 1; }
  int64_t getParts() const { return int64_t(programs); }
  int64_t getPrograms() const { return batch * getParts(); }
  Value view(TileBuilder &b, Value ref) const {
    return b.view(ref, {batch, int64_t(elements)});
  }
  SmallVector<Value> forEachTile(TileBuilder &b, ArrayRef<Value> inits,
                                 TileBody body) const {
    Expr matrix = b.programId(0) / programs;
    Expr first = b.programId(0) % programs * perProgram;
    Expr end = min(first + perProgram, tiles);
    return b.forLoop(
        first, end, 1, inits, [&](Expr i, ArrayRef<Value> carried) {
          return body({matrix, b.range(i * tile, tile, 1)}, carried);
        });
  }

  int64_t batch;
};
} // namespace

static void buildNormalize(TileBuilder &b, const MatrixGrid &grid,
                           ArrayRef<Value> args) {
  auto [input, squares, output] = named<3>(args);
  int64_t parts = grid.getParts();
  Value x = grid.view(b, input), y = grid.view(b, output);
  Value sums = b.view(squares, {grid.batch, parts});
  Expr matrix = b.programId(0) / parts;
  Value square = b.reduceAdd(b.load(sums, {matrix, b.range(0, parts, 1)}));
  Value inverse = b.map({square}, b.f32(), [](ArrayRef<Expr> x) {
    return 1 / (sqrt(x[0]) + 1e-7);
  });
  grid.forEachTile(
      b, {}, [&](ArrayRef<Operand> at, ArrayRef<Value>) -> SmallVector<Value> {
        Value unit = b.map({b.load(x, at), inverse}, b.f32(),
                           [](ArrayRef<Expr> x) { return x[0] * x[1]; });
        b.store(unit, y, at);
        return {};
      });
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

/// Programs are ranges of the flat tensors. Each tile is read before it is
/// written, so the results may take the memory of the operands.
static void buildElementwiseUpdate(TileBuilder &b, const FlatGrid &grid,
                                   ElementwiseUpdateOpInterface op,
                                   ArrayRef<Value> args) {
  unsigned numElements = op.getNumElementOperands();
  unsigned numOperands = op->getNumOperands();
  auto load = [&](Value memory, ArrayRef<int64_t> indices) {
    return b.loadScalar(memory, llvm::to_vector_of<Operand>(indices));
  };
  SmallVector<Value> scalars = op.buildScalars(
      b.getBuilder(), args.slice(numElements, numOperands - numElements), load);
  SmallVector<Value> inputs, outputs;
  for (Value input : args.take_front(numElements))
    inputs.push_back(grid.view(b, input));
  for (Value output : args.drop_front(numOperands))
    outputs.push_back(grid.view(b, output));
  auto update = [&](ArrayRef<Expr> x) {
    return op.buildElements(b.getBuilder(), SmallVector<Value>(x), scalars);
  };
  SmallVector<Type> types(outputs.size(), b.f32());
  auto updateTile = [&](ArrayRef<Operand> at,
                        ArrayRef<Value>) -> SmallVector<Value> {
    auto tiles = llvm::map_to_vector(
        inputs, [&](Value input) { return b.load(input, at); });
    auto results = b.map(tiles, types, update);
    for (auto [result, output] : llvm::zip_equal(results, outputs))
      b.store(result, output, at);
    return {};
  };
  grid.forEachTile(b, {}, updateTile);
}

/// One program, of scalars: see nn.average_step.
static void buildAverageStep(TileBuilder &b, nn::AverageStepOp::Adaptor in,
                             ArrayRef<Value> out) {
  auto [meanHyper, meanLoss] = named<2>(out);
  Expr count = b.loadScalar(in.getCount(), {});
  for (int i = 0; i < training::numHyper; ++i) {
    Expr value = b.loadScalar(in.getHyper(), {i});
    b.storeScalar(i == training::gradScaleSlot ? value / count : value,
                  meanHyper, {i});
  }
  b.storeScalar(b.loadScalar(in.getLoss(), {}) / count, meanLoss, {});
}

/// One program, of scalars: see nn.update_loss_scale.
static void buildLossScale(TileBuilder &b, nn::UpdateLossScaleOp::Adaptor in,
                           ArrayRef<Value> out) {
  auto [unscaledHyper, unscaledNorm, newScale, newStreak, newSkipped] =
      named<5>(out);
  constexpr double largest = 0x1p24;
  double infinity = std::numeric_limits<double>::infinity();
  auto load = [&](Value scalar) { return b.loadScalar(scalar, {}); };
  Expr norm = load(in.getNorm()), loss = load(in.getLoss());
  Expr scale = load(in.getScale()), streak = load(in.getStreak());
  Expr skipped = load(in.getSkipped());
  Expr ok = (abs(norm) < infinity) & (abs(loss) < infinity);
  Expr full = streak + 1 >= double(in.getGrowthInterval());
  Expr doubled = min(scale * 2, largest);
  for (int i = 0; i < training::numHyper; ++i) {
    Expr value = b.loadScalar(in.getHyper(), {i});
    value = i == training::gradScaleSlot ? value / scale
            : i == training::stepSlot    ? value - skipped
                                         : value;
    b.storeScalar(value, unscaledHyper, {i});
  }
  b.storeScalar(norm / scale, unscaledNorm, {});
  b.storeScalar(select(ok, select(full, doubled, scale), scale * 0.5), newScale,
                {});
  b.storeScalar(select(ok & !full, streak + 1, 0), newStreak, {});
  b.storeScalar(select(ok, skipped, skipped + 1), newSkipped, {});
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

namespace {
static LogicalResult convertGradientNorm(nn::GradientNormOp op,
                                         KernelCache &cache,
                                         PatternRewriter &rewriter) {
  if (op.getGradients().empty()) {
    rewriter.replaceOpWithNewOp<nn::FillOp>(op, rewriter.getF64FloatAttr(0.0),
                                            TypeAttr::get(op.getType()));
    return success();
  }
  for (Value gradient : op.getGradients())
    if (!getNormGrid(gradient, cache.getMachine()).fits())
      return rewriter.notifyMatchFailure(op, "too many elements");
  SmallVector<Value> parts;
  Type type = RankedTensorType::get(cache.getMachine().getPrograms(),
                                    rewriter.getF32Type());
  for (Value gradient : op.getGradients()) {
    FlatGrid grid = getNormGrid(gradient, cache.getMachine());
    KernelSpec spec = {"squares_" + formatShape(getShape(gradient)),
                       "",
                       {grid.programs, 1, 1},
                       2 * int64_t(grid.elements)};
    parts.push_back(cache.launch(rewriter, op, spec, gradient, type,
                                 [&](auto &b, ArrayRef<Value> args) {
                                   buildSquares(b, grid, args);
                                 })[0]);
  }
  while (parts.size() > kMostParts) {
    KernelSpec spec = {"parts", "n" + std::to_string(kMostParts), {1, 1, 1}};
    Value sum =
        cache.launch(rewriter, op, spec, ArrayRef(parts).take_front(kMostParts),
                     type, buildSumOfParts)[0];
    parts.erase(parts.begin() + 1, parts.begin() + kMostParts);
    parts.front() = sum;
  }
  bool squared = op.getSquared();
  KernelSpec spec = {
      squared ? "sum" : "", "n" + std::to_string(parts.size()), {1, 1, 1}};
  return cache.replace(
      rewriter, op, spec, parts,
      [&](auto &b, ArrayRef<Value> args) { buildNorm(b, squared, args); });
}

static LogicalResult convertNormalize(nn::NormalizeOp op, KernelCache &cache,
                                      PatternRewriter &rewriter) {
  MatrixGrid grid(op, cache.getMachine());
  if (!grid.fits())
    return rewriter.notifyMatchFailure(op, "too many elements");
  Value input = op.getInput();
  int64_t elements = op.getInput().getType().getNumElements();
  std::string name =
      formatShape(getShape(input)) + "_n" + std::to_string(grid.batch);
  KernelSpec spec = {
      "squares_" + name, "", {grid.getPrograms(), 1, 1}, 2 * elements};
  Value sums = cache.launch(
      rewriter, op, spec, input,
      RankedTensorType::get(grid.getPrograms(), rewriter.getF32Type()),
      [&](auto &b, ArrayRef<Value> args) { buildSquares(b, grid, args); })[0];
  spec = {"", name, {grid.getPrograms(), 1, 1}, elements};
  return cache.replace(
      rewriter, op, spec, {input, sums},
      [&](auto &b, ArrayRef<Value> args) { buildNormalize(b, grid, args); });
}

static LogicalResult convertRootOfMean(nn::RootOfMeanOp op, KernelCache &cache,
                                       PatternRewriter &rewriter) {
  KernelSpec spec = {"", "ranks" + std::to_string(op.getRanks()), {1, 1, 1}};
  return replaceByKernel(
      cache, rewriter, op, spec, [](auto &b, auto in, ArrayRef<Value> out) {
        Expr mean = b.loadScalar(in.getMean(), {});
        b.storeScalar(sqrt(mean * double(in.getRanks())), out.front(), {});
      });
}

static LogicalResult convertAverageStep(nn::AverageStepOp op,
                                        KernelCache &cache,
                                        PatternRewriter &rewriter) {
  return replaceByKernel(cache, rewriter, op, {"", "", {1, 1, 1}},
                         buildAverageStep);
}

static LogicalResult convertUpdateLossScale(nn::UpdateLossScaleOp op,
                                            KernelCache &cache,
                                            PatternRewriter &rewriter) {
  std::string interval = std::to_string(op.getGrowthInterval());
  return replaceByKernel(cache, rewriter, op,
                         {"", "every" + interval, {1, 1, 1}}, buildLossScale);
}

class ConvertElementwiseUpdate
    : public OpInterfaceRewritePattern<ElementwiseUpdateOpInterface> {
public:
  ConvertElementwiseUpdate(MLIRContext *context, KernelCache &cache)
      : OpInterfaceRewritePattern(context), cache(cache) {}

  LogicalResult matchAndRewrite(ElementwiseUpdateOpInterface op,
                                PatternRewriter &rewriter) const override {
    // A program has a few numbers to compute first.
    FlatGrid grid(ShapedType::getNumElements(getShape(op->getOperand(0))),
                  cache.getMachine(), /*elementsPerProgram=*/16384);
    if (!grid.fits())
      return rewriter.notifyMatchFailure(op, "too many elements");
    auto step = dyn_cast<OptimizerOpInterface>(op.getOperation());
    KernelSpec spec = {"",
                       (step && step.getDecay() ? "decay_" : "") + grid.name(),
                       {grid.programs, 1, 1},
                       op.getFlopsPerElement() * int64_t(grid.elements)};
    return cache.replace(rewriter, op, spec,
                         [&](auto &b, ArrayRef<Value> args) {
                           buildElementwiseUpdate(b, grid, op, args);
                         });
  }

private:
  KernelCache &cache;
};
} // namespace

void nsa::populateOptimizerPatterns(KernelPatterns &patterns) {
  patterns.add(convertGradientNorm, convertNormalize, convertRootOfMean,
               convertAverageStep, convertUpdateLossScale);
  patterns.set.add<ConvertElementwiseUpdate>(patterns.set.getContext(),
                                             patterns.cache);
}
