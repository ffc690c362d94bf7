//===- RMSNorm.cpp - normalisation and biases of rows ---------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/KernelGraph.h"
#include "passes/Kernels/NN/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

template <typename OpT>
static Value loadWeights(TileBuilder &b, const KernelFrame &frame, OpT op,
                         Value cols) {
  Value weights = b.load(frame.getInput(op.getWeight()), {cols});
  if (!op.getPlusOne())
    return weights;
  return b.map({weights}, b.f32(), [](ArrayRef<Expr> x) { return 1 + x[0]; });
}

/// Program: a range of rows.
static void buildForward(TileBuilder &b, const RowGrid &grid,
                         const KernelGraph &graph, ArrayRef<Value> args) {
  auto op = graph.getRoot<nn::RMSNormOp>();
  double eps = op.getEps().convertToDouble();
  KernelFrame frame(b, graph, args, {grid.rows, grid.width});
  Value rstds = frame.getOutput(op.getRstd());
  if (rstds)
    rstds = grid.viewPerRow(b, rstds);
  Value cols = b.range(0, grid.width, 1);
  Value weights = loadWeights(b, frame, op, cols);
  grid.forEachRow(b, {}, [&](Expr row, ArrayRef<Value>) -> SmallVector<Value> {
    Elements at(frame, op, {grid.rowsFrom(b, row), cols});
    Value input = at.getF32(op.getInput());
    Value squares =
        b.map({input}, b.f32(), [](ArrayRef<Expr> x) { return x[0] * x[0]; });
    Value rstd = b.map({b.reduceAdd(squares)}, b.f32(), [&](ArrayRef<Expr> x) {
      return 1 / sqrt(x[0] * (1.0 / grid.width) + eps);
    });
    at.set(op.getOutput(),
           b.map({input, rstd, weights}, b.f32(),
                 [](ArrayRef<Expr> x) { return x[0] * x[1] * x[2]; }));
    at.storeOutputs();
    if (rstds)
      b.store(rstd, rstds, {b.range(row, grid.step, 0)});
    return {};
  });
}

/// Program: a range of rows, whose dweight is one row of the partial sums.
static void buildBackward(TileBuilder &b, const RowGrid &grid,
                          const KernelGraph &graph, ArrayRef<Value> args) {
  auto op = graph.getRoot<nn::RMSNormBackwardOp>();
  KernelFrame frame(b, graph, args, {grid.rows, grid.width});
  Value rstds = grid.viewPerRow(b, frame.getInput(op.getRstd()));
  Value partials = frame.getOutput(op.getWeightGrad());
  Value cols = b.range(0, grid.width, 1);
  Value weights = loadWeights(b, frame, op, cols);
  auto buildRow = [&](Expr row, ArrayRef<Value> carried) -> SmallVector<Value> {
    Elements at(frame, op, {grid.rowsFrom(b, row), cols});
    Value grad = at.getF32(op.getOutputGrad());
    Value rstd = b.load(rstds, {b.range(row, grid.step, 0)});
    Value normed = b.map({at.get(op.getInput()), rstd}, b.f32(),
                         [](ArrayRef<Expr> x) { return x[0] * x[1]; });
    auto products =
        b.map({grad, normed, weights, carried[0]}, {b.f32(), b.f32()},
              [](ArrayRef<Expr> x) -> SmallVector<Value> {
                Expr product = x[0] * x[1];
                return {product * x[2], x[3] + product};
              });
    Value mean =
        b.map({b.reduceAdd(products[0])}, b.f32(),
              [&](ArrayRef<Expr> x) { return x[0] * (1.0 / grid.width); });
    at.set(op.getInputGrad(), b.map({grad, weights, normed, mean, rstd},
                                    b.f32(), [](ArrayRef<Expr> x) {
                                      return x[4] * (x[0] * x[1] - x[2] * x[3]);
                                    }));
    at.storeOutputs();
    return {products[1]};
  };
  Value sum =
      grid.forEachRow(b, {b.zeros(grid.step, grid.width)}, buildRow).front();
  if (partials && grid.step > 1)
    sum = b.reduceAdd(sum, /*axis=*/0);
  if (partials)
    b.store(sum, partials, {b.programId(0), cols});
}

/// Program: a range of rows.
static void buildAddBias(TileBuilder &b, const RowGrid &grid,
                         const KernelGraph &graph, ArrayRef<Value> args) {
  auto op = graph.getRoot<nn::AddBiasOp>();
  KernelFrame frame(b, graph, args, {grid.rows, grid.width});
  Value cols = b.range(0, grid.width, 1);
  Value bias = b.load(frame.getInput(op.getBias()), {cols});
  grid.forEachRow(b, {}, [&](Expr row, ArrayRef<Value>) -> SmallVector<Value> {
    Elements at(frame, op, {grid.rowsFrom(b, row), cols});
    at.set(op.getOutput(), add(b, at.getF32(op.getInput()), bias));
    at.storeOutputs();
    return {};
  });
}

/// Program: a range of rows, whose sum is one row of the partial sums.
static void buildSumRows(TileBuilder &b, const RowGrid &grid,
                         const KernelGraph &graph, ArrayRef<Value> args) {
  auto op = graph.getRoot<nn::SumRowsOp>();
  KernelFrame frame(b, graph, args, {grid.rows, grid.width});
  Value partials = frame.getOutput(op.getSum());
  Value cols = b.range(0, grid.width, 1);
  auto buildRow = [&](Expr row, ArrayRef<Value> carried) -> SmallVector<Value> {
    Elements at(frame, op, {grid.rowsFrom(b, row), cols});
    Value sum = add(b, carried[0], at.getF32(op.getInput()));
    at.storeOutputs();
    return {sum};
  };
  Value sum =
      grid.forEachRow(b, {b.zeros(grid.step, grid.width)}, buildRow).front();
  if (grid.step > 1)
    sum = b.reduceAdd(sum, /*axis=*/0);
  if (partials)
    b.store(sum, partials, {b.programId(0), cols});
}

static RowGrid getGrid(Value rows, MachineAttr machine) {
  return {rows, /*elementsPerProgram=*/16384, /*maxPrograms=*/0,
          machine.getRowsAtOnce(getShape(rows).back())};
}

static RootKernel planForward(const KernelGraph &graph, MachineAttr machine) {
  RowGrid grid = getGrid(graph.getRoot<nn::RMSNormOp>().getInput(), machine);
  return {grid.name(), grid.programs, 4 * int64_t(grid.rows) * grid.width,
          [grid](TileBuilder &b, const KernelGraph &graph,
                 ArrayRef<Value> args) { buildForward(b, grid, graph, args); }};
}

/// The operation's sum over rows is partial.
static RootKernel planBackward(const KernelGraph &graph, MachineAttr machine) {
  auto op = graph.getRoot<nn::RMSNormBackwardOp>();
  RowGrid grid = getGrid(op.getInput(), machine);
  grid.cutInto(*op.getPartialSums());
  return {
      grid.name(), grid.programs, 10 * int64_t(grid.rows) * grid.width,
      [grid](TileBuilder &b, const KernelGraph &graph, ArrayRef<Value> args) {
        buildBackward(b, grid, graph, args);
      }};
}

static RootKernel planAddBias(const KernelGraph &graph, MachineAttr machine) {
  RowGrid grid = getGrid(graph.getRoot<nn::AddBiasOp>().getInput(), machine);
  return {grid.name(), grid.programs, int64_t(grid.rows) * grid.width,
          [grid](TileBuilder &b, const KernelGraph &graph,
                 ArrayRef<Value> args) { buildAddBias(b, grid, graph, args); }};
}

static RootKernel planSumRows(const KernelGraph &graph, MachineAttr machine) {
  auto op = graph.getRoot<nn::SumRowsOp>();
  RowGrid grid = getGrid(op.getInput(), machine);
  grid.cutInto(*op.getPartialSums());
  return {grid.name(), grid.programs, int64_t(grid.rows) * grid.width,
          [grid](TileBuilder &b, const KernelGraph &graph,
                 ArrayRef<Value> args) { buildSumRows(b, grid, graph, args); }};
}

void nsa::addRMSNormKernels(RootKernels &roots) {
  roots.add<nn::RMSNormOp>(planForward);
  roots.add<nn::RMSNormBackwardOp>(planBackward);
  roots.add<nn::AddBiasOp>(planAddBias);
  roots.add<nn::SumRowsOp>(planSumRows);
}
