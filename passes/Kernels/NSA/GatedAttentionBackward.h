//===- GatedAttentionBackward.h - gradients of a gated sum ------*- C++ -*-===//

#ifndef NSA_PASSES_KERNELS_NSA_GATEDATTENTIONBACKWARD_H
#define NSA_PASSES_KERNELS_NSA_GATEDATTENTIONBACKWARD_H

#include "passes/Kernels/NSA/GatedAttentionKernels.h"
#include "passes/Kernels/Rotation.h"

namespace nsa {

/// The kernels of the gradients of all branches of a gated sum.
struct GatedAttentionBackward : GatedAttention {
  GatedAttentionBackward(llvm::ArrayRef<AttentionBackwardOp> branches,
                         nn::GateOp gate, bool rotatesTokens,
                         const KernelSchedule &schedule)
      : GatedAttention(branches, gate, schedule), forms(selected, schedule),
        masked{branch, makeMasked(selected, schedule)},
        statistics(shape, this->branches, /*gated=*/true, foldsGates(),
                   schedule.isGPU),
        rotatesTokens(rotatesTokens) {}

  void shareColumns(int64_t parts) {
    GatedAttention::setColumnParts(parts);
    masked.attention.shape.columnParts = parts;
  }
  /// Whether programs of dq have the rows of one head and masks.
  bool masksQueries() const { return forms.queryGrad == SelectedForm::Masks; }
  /// Whether they follow lists; whether queries are gathered, and programs of
  /// dq have only what belongs to rows.
  bool listsQueries() const { return forms.queryGrad == SelectedForm::Lists; }
  bool gathersQueries() const {
    return forms.queryGrad == SelectedForm::Gathered;
  }
  bool masksKeys() const { return forms.keyValueGrad == SelectedForm::Masks; }
  /// Whether the rows of the selected branch are too few for the others.
  bool isSplit() const {
    return selected.isGPU && !dense.empty() && !masksQueries();
  }
  /// Whether gates are factors of exponentials: activations are not negative,
  /// and with 16 bits the exponents have bits to spare.
  bool foldsGates() const {
    return activation.has_value() && shape.elementBits == 16;
  }
  Extent numQueryTiles() const {
    return masksQueries()
               ? masked.attention.numQueryTiles(masked.attention.queryTile)
               : selected.numQueryTiles();
  }
  /// Tiles of queries of a program of dq: with few rows several, since each
  /// program has a part of the gradient of the bias.
  int64_t tilesPerProgram() const {
    bool isSmall = selected.queryTile * shape.group() <= 16;
    return selected.isGPU && isSmall && !masksQueries() ? 8 : 1;
  }
  Extent numQueryPrograms() const {
    return ceilDiv(numQueryTiles(), tilesPerProgram());
  }
  int64_t gateWidth() const { return branches * shape.queryHeads; }

  mlir::Value buildQueryGrad(tile::TileBuilder &b, tile::Expr tile,
                             llvm::ArrayRef<mlir::Value> in,
                             llvm::ArrayRef<mlir::Value> out) const;
  void buildQueryGrads(tile::TileBuilder &b, llvm::ArrayRef<mlir::Value> in,
                       llvm::ArrayRef<mlir::Value> out) const;
  void buildDenseQueryGrad(tile::TileBuilder &b,
                           llvm::ArrayRef<mlir::Value> args) const;
  mlir::Value sumBiasGrads(tile::TileBuilder &b, const GroupProgram *program,
                           const BranchTiles &grads) const;
  void buildBiasGrad(tile::TileBuilder &b, mlir::Value parts,
                     mlir::Value biasGrad) const;
  /// Rotates the gradient of the queries or keys of some tokens back. `start`
  /// is null without packed sequences.
  static void rotateTokens(tile::TileBuilder &b, mlir::Value grad,
                           mlir::Value table, mlir::Value start,
                           tile::Expr batch, tile::Expr head, tile::Expr first,
                           int64_t count) {
    rotateRange(b, grad, grad, table, batch, head, first, count, /*stride=*/1,
                /*inverse=*/true, start);
  }
  /// Whether the kernels that write the gradient of tokens also rotate it back.
  bool rotatesAtOnce() const { return rotatesTokens && !selected.isGPU; }

  SelectedForms forms;
  /// The selected branch with masks.
  Dense masked;
  /// What dq writes of each row and branch for dk and dv.
  RowStatistics statistics;
  bool rotatesTokens;
};

/// Results of the launch of dq.
enum QueryResult { QueryGrad, GatesGrad, Statistics, BiasParts };

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_GATEDATTENTIONBACKWARD_H
