//===- GatheredPieces.cpp - pieces of the lists of gathered queries -------===//

#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/GatheredAttention.h"
#include "passes/Kernels/NSA/SelectionLists.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

/// Program: (some pieces, key head, batch). Writes the block and the first
/// entry of each piece; those past the last one have a block that does not
/// exist.
void GatheredAttention::buildPieces(TileBuilder &b, Value offsets, Value blocks,
                                    Value entries) const {
  constexpr int64_t some = 32;
  Expr keyHead = b.programId(1), batch = b.programId(2);
  Value piece = b.range(b.programId(0) * pieceRows, pieceRows, 0);
  Value none = b.splat(b.constant(0), pieceRows, 1);
  auto place = [&](Expr first, ArrayRef<Value> carried) -> SmallVector<Value> {
    Value block = b.range(first, some, 1);
    Value begin = b.load(offsets, {batch, keyHead, 0, block});
    Value end = b.load(offsets, {batch, keyHead, selected.gradParts, block});
    Value number = b.map({begin, end}, b.i32(), [&](ArrayRef<Expr> x) {
      return ceilDiv(x[1] - x[0], double(pieceEntries()));
    });
    Value before = add(b, sumBefore(b, number), carried[0]);
    // Blocks all of whose pieces are before, and the entry if it is in one.
    auto found =
        b.map({piece, before, number, begin, block}, {b.i32(), b.i32()},
              [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                Expr own = x[0] - x[1];
                Expr isOwn = (own >= 0) & (own < x[2]);
                Expr isBefore = (own >= x[2]) & (x[4] < selected.numBlocks());
                return {convert(isBefore, b.i32()),
                        select(isOwn, x[3] + own * double(pieceEntries()), 0)};
              });
    return {add(b, carried[0], b.reduceAdd(number)),
            add(b, carried[1], b.reduceAdd(found[0])),
            add(b, carried[2], b.reduceAdd(found[1]))};
  };
  auto found = b.forLoop(0, selected.numBlocks(), some,
                         {b.splat(b.constant(0), 1, 1), none, none}, place);
  b.store(found[1], blocks, {batch, keyHead, piece});
  b.store(found[2], entries, {batch, keyHead, piece});
}

SmallVector<Value> GatheredAttention::launchPieces(KernelCache &cache,
                                                   OpBuilder &builder,
                                                   Operation *op,
                                                   Value offsets) const {
  const AttentionShape &shape = selected.shape;
  KernelSpec spec;
  spec.ownName = "selection_pieces";
  spec.shape = selected.name();
  spec.key = std::to_string(pieceEntries());
  spec.grid = {ceilDiv(numPieces(), pieceRows), shape.keyHeads, shape.batch};
  Type type = cache.getTensorType({shape.batch, shape.keyHeads, numPieces()},
                                  builder.getI32Type());
  return llvm::to_vector_of<Value>(
      cache.launchOnce(builder, op, spec, offsets, {type, type},
                       [&](TileBuilder &b, ArrayRef<Value> args) {
                         auto [offsets, blocks, entries] = named<3>(args);
                         buildPieces(b, offsets, blocks, entries);
                       }));
}
