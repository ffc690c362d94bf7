//===- DecodeKernels.h - kernels of one query and caches --------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_DECODEKERNELS_H
#define NSA_PASSES_KERNELS_NSA_DECODEKERNELS_H

#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/NSA/Caches.h"
#include "passes/Kernels/NSA/RowProgram.h"

namespace nsa {

/// Attention of the query of each sequence, with all heads of a group, to the
/// keys that it sees, in the tiles and in the order in which attention of a
/// whole sequence does. On machines with many processors the tiles are cut
/// into parts of about equal number, each a program's, which have outputs of
/// their own.
struct DecodeAttention {
  DecodeAttention(DecodeAttentionOp op, const KernelCut &cut);

  std::string name() const;
  int64_t flops() const;
  /// Program: (part, key head, batch). Writes o [B, parts, Hq, dv] and lse
  /// [B, Hq, parts].
  void build(tile::TileBuilder &b, DecodeAttentionOp::Adaptor in,
             llvm::ArrayRef<mlir::Value> out) const;
  /// The launch of all parts, with outputs in f32. It may have more inputs.
  LaunchPart getPart(KernelCache &cache) const;

  mutable DecodeAttentionOp op;
  AttentionShape shape;
  Visibility visibility;
  /// Of a sequence in the caches.
  int64_t rows;
  /// Of indices.
  int64_t count, selectBlock;
  int64_t keyTile;
  /// Of a program: the heads of the group, and what is missing to whole tiles.
  int64_t numRows;
  /// Whether keys begin anew at the first row: then tiles lie inside.
  bool isRing;
  /// Whether lse, by which blocks are selected, are those of whole sequences.
  bool isInOrder;
  int64_t parts;

private:
  /// As large as those of a sequence with so many keys.
  int64_t getKeyTile(const KernelCut &cut) const;
  int64_t getParts(const KernelCut &cut) const;
  RowProgram makeProgram(tile::TileBuilder &b) const;
  CacheMemory::Place placeTile(const RowProgram &program,
                               const CacheMemory &keys, tile::Expr first) const;
  /// The tile of the keys from `first` on.
  KeyTile loadTile(const RowProgram &program, tile::Expr position,
                   DecodeAttentionOp::Adaptor in, tile::Expr first) const;
  llvm::SmallVector<mlir::Value>
  forEachKeyTile(const RowProgram &program, tile::Expr position,
                 DecodeAttentionOp::Adaptor in,
                 llvm::ArrayRef<mlir::Value> inits, KeyTileBody body) const;
};

/// The heads of a group as rows of a program, all of row 0 of the queries, and
/// `stored` of what is written. Rows beyond them repeat the last head, and are
/// not stored.
RowProgram makeHeadProgram(tile::TileBuilder &b, const AttentionShape &shape,
                           int64_t numRows, tile::Expr stored);

/// What parts of attention wrote: o, f32 [B, parts, Hq, dv], and lse, f32
/// [B, Hq, parts].
struct AttentionParts {
  mlir::Value output, lse;
};

/// The natural log of the sum of the exponentials of all parts' lse, each row
/// of `lses` f32 [n, parts] along `axis`, -inf if all are.
mlir::Value mergeLse(tile::TileBuilder &b, mlir::Value lses, int axis);

/// Launches selection with scores of parts of the compressed rows, by the lse
/// of the compressed attention; returns the indices. The launches have inputs
/// that are `unused` besides.
mlir::Value launchDecodeSelect(KernelCache &cache, mlir::OpBuilder &builder,
                               DecodeSelectOp op, mlir::Value lseParts,
                               mlir::ValueRange unused);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_DECODEKERNELS_H
