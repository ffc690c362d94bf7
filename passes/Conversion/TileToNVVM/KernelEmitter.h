//===- KernelEmitter.h - one tile kernel to threads of a block --*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_KERNELEMITTER_H
#define NSA_PASSES_CONVERSION_TILETONVVM_KERNELEMITTER_H

#include "dialects/Tile/TileOps.h"
#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "passes/Analysis/TileBounds.h"
#include "passes/Conversion/TileToNVVM/AccessWidth.h"
#include "passes/Conversion/TileToNVVM/BlockedLayout.h"
#include "passes/Conversion/TileToNVVM/MmaLayout.h"
#include "passes/Conversion/TileToNVVM/MmaVersions.h"
#include "passes/Conversion/TileToNVVM/SharedTiles.h"
#include "passes/Conversion/TileToNVVM/ThreadBuilder.h"

namespace nsa::cuda {

struct Masks;

/// Emits the CUDA kernel of one tile kernel, whose tiles have layouts and whose
/// buffers have offsets.
class KernelEmitter {
public:
  explicit KernelEmitter(tile::KernelOp kernel);

  /// Inserts the function before the kernel. `sharedMemory` is the module's
  /// dynamic shared memory. Fails if the kernel has an operation that CUDA has
  /// no code for.
  mlir::LogicalResult emit(mlir::LLVM::GlobalOp sharedMemory);

  struct WarpgroupStep;

private:
  // Where elements are.
  /// Row and column of register `k`.
  std::pair<mlir::Value, mlir::Value> place(const BlockedLayout &blocked,
                                            int64_t k);
  /// The same, but the tile's last row or column for registers behind its end:
  /// what may be read of shared memory.
  std::pair<mlir::Value, mlir::Value> placeInside(const BlockedLayout &blocked,
                                                  int64_t k);
  /// Whether the row (column) of register `k` is one of the tile in this
  /// thread; null if it always is.
  mlir::Value hasRow(const BlockedLayout &blocked, int64_t k);
  mlir::Value hasCol(const BlockedLayout &blocked, int64_t k);
  /// Whether register `k` is an element in this thread; null if it always is.
  mlir::Value isElement(const BlockedLayout &blocked, int64_t k);
  /// The same, of one of the threads that hold it.
  mlir::Value isOwner(const BlockedLayout &blocked, int64_t k);
  /// The registers of a tile, which ranges and splats get now.
  llvm::SmallVector<mlir::Value> registersOf(mlir::Value tile);
  mlir::Value scalar(mlir::Value value) { return scalars.lookup(value); }

  // Layout conversion through shared memory.
  struct SharedTile {
    mlir::Value base;
    int64_t pitch;
    mlir::Type element;
  };
  /// Starts a layout conversion: waits until the last one has been read.
  void beginLayoutConversion();
  SharedTile allocate(int64_t rows, int64_t cols, mlir::Type element);
  SharedTile localStore(mlir::Value tile);
  /// The operand of an operation where all threads can read it: where it still
  /// lies since it was converted, or stored in a layout conversion of its own.
  SharedTile share(mlir::OpOperand &operand);
  /// Ends the writes of a layout conversion: what was stored can be read.
  void endLocalStores() { tile_gpu::BarrierOp::create(b); }
  mlir::Value readShared(const SharedTile &tile, mlir::Value row,
                         mlir::Value col);
  void writeShared(mlir::Value value, const SharedTile &tile, mlir::Value row,
                   mlir::Value col);

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
  /// The registers of a tile that belong to those of a larger shape, one for
  /// each; nothing if other threads hold some of them.
  llvm::SmallVector<mlir::Value> broadcast(mlir::Value tile,
                                           const BlockedLayout &larger);
  mlir::Value element(const Source &source, int64_t k, mlir::Value row,
                      mlir::Value col);

  mlir::LLVM::LLVMFuncOp createFunction();

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
  bool isInside(mlir::Value index, const Extent &extent);
  Address addressOf(mlir::Value ref, mlir::ValueRange operands,
                    mlir::ValueRange coordinates);
  mlir::Value loadElement(mlir::Value ref, const Address &address);
  Address both(const Address &lhs, const Address &rhs);
  /// Like `loadElement`, of elements that lie together.
  llvm::SmallVector<mlir::Value>
  loadTogether(mlir::Value ref, const Address &address, int64_t count);
  void storeTogether(mlir::ValueRange values, mlir::Value ref,
                     const Address &address);
  /// Where register `k` of an access to memory is.
  Address addressAt(mlir::Value ref, mlir::ValueRange indices,
                    llvm::ArrayRef<Source> sources,
                    const BlockedLayout &blocked, int64_t k);
  void emitLoad(tile::LoadOp op);
  void emitStore(tile::StoreOp op);

  // EmitTiles.cpp
  void emitMap(tile::MapOp op);
  void emitDot(tile::DotOp op);
  void emitTranspose(tile::TransposeOp op);
  void emitAny(tile::AnyOp op);
  void readBack(mlir::Value tile, const SharedTile &from);

  // EmitTopN.cpp
  void emitTopN(tile::TopNOp op);
  void emitTopNInRegisters(tile::TopNOp op);
  /// A packed candidate, 0 behind the end of its row.
  mlir::Value readCandidate(tile::TopNOp op, const SharedTile &from,
                            mlir::Value row, mlir::Value col);
  void emitSort(tile::SortOp op);

  // EmitReduce.cpp
  void emitReduce(tile::ReduceOp op);
  void reduceRows(tile::ReduceOp op);
  void reduceCols(tile::ReduceOp op);
  /// Combines the values of lanes whose numbers differ in the bits from `first`
  /// to `end`, which are powers of two.
  mlir::Value combineAcross(tile::ReduceKind kind, mlir::Value value,
                            int64_t first, int64_t end);
  /// Combines column `col` of the first `count` rows of `tile`.
  mlir::Value combineShared(tile::ReduceKind kind, const SharedTile &tile,
                            int64_t count, mlir::Value col);

  // EmitRematerialized.cpp
  /// What has been computed for one operation: elements of tiles at a row and a
  /// column.
  using Memo = llvm::DenseMap<std::tuple<mlir::Value, mlir::Value, mlir::Value>,
                              mlir::Value>;
  /// The element at a place of a larger shape of a tile without registers; or a
  /// scalar.
  mlir::Value evaluate(mlir::Value operand, mlir::Value row, mlir::Value col,
                       Memo &memo);
  /// Runs a map's body on elements: what it yields. Of a result in `wide`, the
  /// f32 number that is to be rounded.
  llvm::SmallVector<mlir::Value> runBody(tile::MapOp op,
                                         mlir::ValueRange elements,
                                         const llvm::SmallBitVector &wide = {});
  /// Emits an operation of a map's body.
  void emitInner(mlir::Operation &op);
  mlir::Value emitExp2(mlir::Value power);
  mlir::Value emitExp(mlir::math::ExpOp op);

  // EmitMmaTiles.cpp
  /// What is known about the thread; emitted on the first use, at the start.
  struct Thread {
    mlir::Value lane, warp;
    /// lane / 4 and 2 * (lane % 4).
    mlir::Value quad, pair;
  };
  const Thread &thread();
  /// Emits code at the start of the function.
  mlir::Value hoisted(llvm::function_ref<mlir::Value()> make);
  mlir::Value rowOf(const MmaLayout &layout, int64_t r);
  mlir::Value colOf(const MmaLayout &layout, int64_t c);
  /// Whether row `r` (column `c`) of a thread is one of the tile; null if so in
  /// all threads.
  mlir::Value hasRow(const MmaLayout &layout, int64_t r);
  mlir::Value hasCol(const MmaLayout &layout, int64_t c);
  /// Of the threads that repeat an element, one; null if none do.
  mlir::Value isFirst(const MmaLayout &layout);
  /// Element (r, c) of a thread of a larger MMA tile.
  mlir::Value mmaElement(mlir::Value tile, const MmaLayout &larger, int64_t r,
                         int64_t c, Memo &memo);
  /// Whether the elements of a map's rows are best computed where they are
  /// used, and one of such a row.
  bool canDefer(tile::MapOp op) const;
  mlir::Value deferredElement(mlir::Value row, int64_t c, Memo &memo);
  /// Registers of elements in row-major order, and elements of registers.
  llvm::SmallVector<mlir::Value> pack(const MmaLayout &layout,
                                      mlir::ArrayRef<mlir::Value> elements);
  llvm::SmallVector<mlir::Value> elementsOf(mlir::Value tile);
  void emitMmaMap(tile::MapOp op);
  bool emitRowScaling(tile::MapOp op);
  /// The registers of a map's results, one after another.
  llvm::SmallVector<mlir::Value> runMap(tile::MapOp op);
  mlir::Value holdsEverywhere(tile::MapOp op, const Masks &masks);
  void emitMmaReduce(tile::ReduceOp op);
  mlir::Value combineRows(const MmaLayout &input, tile::ReduceKind kind,
                          mlir::ArrayRef<mlir::Value> elements, int64_t c);
  void combineWarps(const MmaLayout &input, tile::ReduceKind kind,
                    llvm::SmallVectorImpl<mlir::Value> &columns);

  // EmitMmaMemory.cpp
  /// Offsets of the elements of a tile in the MMA layout, in parts that are the
  /// same in a row or a column.
  struct Addresses {
    llvm::SmallVector<Address> rows, cols;
    /// Of each element, if a coordinate depends on both.
    llvm::SmallVector<Address> mixed;
  };
  Addresses addressesOf(mlir::Value ref, mlir::ValueRange indices,
                        const MmaLayout &layout);
  Address addressAt(const Addresses &addresses, const MmaLayout &layout,
                    int64_t r, int64_t c);
  mlir::Value loadPair(mlir::Value ref, const Address &address);
  void emitMmaLoad(tile::LoadOp op);
  llvm::SmallVector<mlir::Value>
  transposeQuad(llvm::ArrayRef<mlir::Value> words);
  void storeVectors(tile::StoreOp op, const MmaLayout &layout,
                    const Addresses &addresses,
                    llvm::ArrayRef<mlir::Value> values);
  void emitMmaStore(tile::StoreOp op);

  // EmitShared.cpp
  /// A tile that stays in shared memory.
  struct SharedBuffer {
    SharedShape shape;
    int64_t offset;
    /// Bytes to add for one of several stages; null if there is one only.
    mlir::Value stage;
  };
  SharedBuffer sharedBufferOf(mlir::Value tile);
  mlir::Value bufferAddress(const SharedBuffer &tile, mlir::Value row,
                            mlir::Value vector);
  mlir::Value swizzle(const SharedShape &shape, mlir::Value row,
                      mlir::Value vector);
  /// The address of an element.
  mlir::Value bufferElement(const SharedBuffer &tile, mlir::Value row,
                            mlir::Value col);
  void emitAsyncCopy(tile_gpu::AsyncCopyOp op);
  int64_t countWorkers(int64_t perRow) const;
  void forPieces(int64_t pieces, int64_t perRow,
                 llvm::function_ref<void(mlir::Value, mlir::Value)> body);
  void copyVectors(tile_gpu::AsyncCopyOp op, const SharedBuffer &tile);
  void copyElements(tile_gpu::AsyncCopyOp op, const SharedBuffer &tile);

  // EmitLines.cpp
  /// Where rows and columns lie that a loop has copied.
  struct StagedVector {
    int64_t offset;
    mlir::Value stage;
  };
  StagedVector stagedVectorOf(mlir::Value line);
  mlir::Value stagedAddress(const StagedVector &line, mlir::Value bytes);
  void copyLine(tile_gpu::AsyncCopyOp op);
  void readLine(mlir::Value line);
  mlir::Value loadLinePair(mlir::Value line, int64_t pair);

  // EmitRoles.cpp
  mlir::Value mbarrierAddress(mlir::Value barriers, mlir::Value index);
  void emitMBarrierInit(tile_gpu::MBarrierInitOp op);
  void emitMBarrierWait(tile_gpu::MBarrierWaitOp op);
  void emitMBarrierExpect(tile_gpu::MBarrierExpectOp op);
  void emitMBarrierArrive(tile_gpu::MBarrierArriveOp op);
  void addTensorMaps(mlir::LLVM::LLVMFuncOp func);
  void emitTmaLoad(tile_gpu::TmaLoadOp op);
  mlir::LogicalResult emitRoles(tile_gpu::WarpSpecializeOp op);

  // EmitConvert.cpp
  void emitConvert(tile::ConvertOp op);
  void emitLocalStore(tile_gpu::LocalStoreOp op);
  void storeMma(mlir::Value input, const SharedBuffer &tile);
  void convertToMma(tile::ConvertOp op);
  void convertToBlocked(tile::ConvertOp op);
  SharedTile localStoreMma(mlir::Value tile);
  /// `rowOf` and `colOf`, but the last one of the tile for padding.
  mlir::Value insideRow(const MmaLayout &layout, int64_t r);
  mlir::Value insideCol(const MmaLayout &layout, int64_t c);

  // EmitDotMma.cpp
  /// Which 8x8 matrix each quarter of a warp addresses: rows first, that is
  /// (0, 0), (8, 0), (0, 1), (8, 1) in rows and vectors, or vectors first.
  enum class MatrixOrder { RowsFirst, ChunksFirst };
  /// Four 8x8 matrices: rows `row` .. `row + 15` and vectors `vector`,
  /// `vector + 1`; `rowBytes` are added to the address.
  llvm::SmallVector<mlir::Value> loadMatrices(const SharedBuffer &tile,
                                              MatrixOrder order, bool transpose,
                                              int64_t row, int64_t vector,
                                              mlir::Value firstByte = {});
  mlir::Value lanePointer(const SharedShape &shape, MatrixOrder order,
                          int64_t flip);
  /// The byte where M-tile `s` of this thread's warp starts in a shared tile.
  mlir::Value mTileByte(const SharedShape &shape, int64_t mmaWarps, int64_t s);
  mlir::Value mTileOf(int64_t rows, int64_t mmaWarps, int64_t s);
  llvm::SmallVector<mlir::Value> loadMma(const SharedBuffer &tile,
                                         const MmaLayout &layout);
  llvm::SmallVector<mlir::Value> loadTransposedA(const SharedBuffer &tile,
                                                 int64_t mmaWarps, int64_t s,
                                                 int64_t k);
  /// Operand A for M-tile `s` and columns `16 * k` and on.
  llvm::SmallVector<mlir::Value> operandA(tile::DotOp op, int64_t s, int64_t k);
  void emitMmaDot(tile::DotOp op);

  // EmitDotWgmma.cpp
  mlir::Value warpgroup();
  mlir::Value matrixDescriptor(const SharedBuffer &tile, bool across,
                               int64_t byte, mlir::Value unit);
  mlir::Value describeA(tile::DotOp op, int64_t s, int64_t k);
  mlir::Value describeB(tile::DotOp op, int64_t k);
  void emitWarpgroupDot(tile::DotOp op);

  tile::KernelOp kernel;
  int64_t threads;
  ThreadBuilder b;
  TileBounds bounds;
  mlir::Value tid, sharedBase;
  /// The layout-conversion scratch lies behind the tiles that stay in shared
  /// memory.
  mlir::Value conversionBase;
  int64_t sharedUsed = 0;
  /// The tiles that the last layout conversion brought to another layout, and
  /// which still lie there.
  llvm::SmallDenseMap<mlir::Value, SharedTile, 1> stillShared;
  mlir::IRMapping scalars;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> registers;

  /// Of layouts.
  int64_t warps;
  /// Selects of the map at hand whose conditions hold.
  llvm::DenseSet<mlir::Operation *> assumed;
  Thread threadValues;
  /// Row and column numbers in MMA tiles; -1 is that of a dimension of size
  /// one.
  llvm::DenseMap<int64_t, mlir::Value> threadRows, threadCols;
  mlir::Operation *startEnd = nullptr;
  llvm::DenseMap<std::tuple<int64_t, int64_t, int64_t>, mlir::Value>
      lanePointers;
  mlir::Value warpgroupNumber, sharedStartUnits;
  /// Rows that are read from there, or computed of that, where they are used.
  llvm::DenseSet<mlir::Value> deferred;
};

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_KERNELEMITTER_H
