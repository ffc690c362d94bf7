//===- GlobalAccesses.h - how operations access arguments -------*- C++ -*-===//

#ifndef NSA_PASSES_TILEGPU_GLOBALACCESSES_H
#define NSA_PASSES_TILEGPU_GLOBALACCESSES_H

#include "dialects/TileGPU/TileGPUOps.h"

namespace nsa::cuda {

/// What is read of memory: a load, or a copy to shared memory.
struct ReadAccess {
  ReadAccess(tile::LoadOp load)
      : op(load), ref(load.getRef()), indices(load.getIndices()),
        type(load.getType()), target(load.getResult()) {}
  ReadAccess(tile_gpu::AsyncCopyOp copy)
      : op(copy), ref(copy.getRef()), indices(copy.getIndices()),
        type(copy.getTileType()), target(copy.getBuffer()) {}

  mlir::Operation *op;
  mlir::Value ref;
  mlir::OperandRange indices;
  /// Of what is read: a tile, or a scalar.
  mlir::Type type;
  /// Where it is afterwards: the loaded tile, or the buffer.
  mlir::Value target;
};

/// Nothing of other operations.
std::optional<ReadAccess> getReadAccess(mlir::Operation *op);

/// The kernel's argument that `ref` shows.
mlir::Value getArgument(mlir::Value ref);

/// The alignment, in bytes, of the kernel's argument that `ref` is a view of.
int64_t getAlignment(mlir::Value ref);

/// The largest power of two up to `most` such that this many columns of an
/// access, beginning at a multiple of the number, always lie together in
/// memory, aligned as a whole, and are either all inside or all outside.
int64_t getAccessWidth(mlir::Value ref, mlir::ValueRange indices, int64_t most);

/// The largest power of two up to `most`, itself one, that surely divides an
/// i32.
int64_t getDivisor(mlir::Value value, int64_t most);

/// How many elements of `ref`, of `cols` columns, one access of a thread can
/// move.
int64_t getMostTogether(mlir::Value ref, int64_t cols);

/// A read or a write of an argument of a kernel.
struct GlobalAccess {
  mlir::Value argument;
  bool isWrite;
  /// The load or store, if each element is one thread's; null if several
  /// threads may have it.
  mlir::Operation *owned;

  bool operator==(const GlobalAccess &other) const {
    return argument == other.argument && isWrite == other.isWrite &&
           owned == other.owned;
  }
};

/// What an operation reads and writes itself, or where threads evaluate its
/// operands; regions aside. A wait for loads by TMA is the read of these.
llvm::SmallVector<GlobalAccess> getGlobalAccesses(mlir::Operation *op);

/// Whether the same threads access the same elements, each its own.
bool haveSameOwners(const GlobalAccess &x, const GlobalAccess &y);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPU_GLOBALACCESSES_H
