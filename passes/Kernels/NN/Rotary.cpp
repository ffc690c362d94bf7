//===- Rotary.cpp - rotation of channel pairs -----------------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/KernelGraph.h"
#include "passes/Kernels/NN/NNToTile.h"
#include "passes/Kernels/NSA/AttentionKernels.h"
#include "passes/Kernels/Rotation.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// x [B, S, H, D] and table [L, D/2, 2], or several x of different H. Programs
/// are ranges of positions; the angles of a position serve all heads and all
/// rows of the batch, unless sequences are packed.
struct RotaryKernel {
  explicit RotaryKernel(const KernelGraph &graph);

  RootKernel plan() const;
  void build(TileBuilder &b, const KernelGraph &graph,
             ArrayRef<Value> args) const;
  Expr findPosition(TileBuilder &b, Value start, Value at, Expr batchRow,
                    Expr t) const;
  /// Rotates the heads of one position, whose lower and upper halves are at two
  /// offsets.
  void rotate(nn::RotaryOp op, Elements lower, Elements upper, Value cosines,
              Value sines) const;

  /// Rows of a sequence, of which queries may have a part.
  Extent batch, sequence, rows;
  int64_t heads = 0, pairs, stride;
  bool inverse, isPacked, isPlaced, takesExtents;
  int64_t perProgram;
};
} // namespace

RotaryKernel::RotaryKernel(const KernelGraph &graph) {
  auto op = graph.getRoot<nn::RotaryOp>();
  batch = getExtent(op.getInput(), 0);
  sequence = getExtent(op.getInput(), 1);
  pairs = getDim(op.getInput(), 3) / 2;
  stride = op.getStride();
  inverse = op.getInverse();
  isPacked = op.getStart() != nullptr;
  isPlaced = op.getAt() != nullptr;
  rows = isPlaced ? ceilDiv(getExtent(op.getTable(), 0), stride) : sequence;
  takesExtents =
      !isPacked && !isPlaced && hasAnglesOfAll(op.getTable(), sequence);
  for (Operation *root : graph.getRoots())
    heads += getDim(cast<nn::RotaryOp>(root).getInput(), 2);
  int64_t perPosition = std::max<int64_t>(int64_t(batch) * heads * pairs, 1);
  perProgram = std::max<int64_t>(8192 / perPosition, 1);
}

void RotaryKernel::rotate(nn::RotaryOp op, Elements lower, Elements upper,
                          Value cosines, Value sines) const {
  TileBuilder &b = lower.getBuilder();
  auto rotated = b.map(
      {lower.get(op.getInput()), upper.get(op.getInput()), cosines, sines},
      {b.f32(), b.f32()}, [&](ArrayRef<Expr> e) -> SmallVector<Value> {
        auto pair = rotatePair(b, e[0], e[1], e[2], e[3], inverse);
        return {pair[0], pair[1]};
      });
  lower.set(op.getOutput(), rotated[0]);
  upper.set(op.getOutput(), rotated[1]);
  lower.storeOutputs();
  upper.storeOutputs();
}

/// Where row `t` stands in its sequence, if that is packed or longer.
Expr RotaryKernel::findPosition(TileBuilder &b, Value start, Value at,
                                Expr batchRow, Expr t) const {
  auto place = QueryPlace::load(b, isPacked ? getExtent(start, 0) : 1, rows, at,
                                batchRow);
  Expr row = place.of(t);
  Expr begin =
      isPacked ? b.loadScalar(start, {place.batch, row * stride + (stride - 1)})
               : b.constant(0);
  return getPackedPosition(row, begin, stride, rows);
}

void RotaryKernel::build(TileBuilder &b, const KernelGraph &graph,
                         ArrayRef<Value> args) const {
  KernelFrame frame(b, graph, args, /*elementShape=*/{});
  auto op = graph.getRoot<nn::RotaryOp>();
  Value table = frame.getInput(op.getTable());
  Value start = isPacked ? frame.getInput(op.getStart()) : Value();
  Value at = isPlaced ? frame.getInput(op.getAt()) : Value();
  bool isOfRow = isPacked || isPlaced;
  SmallVector<Value> headRows;
  for (Operation *root : graph.getRoots())
    headRows.push_back(
        b.range(0, getDim(cast<nn::RotaryOp>(root).getInput(), 2), 0));
  Value low = b.range(0, pairs, 1), high = b.range(pairs, pairs, 1);
  Expr first = b.programId(0) * perProgram;
  Value cosines, sines;
  auto loadAngles = [&](Expr position) {
    cosines = b.load(table, {position, low, 0});
    sines = b.load(table, {position, low, 1});
  };
  b.forLoop(first, min(first + perProgram, sequence), 1, {},
            [&](Expr t, ArrayRef<Value>) -> SmallVector<Value> {
              if (!isOfRow)
                loadAngles(t * stride);
              b.forLoop(
                  0, batch, 1, {},
                  [&](Expr batchRow, ArrayRef<Value>) -> SmallVector<Value> {
                    if (isOfRow)
                      loadAngles(findPosition(b, start, at, batchRow, t));
                    for (auto [root, rows] :
                         llvm::zip(graph.getRoots(), headRows))
                      rotate(cast<nn::RotaryOp>(root),
                             Elements(frame, root, {batchRow, t, rows, low}),
                             Elements(frame, root, {batchRow, t, rows, high}),
                             cosines, sines);
                    return {};
                  });
              return {};
            });
}

RootKernel RotaryKernel::plan() const {
  std::string shape = "b" + formatExtent(batch) + "s" + formatExtent(sequence) +
                      "h" + std::to_string(heads) + "d" +
                      std::to_string(2 * pairs) + (isPacked ? "_packed" : "") +
                      (isPlaced ? "_at" : "");
  return {
      (inverse ? "inverse_" : "") + shape,
      atLeast(ceilDiv(sequence, perProgram), 1),
      6 * int64_t(batch) * int64_t(sequence) * heads * pairs,
      [kernel = *this](TileBuilder &b, const KernelGraph &graph,
                       ArrayRef<Value> args) { kernel.build(b, graph, args); },
      takesExtents};
}

void nsa::addRotaryKernels(RootKernels &roots) {
  roots.add<nn::RotaryOp>([](const KernelGraph &graph, MachineAttr) {
    return RotaryKernel(graph).plan();
  });
}
