//===- SelectionMasks.h - selected blocks as bits ---------------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_SELECTIONMASKS_H
#define NSA_PASSES_KERNELS_NSA_SELECTIONMASKS_H

#include "passes/Kernels/NSA/SelectedAttentionKernels.h"

namespace nsa {

/// For each query and key head a bit for each block, set if the query selected
/// the block and sees it: i32 [B, Hkv, words, S]. Bit 0 of the first word is
/// the first block. Where queries select most of what they see, programs that
/// iterate over all keys with such a mask are faster than those that iterate
/// over lists.
struct SelectionMasks {
  static constexpr int64_t blocksPerWord = 32;

  /// Launches the kernel that makes them from `indices`, of rows that begin
  /// where `at`, if not null, says; operations with the same indices share it.
  static mlir::Value launch(KernelCache &cache, mlir::OpBuilder &builder,
                            mlir::Operation *op, mlir::Value indices,
                            const SelectedAttention &attention, mlir::Value at);
  /// For queries with these words, 1 if they selected `block`, which the words
  /// have a bit for, else 0.
  static mlir::Value isSelected(tile::TileBuilder &b, mlir::Value words,
                                tile::Expr block);
  /// The words for the blocks before those that `words` are for, of which
  /// `before` are the words before, null for none: bits of number
  /// `block - 1` where `words` have those of `block`.
  static mlir::Value ofBlocksBefore(tile::TileBuilder &b, mlir::Value words,
                                    mlir::Value before);
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_SELECTIONMASKS_H
