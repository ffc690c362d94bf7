//===- Prefetch.h - which copies a loop can make ahead ----------*- C++ -*-===//

#ifndef NSA_PASSES_TILEGPU_PREFETCH_H
#define NSA_PASSES_TILEGPU_PREFETCH_H

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/TileGPU/RegisterLayout.h"
#include "llvm/ADT/SetVector.h"

namespace nsa::cuda {

/// Copies to shared memory that an iteration of a loop can issue for the next
/// one, and the operations that they need.
struct Prefetch {
  /// Those of lines last.
  llvm::SmallVector<tile_gpu::AsyncCopyOp> copies;
  /// Lines: loads of one row or one column of f32 or i32, MMA tiles that
  /// threads repeat. These can be copied too.
  llvm::SmallVector<tile::LoadOp> lines;
  /// Operations in the loop whose results the copies need, in order.
  llvm::SetVector<mlir::Operation *> addresses;

  bool empty() const { return copies.empty(); }
  /// The buffers, and the lines that have none yet.
  llvm::SmallVector<mlir::Value> targets() {
    auto all = llvm::map_to_vector(copies, [](tile_gpu::AsyncCopyOp copy) {
      return mlir::Value(copy.getBuffer());
    });
    for (tile::LoadOp load : lines)
      all.push_back(load.getResult());
    return all;
  }
};

/// Finds the copies of a loop's own block whose stages depend on the number of
/// the iteration only. `written` are the arguments that the kernel writes.
Prefetch findPrefetch(mlir::scf::ForOp loop,
                      const llvm::DenseSet<mlir::Value> &written);

/// Adds the operations in `scope` that values depend on. False if they depend
/// on what an iteration computed, on memory that the kernel writes, or on more
/// than scalars and elements computed where they are used.
bool addSlice(mlir::Operation *scope, mlir::ValueRange values,
              const llvm::DenseSet<mlir::Value> &written,
              llvm::DenseSet<mlir::Operation *> &operations);

/// The arguments that a kernel writes.
llvm::DenseSet<mlir::Value> getWrittenArguments(tile::KernelOp kernel);

/// The first dot of a loop's iteration, if it is a wgmma and no dot is nested
/// before it; null if not.
tile::DotOp findFirstDot(mlir::scf::ForOp loop);

/// A loop that carries more values, with the body of `loop` and the values that
/// it carries first, in its place but without `tile_gpu.pipeline`; `loop` is
/// left empty.
mlir::scf::ForOp extendLoop(mlir::OpBuilder &b, mlir::scf::ForOp loop,
                            mlir::ValueRange more);

/// Makes a buffer at an offset in shared memory of the row or column that a
/// load makes, a copy to it in place of the load, and lets its users read that.
void promoteLine(tile::LoadOp load, int64_t offset);

/// The layout of a row or a column that a loop copies, of a loaded tile or of
/// its buffer.
RegisterLayout getLineLayout(mlir::Value line);

/// Lets views and loads of a buffer that have no stage yet be at one.
void setStage(mlir::Value buffer, mlir::Value stage);

/// Bytes that a buffer, or a line of 4-byte elements, takes where a loop copies
/// it. Lines go after tiles, which begin at multiples of a swizzle's
/// pattern.
int64_t getPlaceBytes(mlir::Value target);

/// How many elements an asynchronous copy can move of a load: 2, 4 or 8; 0 if
/// there is no such copy.
int64_t getCopyWidth(tile::LoadOp load);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPU_PREFETCH_H
