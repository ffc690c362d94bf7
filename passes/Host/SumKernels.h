//===- SumKernels.h - kernels that convert and add vectors ------*- C++ -*-===//

#ifndef NSA_PASSES_HOST_SUMKERNELS_H
#define NSA_PASSES_HOST_SUMKERNELS_H

#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"

namespace nsa {

/// Kernels that convert one vector to the type of another, or add a second one
/// to it: one for each pair of types.
class SumKernels {
public:
  explicit SumKernels(mlir::ModuleOp module)
      : module(module), symbols(module) {}

  /// Launches `to = from` or, if it `adds`, `to += from`. Both have one
  /// dimension; failure if a program could not count their elements.
  llvm::LogicalResult launch(mlir::OpBuilder &builder, mlir::Location loc,
                             mlir::Value from, mlir::Value to,
                             bool adds = false);

private:
  tile::KernelOp create(mlir::Location loc, mlir::MemRefType from,
                        mlir::MemRefType to, bool adds);

  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  /// By source and target type.
  llvm::DenseMap<std::pair<mlir::Type, mlir::Type>, tile::KernelOp> conversions,
      sums;
};

} // namespace nsa

#endif // NSA_PASSES_HOST_SUMKERNELS_H
