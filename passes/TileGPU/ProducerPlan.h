//===- ProducerPlan.h - what a warpgroup of its own copies ------*- C++ -*-===//

#ifndef NSA_PASSES_TILEGPU_PRODUCERPLAN_H
#define NSA_PASSES_TILEGPU_PRODUCERPLAN_H

#include "dialects/RT/RTOps.h"
#include "passes/TileGPU/GlobalAccesses.h"
#include "passes/TileGPU/Prefetch.h"
#include "llvm/ADT/MapVector.h"

namespace nsa::cuda {

/// A load as TMA tiles (cp.async.bulk.tensor on sm_90a), which one thread
/// issues and TMA swizzles as wgmma reads them: the swizzle atom columns of a
/// shared tile, or one line of 4-byte elements. The tensor map is a parameter
/// of the kernel. Or a line of gathered rows without one, which the producer's
/// warp copies.
struct TensorCopy {
  ReadAccess access;
  rt::TensorMapAttr map;
  /// Where the first box starts along each dimension, innermost first.
  llvm::SmallVector<mlir::Value> start;
  /// Of all boxes.
  int64_t bytes;
  /// Rows of a box of a tile that is gathered, of which `start` has tiles; 0 of
  /// others.
  int64_t rows = 0;
  /// Swizzle atom columns, which have boxes of their own; 0 without a map.
  int64_t columns = 0;
  /// Its offset in a stage, and the number of its tensor map.
  int64_t offset = 0;
  size_t mapNumber = 0;
};

/// Splits a kernel into consumer warpgroups and a producer, which loads the
/// tiles of their loops as far ahead as the stages allow. All of these loops
/// share one pipeline.
struct ProducerPlan {
  /// Tiles of the whole kernel, which lie in buffers of their own.
  llvm::SmallVector<TensorCopy> stationary;
  /// The loops with their copies, and those around them.
  llvm::MapVector<mlir::Operation *, llvm::SmallVector<TensorCopy>> loops;
  llvm::DenseSet<mlir::Operation *> around;
  /// What the stages of copies and the trips of loops are computed with.
  llvm::DenseSet<mlir::Operation *> operations;
  llvm::SmallVector<mlir::Attribute> maps;

  /// Bytes of a stage of the pipeline, how many there are, and blocks that a
  /// multiprocessor runs at once.
  int64_t stageBytes = 0, depth = 0, blocks = 1;

  bool empty() const { return loops.empty(); }
  /// How many warps of the producer have lanes that gather rows; 0 if it is a
  /// thread.
  int64_t countWarps() const;
};

/// Whether the kernel asks for a producer that gathers.
bool asksToGather(tile::KernelOp kernel);

/// The block that roles split: a kernel's, or that of the branch in which a
/// kernel ends that asks to gather.
mlir::Block &getBlockOfRoles(tile::KernelOp kernel);

/// Whether the elements of a row or a column, in groups of `group` in sequence,
/// are the same in each.
bool isSameInGroups(mlir::Value tile, int64_t group);

/// Maximum accumulator registers of a loop and the loops around it.
int64_t countSums(mlir::scf::ForOp loop);

/// Plans the loops of which `multiplies` holds and that copy nothing but TMA
/// tiles from stages that do not depend on results. Nothing if there are no
/// such loops, or if the kernel asks for blocks at once. How many stages there
/// are is not set.
ProducerPlan
planProducer(tile::KernelOp kernel, const llvm::DenseSet<mlir::Value> &written,
             llvm::function_ref<bool(mlir::scf::ForOp)> multiplies);

/// Sets the stages and blocks of a plan for this number of consumer threads.
/// False if a pipeline of two stages does not fit into `sharedLimit` bytes.
bool chooseStages(ProducerPlan &plan, tile::KernelOp kernel, int64_t threads,
                  int64_t sharedLimit);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPU_PRODUCERPLAN_H
