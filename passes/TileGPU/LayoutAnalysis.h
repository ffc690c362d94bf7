//===- LayoutAnalysis.h - where the tiles of a kernel belong ----*- C++ -*-===//

#ifndef NSA_PASSES_TILEGPU_LAYOUTANALYSIS_H
#define NSA_PASSES_TILEGPU_LAYOUTANALYSIS_H

#include "dialects/Tile/TileOps.h"
#include "llvm/ADT/SetVector.h"

namespace nsa::cuda {

/// Which layout every tile of a kernel should have for its dots to run on
/// tensor cores. Changes nothing; valid until the kernel changes.
class LayoutAnalysis {
public:
  /// `warps` of 0 chooses their number; `wgmma`: whether the target has it.
  LayoutAnalysis(tile::KernelOp kernel, int64_t warps, bool wgmma);

  /// In order. Without any, the kernel stays without layouts.
  llvm::ArrayRef<tile::DotOp> getProducts() const { return dots; }
  /// Dots that tensor cores cannot do, and why.
  llvm::ArrayRef<std::pair<tile::DotOp, std::string>> getMissed() const {
    return missed;
  }
  int64_t getWarps() const { return warps; }
  /// M-tiles of 16 rows of the tallest dot.
  int64_t getMTiles() const { return mTiles; }

  /// Whether every use may compute the elements of `tile` again: ranges,
  /// splats, loads of indices from memory that nothing writes, and integer maps
  /// of these.
  bool isRecomputed(mlir::Value tile) const {
    return recomputed.contains(tile);
  }
  /// The layout in which the operation that makes `tile` leaves it; null for
  /// none, which is also what recomputed tiles have at first.
  mlir::Attribute getHome(mlir::Value tile) const;
  /// The layout that the user of a tile wants it in.
  mlir::Attribute getWanted(mlir::OpOperand &use) const;
  /// The same for an operand of an operation whose result is in `result`.
  mlir::Attribute getWanted(mlir::Value operand, mlir::Attribute result) const;

  /// Whether a dot runs in a loop that does not change its a.
  static bool isInvariant(mlir::Value a, tile::DotOp dot);
  /// Loads that feed a dot through registers because shared memory cannot
  /// be filled from their coordinates.
  llvm::ArrayRef<tile::LoadOp> getIndirect() const { return indirect; }

private:
  bool isProduct(mlir::Operation *op) const;
  void findProducts(bool wgmma);
  void findRecomputed();
  void placeOperands();
  void placeOperand(mlir::OpOperand &operand);
  bool canShare(tile::LoadOp load) const;
  bool loadsLine(tile::LoadOp load) const;
  /// Tiles that would rather share their layout.
  void couple();
  void couple(mlir::Value lhs, mlir::Value rhs);
  void propagate();
  mlir::Attribute mmaLayout() const;

  tile::KernelOp kernel;
  int64_t warps, mTiles = 0;
  llvm::SmallVector<tile::DotOp> dots;
  llvm::SmallVector<std::pair<tile::DotOp, std::string>> missed;
  llvm::SmallVector<tile::LoadOp> indirect;
  /// The value says whether its computation reads memory.
  llvm::DenseMap<mlir::Value, bool> recomputed;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> coupled;
  /// What operations know nothing of layouts make.
  llvm::DenseSet<mlir::Value> pinned;
  llvm::DenseSet<mlir::Value> shared;
  llvm::SetVector<mlir::Value> mmaTiles;
};

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPU_LAYOUTANALYSIS_H
