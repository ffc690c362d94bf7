//===- SelectionMasks.cpp - selected blocks as bits -----------------------===//

#include "passes/Kernels/NSA/SelectionMasks.h"
#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/SelectionLists.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// Program: (tile of queries, key head, batch).
static void buildMasks(TileBuilder &b, int64_t queries,
                       const SelectedAttention &attention, const Extent &words,
                       Value indices, Value at, Value masks) {
  int64_t count = cast<MemRefType>(indices.getType()).getShape()[3];
  Expr keyHead = b.programId(1), batch = b.programId(2);
  Value t = b.range(b.programId(0) * queries, queries, 0);
  SelectionLists lists(
      attention, t, b.load(indices, {batch, keyHead, t, b.range(0, count, 1)}),
      QueryPlace::load(b, attention.shape, at, batch));
  b.forLoop(0, words, 1, {}, [&](Expr word, ArrayRef<Value>) {
    constexpr int64_t blocks = SelectionMasks::blocksPerWord;
    b.store(lists.findBits(b, word * blocks, blocks), masks,
            {batch, keyHead, word, t});
    return SmallVector<Value>();
  });
}

Value SelectionMasks::launch(KernelCache &cache, OpBuilder &builder,
                             Operation *op, Value indices,
                             const SelectedAttention &attention, Value at) {
  int64_t keyHeads = getDim(indices, 1), count = getDim(indices, 3);
  const AttentionShape &shape = attention.shape;
  Extent batch = shape.batch, sequence = shape.sequence;
  int64_t selectBlock = attention.selectBlock;
  Extent words =
      ceilDiv(shape.tokens, selectBlock * SelectionMasks::blocksPerWord);
  // Threads hold the lists of a program.
  constexpr int64_t mostEntries = 8192;
  int64_t queries = std::clamp<int64_t>(mostEntries / count, 8, 128);
  KernelSpec spec;
  spec.ownName = "selection_masks";
  spec.shape = shape.rowsName() + "h" + std::to_string(keyHeads) + "_s" +
               std::to_string(selectBlock) + "n" + std::to_string(count);
  spec.grid = {ceilDiv(sequence, queries), keyHeads, batch};
  spec.setIndices(indices, selectBlock, at);
  spec.takesExtents = !shape.isPlaced;
  SmallVector<Value> inputs = {indices};
  if (at)
    inputs.push_back(at);
  bool isParallel = cache.getMachine().isParallel();
  auto type = cache.getRowsType({batch, keyHeads, words, sequence},
                                builder.getI32Type(),
                                getRowPitch(sequence, isParallel));
  return cache.launchOnce(builder, op, spec, inputs, type,
                          [&](TileBuilder &b, ArrayRef<Value> args) {
                            buildMasks(b, queries, attention, words,
                                       args.front(), at ? args[1] : Value(),
                                       args.back());
                          })[0];
}

Value SelectionMasks::ofBlocksBefore(TileBuilder &b, Value words,
                                     Value before) {
  SmallVector<Value> inputs = {words};
  if (before)
    inputs.push_back(before);
  return b.map(inputs, b.i32(), [&](ArrayRef<Expr> x) {
    Expr shifted = x[0] << x[0].constant(1);
    if (!before)
      return shifted;
    Expr last = (x[1] >> x[1].constant(blocksPerWord - 1)) & x[1].constant(1);
    return shifted + last;
  });
}

Value SelectionMasks::isSelected(TileBuilder &b, Value words, Expr block) {
  Expr place = block % static_cast<double>(blocksPerWord);
  return b.map({words}, b.i32(), [&](ArrayRef<Expr> x) {
    return (x[0] >> place) & x[0].constant(1);
  });
}
