//===- FusionPlan.h - which operations share a loop nest --------*- C++ -*-===//
//
// A nest runs over the elements of one shape. Around its root it computes
// inside the loops
//   - maps and loads whose only users are in the nest (deferred to the root),
//   - reductions and stores of what the root map computes (moved up to it),
// so that values flow through registers. An operation moves only where memory
// effects keep their order.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_TILETOCPU_FUSIONPLAN_H
#define NSA_PASSES_TILETOCPU_FUSIONPLAN_H

#include "passes/TileToCPU/Access.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

namespace nsa::cpu {

/// Whether `op` or something inside it stores, or loads or stores.
bool touchesMemory(mlir::Operation *op, bool writesOnly);

struct Nest {
  mlir::Operation *root;
  tile::TileType shape;
  /// In program order, the root among them.
  llvm::SmallVector<mlir::Operation *> ops;
};

class FusionPlan {
public:
  FusionPlan(tile::KernelOp kernel, TileBounds &bounds, unsigned width);

  /// The operation where `op` is computed; often `op` itself.
  mlir::Operation *getRoot(mlir::Operation *op) const {
    mlir::Operation *root = roots.lookup(op);
    return root ? root : op;
  }
  /// The nest of a root, or null if the operation has its own lowering.
  const Nest *getNest(mlir::Operation *root) const {
    const auto *nest = nests.find(root);
    return nest == nests.end() ? nullptr : &nest->second;
  }
  const Access &getAccess(mlir::Operation *op) const {
    return accesses.find(op)->second;
  }
  /// Whether a value must exist in memory.
  bool needsBuffer(mlir::Value value) const;

private:
  void planBlock(mlir::Block &block);
  bool canDefer(mlir::Operation *op) const;
  void absorbUsers(tile::MapOp op);
  bool canMoveUp(tile::StoreOp op, tile::MapOp root) const;

  llvm::DenseMap<mlir::Operation *, mlir::Operation *> roots;
  /// Maps that stores were moved up to.
  llvm::DenseSet<mlir::Operation *> writers;
  llvm::MapVector<mlir::Operation *, Nest> nests;
  llvm::DenseMap<mlir::Operation *, Access> accesses;
};

} // namespace nsa::cpu

#endif // NSA_PASSES_TILETOCPU_FUSIONPLAN_H
