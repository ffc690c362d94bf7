//===- RecomputePlan.h - what backward computes again -----------*- C++ -*-===//
//
// Decides, without changing anything, which operations of the forward graph of
// a differentiated function are worth computing again.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_GRAPH_RECOMPUTEPLAN_H
#define NSA_PASSES_GRAPH_RECOMPUTEPLAN_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"

namespace nsa {

/// The operations of a straight-line function that the backward graph computes
/// again.
class RecomputePlan {
public:
  /// Reads the function; nothing is selected yet. `budget` is what values kept
  /// for the backward graph may need, in bytes; 0 stands for no limit to what
  /// is computed again.
  RecomputePlan(mlir::func::FuncOp function, uint64_t budget);

  /// Selects the first layers, `most` at most. Returns whether there are as
  /// many.
  bool selectBlocks(size_t most);
  /// Selects operations that are cheap to compute again.
  void selectCheap();

  bool isSelected(mlir::Operation *op) const { return selected.contains(op); }
  /// The operations of the backward graph, in order.
  llvm::ArrayRef<mlir::Operation *> getBackward() const { return backward; }
  /// Bytes that the backward graph needs of the forward graph, as selected.
  uint64_t getKeptBytes() const { return keptBytes; }
  /// Whether nothing more should be selected.
  bool fitsBudget() const { return budget != 0 && keptBytes <= budget; }

private:
  struct Frontier {
    /// Values to keep from which everything follows.
    llvm::SmallSetVector<mlir::Value, 8> leaves;
    /// The operations in between.
    llvm::SmallSetVector<mlir::Operation *, 8> clones;
  };

  void findSaved();
  /// Selects what the saved results of `group` need, if that keeps fewer bytes.
  void consider(llvm::ArrayRef<mlir::Operation *> group,
                llvm::function_ref<bool(mlir::Operation *)> mayClone);
  void collect(mlir::Operation *op,
               llvm::function_ref<bool(mlir::Operation *)> mayClone,
               Frontier &frontier) const;
  bool isReturned(mlir::Operation *op) const;

  mlir::func::FuncOp function;
  uint64_t budget;
  uint64_t keptBytes = 0;
  llvm::SmallVector<mlir::Operation *> forward, backward;
  /// Values (without views) that the function returns.
  llvm::DenseSet<mlir::Value> returned;
  /// Values (without views) that backward operations use.
  llvm::SetVector<mlir::Value> saved;
  /// Those of them, and others, that are kept in any case.
  llvm::DenseSet<mlir::Value> kept;
  /// Operations that depend on an input of the model.
  llvm::DenseSet<mlir::Operation *> activations;
  llvm::DenseSet<mlir::Operation *> selected;
};

} // namespace nsa

#endif // NSA_PASSES_GRAPH_RECOMPUTEPLAN_H
