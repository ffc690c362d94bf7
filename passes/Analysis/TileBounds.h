//===- TileBounds.h - what is known about coordinates -----------*- C++ -*-===//

#ifndef NSA_PASSES_ANALYSIS_TILEBOUNDS_H
#define NSA_PASSES_ANALYSIS_TILEBOUNDS_H

#include "dialects/Interfaces/Extents.h"
#include "dialects/Tile/TileOps.h"
#include "mlir/Analysis/DataFlowFramework.h"

namespace nsa {

/// Integer ranges of the scalars and tiles of one kernel. Valid until the
/// kernel changes.
class TileBounds {
public:
  explicit TileBounds(tile::KernelOp kernel);

  /// Whether every value that `index`, an i32 scalar or tile, can have lies in
  /// 0 .. extent - 1.
  bool isInside(mlir::Value index, const Extent &extent);
  /// What the extents of the kernel's memory stand for.
  const ExtentTable &getExtents() const { return extents; }

private:
  mlir::ConstantIntRanges rangeOf(mlir::Value value);
  mlir::ConstantIntRanges rangeOfMap(tile::MapOp op, unsigned result);

  tile::KernelOp kernel;
  ExtentTable extents;
  mlir::DataFlowSolver solver;
  llvm::DenseMap<mlir::Value, mlir::ConstantIntRanges> tiles;
};

} // namespace nsa

#endif // NSA_PASSES_ANALYSIS_TILEBOUNDS_H
