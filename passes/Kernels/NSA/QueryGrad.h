//===- QueryGrad.h - gradients of queries and of gates ----------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_QUERYGRAD_H
#define NSA_PASSES_KERNELS_NSA_QUERYGRAD_H

#include "passes/Kernels/NSA/AttentionBranches.h"

namespace nsa {

/// Results of a kernel of the gradient of queries, or of its launch; null where
/// there is none.
struct QueryGradResults {
  template <typename RangeT>
  QueryGradResults(RangeT results, bool isGated) {
    auto next = results.begin();
    queryGrad = *next++;
    if (isGated)
      gatesGrad = *next++;
    statistics = *next++;
    if (next != results.end())
      biasParts = *next;
  }

  mlir::Value queryGrad, statistics, gatesGrad;
  /// f32 [programs * batch, branches * Hq].
  mlir::Value biasParts;
};

/// The kernel of the gradient of the queries, of all branches in one sum, and
/// of the gates; it also writes the RowStatistics of every row. On a GPU two
/// kernels where the rows of the branch with indices are too few for the other
/// branches: then this one leaves these out, and the sum is in fp32 and without
/// the scale.
struct QueryGradKernel {
  QueryGradKernel(const AttentionBranches &attention,
                  const RowStatistics &statistics, bool gathers)
      : attention(attention), statistics(statistics), gathers(gathers) {}

  bool isSplit() const {
    return attention.isParallel && attention.hasLists() &&
           !attention.getDense().empty();
  }
  Extent numTiles() const;
  /// Tiles of queries of a program: with few rows several, since each program
  /// has a part of the gradient of the bias.
  int64_t tilesPerProgram() const;
  Extent numPrograms() const { return ceilDiv(numTiles(), tilesPerProgram()); }
  KernelSpec spec() const;

  /// Program: (tiles of queries, key head, batch), with ranges (tile of
  /// queries, query head, batch).
  void build(tile::TileBuilder &b, const AttentionOperands &in,
             const QueryGradResults &out) const;
  /// Adds the other branches to what a split kernel has of the gradient.
  /// Program: (tile of queries, query head, batch).
  void buildDense(tile::TileBuilder &b, const AttentionOperands &in,
                  mlir::Value queryGrad) const;
  KernelSpec denseSpec() const;
  /// Adds the rows of `parts`: one after the other, or on GPUs every n-th
  /// before those sums are added.
  void buildBiasGrad(tile::TileBuilder &b, mlir::Value parts,
                     mlir::Value biasGrad) const;
  int64_t gateWidth() const {
    return attention.size() * attention.shape.queryHeads;
  }

  AttentionBranches attention;
  RowStatistics statistics;
  /// Whether queries are gathered for blocks: their gradient is made elsewhere,
  /// and this kernel has all else that belongs to rows.
  bool gathers;

private:
  int64_t flopsWidth() const {
    return 2 * attention.shape.keyWidth + attention.shape.valueWidth;
  }
  mlir::Value addBranch(const RowProgram &program, int64_t branch,
                        const AttentionOperands &in, mlir::Value queries,
                        mlir::Value outputGrads, const RowTerms &terms,
                        mlir::Value sum) const;
  mlir::Value buildTile(tile::TileBuilder &b, tile::Expr tile,
                        const AttentionOperands &in,
                        const QueryGradResults &out) const;
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_QUERYGRAD_H
