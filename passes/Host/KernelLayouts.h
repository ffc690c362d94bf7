//===- KernelLayouts.h - kernels for memory in rows -------------*- C++ -*-===//

#ifndef NSA_PASSES_HOST_KERNELLAYOUTS_H
#define NSA_PASSES_HOST_KERNELLAYOUTS_H

#include "dialects/Interfaces/RowLayout.h"
#include "dialects/Tile/TileOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"

namespace nsa {

/// Makes versions of kernels whose arguments are columns of wider matrices.
///
/// Loads and stores of an argument do not care. A view of it must keep its
/// rows; or it sees the argument as a vector, of which every access moves whole
/// pieces of rows: a range of elements that begins at a multiple of its length,
/// which divides that of a row. Such accesses become those of a row and its
/// columns.
class KernelLayouts {
public:
  explicit KernelLayouts(mlir::ModuleOp module, mlir::SymbolTable &symbols)
      : module(module), symbols(symbols) {}

  /// Whether there is a version of `kernel` that takes argument `index` in this
  /// layout.
  bool mayTake(tile::KernelOp kernel, unsigned index, RowLayout layout);

  /// The version of `kernel` for arguments of these types, each of which it may
  /// take: `kernel` itself if it has them.
  tile::KernelOp get(tile::KernelOp kernel,
                     llvm::ArrayRef<mlir::MemRefType> types);

  /// A kernel that copies rows of `source` to `target`, memory of one shape.
  tile::KernelOp getCopy(mlir::MemRefType source, mlir::MemRefType target,
                         mlir::Location loc);

  /// Erases kernels that were there before and only served as models.
  void eraseUnused();

private:
  void adapt(mlir::Value argument, RowLayout layout);

  mlir::ModuleOp module;
  mlir::SymbolTable &symbols;
  llvm::MapVector<std::pair<mlir::Operation *, mlir::Type>, tile::KernelOp>
      versions;
};

} // namespace nsa

#endif // NSA_PASSES_HOST_KERNELLAYOUTS_H
