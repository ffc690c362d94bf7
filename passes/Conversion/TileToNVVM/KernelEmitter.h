//===- KernelEmitter.h - one tile kernel to threads of a block --*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_KERNELEMITTER_H
#define NSA_PASSES_CONVERSION_TILETONVVM_KERNELEMITTER_H

#include "dialects/Tile/TileOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "passes/Analysis/TileBounds.h"
#include "passes/Conversion/TileToNVVM/ThreadBuilder.h"

namespace nsa::cuda {

/// How a tile lies in the registers of a block: element `k * threads + tid` in
/// row-major order is register `k` of thread `tid`.
struct Spread {
  Spread(tile::TileType type, int64_t threads)
      : rows(type.getRows()), cols(type.getCols()), threads(threads) {}

  int64_t elements() const { return rows * cols; }
  int64_t registers() const { return llvm::divideCeil(elements(), threads); }
  /// Whether register `k` is an element in every thread.
  bool isFull(int64_t k) const { return (k + 1) * threads <= elements(); }

  int64_t rows, cols, threads;
};

/// The kernel's argument that `ref` shows.
mlir::Value getArgument(mlir::Value ref);

/// Emits the CUDA kernel of one tile kernel.
class KernelEmitter {
public:
  KernelEmitter(tile::KernelOp kernel, int64_t threads);

  /// Inserts the function before the kernel. `sharedMemory` is the module's
  /// dynamic shared memory. Fails if the kernel needs more of it than
  /// `sharedLimit` bytes, or has an operation that CUDA has no code for.
  mlir::LogicalResult emit(mlir::LLVM::GlobalOp sharedMemory,
                           uint64_t sharedLimit);

private:
  // Where elements are.
  Spread spreadOf(mlir::Value tile) const;
  /// Row and column of register `k`.
  std::pair<mlir::Value, mlir::Value> place(const Spread &spread, int64_t k);
  /// The same, but the tile's last row or column for registers behind its end:
  /// what may be read of shared memory.
  std::pair<mlir::Value, mlir::Value> placeInside(const Spread &spread,
                                                  int64_t k);
  /// Whether register `k` is an element in this thread; null if it always is.
  mlir::Value isElement(const Spread &spread, int64_t k);
  /// The registers of a tile, which ranges and splats get now.
  llvm::SmallVector<mlir::Value> registersOf(mlir::Value tile);
  mlir::Value scalar(mlir::Value value) { return scalars.lookup(value); }

  // Exchange through shared memory.
  struct SharedTile {
    mlir::Value base;
    int64_t pitch;
    mlir::Type element;
  };
  /// Starts an exchange: waits until the last one has been read.
  void beginExchange();
  SharedTile allocate(int64_t rows, int64_t cols, mlir::Type element);
  SharedTile publish(mlir::Value tile);
  /// Ends the writes of an exchange: what was published can be read.
  void endPublishing() { barrier(); }
  mlir::Value readShared(const SharedTile &tile, mlir::Value row,
                         mlir::Value col);
  void writeShared(mlir::Value value, const SharedTile &tile, mlir::Value row,
                   mlir::Value col);
  void barrier();

  /// Where elements of an operand come from in an operation on a larger shape.
  struct Source {
    mlir::Value operand;
    /// Set if the elements are those of the same registers.
    llvm::SmallVector<mlir::Value> registers;
    std::optional<SharedTile> shared;
  };
  /// Sources of scalars and tiles that broadcast to `shape`.
  llvm::SmallVector<Source> prepare(mlir::ValueRange operands,
                                    tile::TileType shape);
  mlir::Value element(const Source &source, int64_t k, mlir::Value row,
                      mlir::Value col);

  // Operations.
  mlir::LogicalResult emitBlock(mlir::Block &block);
  mlir::LogicalResult emitOp(mlir::Operation *op);
  mlir::LogicalResult emitFor(mlir::scf::ForOp op);
  mlir::LogicalResult emitIf(mlir::scf::IfOp op);
  void emitScalarOp(mlir::Operation *op);
  void emitSelect(mlir::arith::SelectOp op);
  /// The registers of tiles and the scalars among `values`.
  llvm::SmallVector<mlir::Value> flatten(mlir::ValueRange values);
  llvm::SmallVector<mlir::Type> flattenTypes(mlir::TypeRange types);
  void unflatten(mlir::ValueRange values, mlir::ValueRange flat);

  // EmitMemory.cpp
  struct Address {
    mlir::Value offset;
    /// Whether every coordinate is inside; null if that is known.
    mlir::Value valid;
  };
  Address addressOf(mlir::Value ref, mlir::ValueRange operands,
                    mlir::ValueRange coordinates);
  mlir::Value loadElement(mlir::Value ref, const Address &address);
  void emitLoad(tile::LoadOp op);
  void emitStore(tile::StoreOp op);
  void guardLoad(tile::LoadOp op);
  void guardStore(tile::StoreOp op);

  // EmitTiles.cpp
  void emitMap(tile::MapOp op);
  void emitDot(tile::DotOp op);
  void emitReduce(tile::ReduceOp op);
  void emitTranspose(tile::TransposeOp op);
  void emitTopN(tile::TopNOp op);
  void emitSort(tile::SortOp op);
  void insertCandidate(const SharedTile &values, const SharedTile &indices,
                       mlir::Value row, int64_t count, mlir::Value value,
                       mlir::Value index);
  /// Runs `body` for each row that this thread has to do alone.
  void forOwnRows(int64_t rows, llvm::function_ref<void(mlir::Value)> body);
  void readBack(mlir::Value tile, const SharedTile &from);

  tile::KernelOp kernel;
  int64_t threads;
  ThreadBuilder b;
  TileBounds bounds;
  mlir::Value tid, sharedBase;
  int64_t sharedUsed = 0, sharedBytes = 0;
  mlir::IRMapping scalars;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> registers;

  /// Accesses to memory since the last barrier that others may not have made
  /// yet.
  llvm::SmallVector<tile::LoadOp> pendingLoads;
  bool pendingStores = false;
  /// Arguments that the kernel both reads and writes.
  llvm::DenseSet<mlir::Value> readAndWritten;
};

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_KERNELEMITTER_H
