//===- Embedding.cpp - rows of a table and their gradients ----------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// Program: a range of tokens. An id outside the table reads as zeros.
static void buildForward(TileBuilder &b, const RowGrid &grid,
                         nn::EmbeddingOp::Adaptor in, ArrayRef<Value> out) {
  Value table = in.getTable(), ids = grid.viewPerRow(b, in.getIds());
  Value y = grid.viewRows(b, out.front());
  Value cols = b.range(0, grid.width, 1);
  grid.forEachRow(b, {}, [&](Expr t, ArrayRef<Value>) -> SmallVector<Value> {
    Expr id = b.loadScalar(ids, {t});
    b.store(b.load(table, {id, cols}), y, {t, cols});
    return {};
  });
}

namespace {
/// The gradient of a table. Program: a slice of columns of every n-th row
/// of one part of the gradient, which no other program touches: frequent tokens
/// tend to be neighbours. It adds the tokens of a range in order; a part of
/// its own has each range.
struct TableGradient {
  TableGradient(nn::EmbeddingBackwardOp op, MachineAttr machine);

  KernelSpec spec() const;
  void build(TileBuilder &b, nn::EmbeddingBackwardOp::Adaptor in,
             Value tableGrad) const;

  RowGrid grid;
  int64_t vocab, slice, slices;
  /// Rows `i` and `i + strides` of the table are the same program's.
  int64_t parts = 1, strides = 1;

private:
  /// What a program works on.
  struct Target {
    Value ids, dy;
    /// One part of the gradient, and its index if there are several.
    Value table;
    SmallVector<tile::Operand> part;
    Value cols;
    Expr firstRow;
  };
  SmallVector<tile::Operand> place(const Target &target, Operand row) const {
    SmallVector<tile::Operand> indices = target.part;
    indices.push_back(row);
    indices.push_back(target.cols);
    return indices;
  }
  void clear(TileBuilder &b, const Target &target) const;
  /// Reads the token's gradient if that is not `dy`.
  void addToken(TileBuilder &b, const Target &target, Expr t, Expr id,
                Value dy = {}) const;
  void addTokens(TileBuilder &b, const Target &target, Expr first) const;

  /// Rows that are cleared at once; 1 with strides.
  int64_t zeroRows = 16;
  /// Tokens whose ids, and without strides gradients too, are read before any
  /// of them is added.
  int64_t ahead = 1;
};
} // namespace

TableGradient::TableGradient(nn::EmbeddingBackwardOp op, MachineAttr machine)
    : grid(op.getOutputGrad(), machine.getElementsPerProgram()),
      vocab(getDim(op.getTableGrad(), 0)) {
  if (!machine.getScatterElements()) {
    slice = pickTile(grid.width, grid.width >= 512 ? 64 : 32);
    slices = std::max<int64_t>(llvm::divideCeil(grid.width, slice), 1);
    return;
  }
  constexpr int64_t tokensPerPart = 512, fewestRows = 64;
  slice = pickTile(grid.width, 128);
  slices = std::max<int64_t>(llvm::divideCeil(grid.width, slice), 1);
  int64_t mostParts =
      machine.getScatterElements() / std::max<int64_t>(vocab * grid.width, 1);
  parts = std::max<int64_t>(
      std::min<int64_t>(llvm::divideCeil(int64_t(grid.rows), tokensPerPart),
                        mostParts),
      1);
  strides = std::clamp<int64_t>(
      llvm::divideCeil(machine.getPrograms(), parts * slices), 1,
      std::max<int64_t>(vocab / fewestRows, 1));
  ahead = strides == 1 ? 8 : 16;
  // As many threads as a row needs do all.
  zeroRows = 1;
}

KernelSpec TableGradient::spec() const {
  return {"",
          grid.name(),
          {slices, strides, parts},
          int64_t(grid.rows) * grid.width};
}

void TableGradient::clear(TileBuilder &b, const Target &target) const {
  Value zeros = b.zeros(zeroRows, slice);
  auto zeroTiles =
      static_cast<int64_t>(llvm::divideCeil(vocab, zeroRows * strides));
  b.forLoop(0, zeroTiles, 1, {},
            [&](Expr i, ArrayRef<Value>) -> SmallVector<Value> {
              Expr first = i * (zeroRows * strides);
              if (strides > 1)
                first = first + target.firstRow;
              b.store(zeros, target.table,
                      place(target, b.range(first, zeroRows, 0)));
              return {};
            });
}

void TableGradient::addToken(TileBuilder &b, const Target &target, Expr t,
                             Expr id, Value dy) const {
  Value before = b.load(target.table, place(target, id));
  if (!dy)
    dy = b.load(target.dy, {t, target.cols});
  Value sum = add(b, before, dy);
  b.store(sum, target.table, place(target, id));
}

/// Tokens past the last one are zeros.
void TableGradient::addTokens(TileBuilder &b, const Target &target,
                              Expr first) const {
  if (ahead == 1)
    return addToken(b, target, first, b.loadScalar(target.ids, {first}));
  SmallVector<std::tuple<Expr, Expr, Value>> tokens;
  for (int64_t i = 0; i < ahead; ++i) {
    Expr t = first + static_cast<double>(i);
    Expr id = b.loadScalar(target.ids, {t});
    Value dy = strides == 1 ? b.load(target.dy, {t, target.cols}) : Value();
    tokens.emplace_back(t, id, dy);
  }
  for (auto [t, id, dy] : tokens) {
    if (strides == 1)
      addToken(b, target, t, id, dy);
    else
      b.ifThen(id % static_cast<double>(strides) == target.firstRow,
               [&, t = t, id = id] { addToken(b, target, t, id); });
  }
}

void TableGradient::build(TileBuilder &b, nn::EmbeddingBackwardOp::Adaptor in,
                          Value tableGrad) const {
  Target target;
  target.dy = grid.viewRows(b, in.getOutputGrad());
  target.ids = grid.viewPerRow(b, in.getIds());
  target.table = tableGrad;
  target.cols = b.range(b.programId(0) * slice, slice, 1);
  if (strides > 1)
    target.firstRow = b.programId(1);
  tile::Operand first = 0, end = grid.rows;
  if (parts > 1) {
    target.table = b.view(tableGrad, {parts, vocab, grid.width});
    Expr part = b.programId(2);
    target.part = {part};
    int64_t range =
        llvm::alignTo(llvm::divideCeil(int64_t(grid.rows), parts), ahead);
    first = part * range;
    end = min(part * range + range, grid.rows);
  }
  clear(b, target);
  b.forLoop(first, end, ahead, {},
            [&](Expr t, ArrayRef<Value>) -> SmallVector<Value> {
              addTokens(b, target, t);
              return {};
            });
}

static LogicalResult convertEmbedding(nn::EmbeddingOp op, KernelCache &cache,
                                      PatternRewriter &rewriter) {
  RowGrid grid(op.getOutput(), cache.getMachine().getElementsPerProgram());
  KernelSpec spec = {"", grid.name(), {grid.programs, 1, 1}};
  spec.takesExtents = true;
  return replaceByKernel(cache, rewriter, op, spec,
                         [&](auto &b, auto in, ArrayRef<Value> out) {
                           buildForward(b, grid, in, out);
                         });
}

static LogicalResult convertEmbeddingBackward(nn::EmbeddingBackwardOp op,
                                              KernelCache &cache,
                                              PatternRewriter &rewriter) {
  TableGradient gradient(op, cache.getMachine());
  Type result = op.getTableGrad().getType(), type = result;
  if (gradient.parts > 1)
    type = RankedTensorType::get(
        {gradient.parts, gradient.vocab * gradient.grid.width},
        getElementType(op.getTableGrad()));
  Value table = launchKernel(cache, rewriter, op, gradient.spec(), type,
                             [&](auto &b, auto in, ArrayRef<Value> out) {
                               gradient.build(b, in, out.front());
                             })
                    .front();
  if (gradient.parts > 1)
    table = launchSumOfRows(cache, rewriter, op, table, result);
  rewriter.replaceOp(op, table);
  return success();
}

void nsa::populateEmbeddingPatterns(KernelPatterns &patterns) {
  patterns.add(convertEmbedding, convertEmbeddingBackward);
}
