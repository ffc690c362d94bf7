//===- ScratchTiles.h - layout conversions through scratch ------*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_SCRATCHTILES_H
#define NSA_PASSES_CONVERSION_TILETONVVM_SCRATCHTILES_H

#include "passes/Conversion/TileToNVVM/TileReader.h"

namespace nsa::cuda {

/// One layout conversion: what threads store in the scratch for others. Begins
/// with a barrier behind which the last conversion has been read.
class Scratch {
public:
  explicit Scratch(TileReader &in);

  ScratchTile allocate(int64_t rows, int64_t cols, mlir::Type element);
  /// A tile of the operation, stored by the threads that hold it.
  ScratchTile store(mlir::Value tile);
  /// Ends the writes: what was stored can be read.
  void endStores();

private:
  void storeBlocked(mlir::Value tile, const ScratchTile &to);
  void storeMma(mlir::Value tile, const ScratchTile &to);

  TileReader &in;
  int64_t used = 0;
};

void writeScratch(ThreadBuilder &b, mlir::Value value, const ScratchTile &tile,
                  mlir::Value row, mlir::Value col);
/// One that takes a tile only: where all threads can read it.
ScratchTile storeInScratch(TileReader &in, mlir::Value tile);
/// The same of an operand: where it still lies since it
/// was converted to its layout, or in a layout conversion of its own.
ScratchTile share(TileReader &in, mlir::OpOperand &operand);
/// The registers of a tile of a blocked layout that lies in scratch.
llvm::SmallVector<mlir::Value> readBack(ThreadBuilder &b, mlir::Value tile,
                                        const ScratchTile &from);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_SCRATCHTILES_H
