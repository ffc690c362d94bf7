//===- GatheredAttention.h - queries gathered for each block ----*- C++ -*-===//
//
// Where few heads share a key head, a block of keys that a query selected is
// copied for as few rows. Here a program keeps the keys of a block and gathers
// the queries that selected it, from the inverse index. What they have of the
// block are parts of their sums, stored at the place of the block in the list
// of the query; a second launch adds them in the order of the list. Parts of a
// few heads at a time fit into memory: key heads take turns, or the heads of a
// group where those of one key head are too many.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_NSA_GATHEREDATTENTION_H
#define NSA_PASSES_KERNELS_NSA_GATHEREDATTENTION_H

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/NSA/SelectedAttentionKernels.h"

namespace nsa {

/// The selected branch of queries that are gathered.
class GatheredAttention {
public:
  /// Whether there are kernels for it: on GPUs, of whole sequences of one
  /// length, if the parts of a head fit.
  static bool fits(const SelectedAttention &selected);
  /// Whether it is faster than lists.
  static bool isFaster(const SelectedAttention &selected);

  /// Queries that fill a warpgroup with heads of a turn.
  static int64_t getMostQueries(const SelectedAttention &selected);

  /// The output of `op` and its lse.
  static llvm::SmallVector<mlir::Value>
  launchForward(AttentionOp op, KernelCache &cache, mlir::OpBuilder &builder);

  /// What the gradient of queries is made of, besides the inverse index.
  struct QueryGradInputs {
    mlir::Value outputGrad, q, k, v;
    /// Null where the statistics have it.
    mlir::Value lse;
    mlir::Value statistics;
    RowStatistics rows;
    int64_t branch;
    llvm::SmallVector<mlir::Value *> slots() {
      return {&outputGrad, &q, &k, &v, &statistics, &lse};
    }
  };
  /// `scale` times the gradient of queries of the selected branch `branch` of
  /// `op`, as `type`. `lists` are the inverse index.
  static mlir::Value
  launchQueryGrad(mlir::Operation *op, AttentionBackwardOp branch,
                  const QueryGradInputs &in, mlir::Value indices,
                  mlir::Type type, double scale, const InverseIndex &lists,
                  KernelCache &cache, mlir::OpBuilder &builder);

private:
  template <typename OpT>
  GatheredAttention(OpT op, const ChosenSchedule &own, MachineAttr machine)
      : GatheredAttention(KernelCut(machine, own.sizes), op) {
    selected.shape.columnParts = own.columnParts;
    if (splitsGroups())
      gather(KernelCut(machine, own.sizes));
  }
  template <typename OpT>
  GatheredAttention(const KernelCut &cut, OpT op)
      : GatheredAttention(SelectedAttention(op, cut),
                          cut.sizes.getGatheredHeads()) {}
  GatheredAttention(const SelectedAttention &selected, int64_t fixedHeads);

  static int64_t getMostQueries(int64_t groupHeads);
  /// Cuts rows of the heads of a turn.
  void gather(const KernelCut &cut);

  /// The rows that a program gathers at once, and the keys of its block.
  struct Rows;
  /// What a kernel of parts reads to find them. `step` is null without turns.
  struct Index {
    llvm::SmallVector<mlir::Value *> slots() {
      return {&indices, &offsets, &list, &blocks, &entries, &step};
    }
    mlir::Value indices, offsets, list, blocks, entries, step;
  };
  struct Kernels;

  /// Entries of a list that a program takes, and the most programs that the
  /// lists of a key head need.
  int64_t pieceEntries() const { return 8 * selected.gatherTile; }
  Extent numPieces() const {
    return ceilDiv(selected.shape.sequence * selected.count, pieceEntries()) +
           selected.numBlocks();
  }
  void buildPieces(tile::TileBuilder &b, mlir::Value offsets,
                   mlir::Value blocks, mlir::Value entries) const;
  llvm::SmallVector<mlir::Value> launchPieces(KernelCache &cache,
                                              mlir::OpBuilder &builder,
                                              mlir::Operation *op,
                                              mlir::Value offsets) const;

  /// [B, heads of a turn, count, S, width].
  mlir::RankedTensorType getPartType(KernelCache &cache, mlir::Type type,
                                     int64_t width) const;
  /// Query heads of a turn.
  int64_t heads() const { return keyHeads * groupHeads; }
  bool splitsGroups() const { return groupHeads < selected.shape.group(); }
  /// The first key head of a turn, the first head of its group, and both as a
  /// query head.
  tile::Expr getFirstKeyHead(tile::TileBuilder &b, mlir::Value step) const;
  tile::Expr getFirstOfGroup(tile::TileBuilder &b, mlir::Value step) const;
  tile::Expr getFirstHead(tile::TileBuilder &b, mlir::Value step) const;
  void forEachTile(tile::TileBuilder &b, const Index &index, mlir::Value k,
                   mlir::Value v, bool isGradient,
                   llvm::function_ref<void(const Rows &)> body) const;
  void buildForwardParts(tile::TileBuilder &b, const Index &index,
                         mlir::Value q, mlir::Value k, mlir::Value v,
                         mlir::Value parts, mlir::Value statistics) const;
  void buildQueryGradParts(tile::TileBuilder &b, const Index &index,
                           const QueryGradInputs &in, mlir::Value out) const;
  void buildForwardSum(tile::TileBuilder &b, tile::Expr firstHead,
                       mlir::Value parts, mlir::Value statistics,
                       mlir::Value indices, mlir::Value output,
                       mlir::Value lse) const;

  /// Launches the kernels of parts and of their sums in turns.
  llvm::SmallVector<mlir::Value>
  launch(KernelCache &cache, mlir::OpBuilder &builder, mlir::Operation *op,
         const Kernels &kernels, const InverseIndex &lists) const;
  static void buildNextStep(tile::TileBuilder &b, mlir::Value step,
                            mlir::Value next);

  /// Pieces that a program finds.
  static constexpr int64_t pieceRows = 128;
  SelectedAttention selected;
  /// Turns, key heads of one, and how many heads of the group of each.
  int64_t turns, keyHeads, groupHeads;
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_GATHEREDATTENTION_H
