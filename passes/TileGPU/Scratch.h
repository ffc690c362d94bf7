//===- Scratch.h - shared memory for layout conversions ---------*- C++ -*-===//
//
// Layout conversions go through scratch in shared memory, which each takes from
// its start.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_TILEGPU_SCRATCH_H
#define NSA_PASSES_TILEGPU_SCRATCH_H

#include "passes/TileGPU/RegisterLayout.h"

namespace nsa::cuda {

class ThreadBuilder;
class TileReader;

/// What a reduction puts into scratch: the partial results of each warp, and
/// results of a blocked layout that other threads need.
struct ReduceExchange {
  explicit ReduceExchange(tile::ReduceOp op);

  bool ofWarps = false, ofResults = false;
};

/// Whether each row lies in one thread.
bool isInThreads(mlir::Value lists);
/// Whether lists lie in the registers of the threads that sort them, and stay
/// there.
bool staysInRegisters(tile::TopNOp op);

/// Bytes of scratch that an operation of a kernel with `tile_gpu.threads`
/// takes; 0 if threads exchange nothing.
int64_t getScratchBytes(mlir::Operation *op);

/// A tile in scratch, in rows of `pitch` elements: padded by one word to avoid
/// bank conflicts along rows and columns.
struct ScratchTile {
  mlir::Value read(ThreadBuilder &b, mlir::Value row, mlir::Value col) const;
  void write(ThreadBuilder &b, mlir::Value value, mlir::Value row,
             mlir::Value col) const;

  mlir::Value base;
  int64_t pitch;
  mlir::Type element;
};

/// One layout conversion: what threads store in the scratch for others. Begins
/// with a barrier after which the last conversion has been read.
class Scratch {
public:
  explicit Scratch(TileReader &in);

  ScratchTile allocate(int64_t rows, int64_t cols, mlir::Type element);
  /// A tile of the operation, stored by the threads that hold it.
  ScratchTile store(mlir::Value tile);
  /// Ends the writes: what was stored can be read.
  void endStores();

private:
  TileReader &in;
  int64_t used = 0;
};

/// A conversion of one tile only: where all threads can read it.
ScratchTile storeInScratch(TileReader &in, mlir::Value tile);
/// The same of an operand: reuses the scratch of its layout conversion if that
/// still holds it.
ScratchTile share(TileReader &in, mlir::OpOperand &operand);
/// The registers of a tile of a blocked layout that lies in scratch.
llvm::SmallVector<mlir::Value> readBack(ThreadBuilder &b, mlir::Value tile,
                                        const ScratchTile &from);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPU_SCRATCH_H
