//===- CpuEmitter.h - one tile kernel to loops over vectors -----*- C++ -*-===//

#ifndef NSA_PASSES_TILETOCPU_CPUEMITTER_H
#define NSA_PASSES_TILETOCPU_CPUEMITTER_H

#include "mlir/IR/IRMapping.h"
#include "passes/TileToCPU/BufferPlan.h"
#include "passes/TileToCPU/WorkEstimate.h"

namespace nsa::cpu {

/// Makes a kernel fit for emission: every dot multiplies f32 (16-bit operands
/// are converted once, where they are defined), and no loop yields one of its
/// own carried tiles at another position. Fails with a diagnostic for what the
/// CPU cannot run.
mlir::LogicalResult prepareKernel(tile::KernelOp kernel);

/// Emits the function of one prepared kernel.
class CpuEmitter {
public:
  CpuEmitter(tile::KernelOp kernel, unsigned width);

  /// Inserts the function before the kernel. Fails if the tiles of the kernel
  /// need more stack than a thread may use.
  mlir::LogicalResult emit();

  /// A tile in memory.
  struct Buffer {
    mlir::Value base;
    TileLayout layout;
  };

  VectorBuilder &getBuilder() { return b; }
  unsigned getWidth() const { return width; }
  const FusionPlan &getFusion() const { return fusion; }
  WorkEstimate &getWork() { return work; }
  /// What a scalar or memref of the kernel became.
  mlir::Value scalar(mlir::Value value) { return scalars.lookup(value); }
  bool hasBuffer(mlir::Value tile) const { return buffers.hasBuffer(tile); }
  Buffer bufferOf(mlir::Value tile);
  TileLayout layoutOf(mlir::Value tile) const;
  /// The scalar that a tile repeats, or null.
  mlir::Value splatScalar(mlir::Value tile);
  /// Whether all elements of a tile are known to be +0.
  static bool isZero(mlir::Value tile);
  /// Element (row, col) of a tile of i32; a dimension of size one repeats.
  mlir::Value coordinate(mlir::Value index, mlir::Value row, mlir::Value col);

  /// Where one row (outer position) of an access starts.
  struct RowAddress {
    mlir::Value offset;
    /// Whether every coordinate but that of the inner dimension is inside; null
    /// if that is known.
    mlir::Value valid;
    /// First coordinate of the inner dimension; null if that is known to fit.
    mlir::Value start;
    Extent extent = 0;
  };
  RowAddress rowAddress(const Access &access, mlir::Value outer);

  /// A size as i64.
  mlir::Value size(const Extent &extent);

private:
  mlir::Value multiply(mlir::Value value, const Extent &factor);
  /// 0 <= value < extent, of i32.
  mlir::Value isInside(mlir::Value value, const Extent &extent);
  void emitBlock(mlir::Block &block);
  void emitOp(mlir::Operation *op);
  void emitScalarOp(mlir::Operation *op);
  void emitFor(mlir::scf::ForOp op);
  void emitIf(mlir::scf::IfOp op);
  void emitProgramLoop();
  /// Notes on the function which performance lints the kernel takes.
  void recordPerformanceLints(mlir::Operation *function);
  /// Makes `target`'s buffer hold the tile `source`.
  void copyTile(mlir::Value source, mlir::Value target);
  void fillBuffer(mlir::Value source, const Buffer &target);

  // EmitMemory.cpp
  std::pair<mlir::Value, mlir::Value> scalarPlace(mlir::Value ref,
                                                  mlir::ValueRange indices);
  void emitLoad(tile::LoadOp op);
  void emitStore(tile::StoreOp op);
  void emitRows(const Access &access, const Buffer &buffer, bool isLoad);
  void emitElements(const Access &access, mlir::Value tile, bool isLoad);
  void copyRow(const Access &access, const RowAddress &address,
               const Buffer &buffer, mlir::Value outer, int64_t inner,
               bool isLoad);
  void emitPairs(const Access &access, const Buffer &buffer);
  void estimateRows(mlir::Operation *op, tile::TileType type);
  void estimateElements(mlir::Operation *op, tile::TileType type);

  // EmitRows.cpp
  void emitTranspose(tile::TransposeOp op);
  void estimateTranspose(mlir::Operation *op, mlir::Type elementType,
                         int64_t rows, int64_t cols);
  void emitAny(tile::AnyOp op);
  void emitTopN(tile::TopNOp op);
  void insertCandidate(const Buffer &values, const Buffer &indices,
                       mlir::Value row, mlir::Value value, mlir::Value index);
  void emitSort(tile::SortOp op);

  // EmitDot.cpp
  void emitDot(tile::DotOp op);

  tile::KernelOp kernel;
  unsigned width;
  VectorBuilder b;
  TileBounds bounds;
  FusionPlan fusion;
  BufferPlan buffers;
  WorkEstimate work;
  mlir::IRMapping scalars;
  llvm::SmallVector<mlir::Value> slots;
  llvm::SmallVector<mlir::Value> programIds;
  /// The extents of the launch, i64, if the kernel takes them, and what was
  /// computed with them so far.
  llvm::SmallVector<mlir::Value> extents;
  llvm::DenseMap<mlir::AffineMap, mlir::Value> sizes;
};

/// Bytes of scratch memory that a dot needs while it runs.
int64_t dotScratchBytes(tile::DotOp op, unsigned width);

/// Emits the loops of one nest.
void emitNest(CpuEmitter &kernel, const Nest &nest);

/// Whether emitTransposeBlocks uses vectors.
bool transposesVectors(mlir::Type elementType, int64_t rows, int64_t cols,
                       unsigned width);

/// Writes the transpose of a rows x cols matrix of 4-byte elements, row by row
/// `sourceStride` apart, to rows `targetStride` apart. Writes whole blocks: up
/// to cols rounded up to the vector width rows, and rows rounded up columns.
void emitTransposeBlocks(VectorBuilder &b, mlir::Type elementType,
                         mlir::Value source, int64_t sourceStride, int64_t rows,
                         int64_t cols, mlir::Value target, int64_t targetStride,
                         unsigned width);

} // namespace nsa::cpu

#endif // NSA_PASSES_TILETOCPU_CPUEMITTER_H
