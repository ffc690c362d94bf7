//===- TileReader.h - elements of the tiles that an op reads ----*- C++ -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_TILEREADER_H
#define NSA_PASSES_CONVERSION_TILETONVVM_TILEREADER_H

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Transforms/DialectConversion.h"
#include "passes/Analysis/TileBounds.h"
#include "passes/Conversion/TileToNVVM/BlockedLayout.h"
#include "passes/Conversion/TileToNVVM/ThreadBuilder.h"
#include "llvm/ADT/SmallBitVector.h"

namespace nsa::cuda {

/// A tile in the scratch of layout conversions, in rows.
struct ScratchTile {
  mlir::Value base;
  int64_t pitch;
  mlir::Type element;
};
mlir::Value readScratch(ThreadBuilder &b, const ScratchTile &tile,
                        mlir::Value row, mlir::Value col);

/// What has been computed for one operation: elements of tiles at a row and a
/// column.
using Memo = llvm::DenseMap<std::tuple<mlir::Value, mlir::Value, mlir::Value>,
                            mlir::Value>;

/// Where elements of an operand come from in an operation on a larger shape.
struct Source {
  mlir::Value operand;
  /// Set if the elements are those of the same registers.
  llvm::SmallVector<mlir::Value> registers;
  std::optional<ScratchTile> scratch;
};

/// Reads what the operands of one operation, which is converted, are: registers
/// of tiles, and elements of those that have none.
class TileReader {
public:
  /// `converted` are the operands of `op`, as registers.
  TileReader(ThreadBuilder &b, mlir::Operation *op,
             llvm::ArrayRef<mlir::ValueRange> converted,
             mlir::ConversionPatternRewriter &rewriter, TileBounds &bounds);

  /// What a scalar or a memref has become.
  mlir::Value scalar(mlir::Value value) {
    return rewriter.getRemappedValue(value);
  }
  /// The registers of a tile; those of a tile that has none are computed.
  llvm::SmallVector<mlir::Value> registersOf(mlir::Value tile);

  // Blocked layouts.
  /// Sources of scalars and tiles that broadcast to `shape`.
  llvm::SmallVector<Source> prepare(mlir::ValueRange operands,
                                    tile::TileType shape);
  mlir::Value element(const Source &source, int64_t k, mlir::Value row,
                      mlir::Value col);

  // The MMA layout.
  /// Element (r, c) of a thread of a larger MMA tile.
  mlir::Value mmaElement(mlir::Value tile, const MmaLayout &larger, int64_t r,
                         int64_t c, Memo &memo);
  llvm::SmallVector<mlir::Value> elementsOf(mlir::Value tile);

  /// The element at a place of a larger shape of a tile without registers; or a
  /// scalar.
  mlir::Value evaluate(mlir::Value operand, mlir::Value row, mlir::Value col,
                       Memo &memo);
  /// Runs a map's body on elements, with what `mapOuter` gives: what it yields.
  /// Of a result in `wide`, the f32 number that is to be rounded. Selects that
  /// are `assumed` to choose their first value do.
  llvm::SmallVector<mlir::Value>
  runBody(tile::MapOp op, mlir::ValueRange elements, mlir::IRMapping &mapping,
          const llvm::SmallBitVector &wide = {},
          llvm::ArrayRef<mlir::arith::SelectOp> assumed = {});

  /// Moves what is in a region to an empty one.
  void moveRegion(mlir::Region &from, mlir::Region &to) {
    rewriter.inlineRegionBefore(from, to, to.end());
  }

  /// What the body of a map uses from outside. Runs of the body add their
  /// values, over those of earlier ones.
  mlir::IRMapping mapOuter(tile::MapOp op);

  ThreadBuilder &b;
  TileBounds &bounds;

private:
  mlir::Value rowElement(mlir::Value row, int64_t c, Memo &memo);
  llvm::SmallVector<mlir::Value> broadcast(mlir::Value tile,
                                           const BlockedLayout &larger);

  mlir::ConversionPatternRewriter &rewriter;
  llvm::DenseMap<mlir::Value, mlir::ValueRange> converted;
};

/// 2^power by the special function unit.
mlir::Value createExp2(ThreadBuilder &b, mlir::Value power);
/// e^x by the same.
mlir::Value createExp(ThreadBuilder &b, mlir::Value x);

/// Elements of the MMA layout in row-major order.
llvm::SmallVector<mlir::Value>
makeElements(const MmaLayout &layout,
             llvm::function_ref<mlir::Value(int64_t r, int64_t c)> make);
/// Their registers.
llvm::SmallVector<mlir::Value> pack(ThreadBuilder &b, const MmaLayout &layout,
                                    llvm::ArrayRef<mlir::Value> elements);

/// Whether a tile is a row in a buffer, or computed of that, whose elements are
/// read where they are used: every thread would hold them in as many registers
/// as its part of a whole M-tile takes.
bool isReadWhereUsed(mlir::Value tile);
/// Whether threads hold a tile: its elements are neither computed nor read
/// where they are used.
bool hasRegisters(mlir::Value tile);
/// Columns `2 * pair` and the next of a row in a buffer.
mlir::Value loadRowPair(TileReader &in, mlir::Value row, int64_t pair);
/// What stands for registers that nobody reads.
llvm::SmallVector<mlir::Value> getUnused(ThreadBuilder &b, mlir::Value tile);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_TILEREADER_H
