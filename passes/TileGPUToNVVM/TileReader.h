//===- TileReader.h - elements of the tiles that an op reads ----*- C++ -*-===//

#ifndef NSA_PASSES_TILEGPUTONVVM_TILEREADER_H
#define NSA_PASSES_TILEGPUTONVVM_TILEREADER_H

#include "dialects/TileGPU/TileGPUOps.h"
#include "mlir/Transforms/DialectConversion.h"
#include "passes/Analysis/TileBounds.h"
#include "passes/TileGPU/Scratch.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/ThreadBuilder.h"
#include "llvm/ADT/SmallBitVector.h"

namespace nsa::cuda {

/// What has been computed for one operation: elements of tiles at a row and a
/// column.
using Memo = llvm::DenseMap<std::tuple<mlir::Value, mlir::Value, mlir::Value>,
                            mlir::Value>;

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

  /// The elements of a tile that a thread has, also in another layout.
  llvm::SmallVector<mlir::Value> elementsOf(mlir::Value tile) {
    return elementsOf(tile, RegisterLayout(tile));
  }
  llvm::SmallVector<mlir::Value> elementsOf(mlir::Value tile,
                                            const RegisterLayout &layout);

  /// Lets elements be read of operands that broadcast to a larger tile where
  /// other threads hold them: these operands go through scratch.
  void exchange(mlir::ValueRange operands, const RegisterLayout &larger);
  /// Element (r, c) of a thread of a tile.
  struct Element {
    int64_t r, c;
    mlir::Value row, col;
  };
  /// In blocked layouts one of the last row or column for padding.
  Element at(const RegisterLayout &layout, int64_t r, int64_t c);
  /// What a scalar or a tile that broadcasts has there.
  mlir::Value read(mlir::Value operand, const Element &element, Memo &memo);

  /// The element at an index of a larger shape of a tile without registers; or
  /// a scalar.
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

  mlir::ConversionPatternRewriter &rewriter;
  llvm::DenseMap<mlir::Value, mlir::ValueRange> converted;
  llvm::DenseMap<mlir::Value, ScratchTile> exchanged;
};

struct Address {
  mlir::Value offset;
  /// Whether every coordinate is inside; null if that is known.
  mlir::Value valid;
};

/// Whether every coordinate of an index is known to be inside.
bool isInside(TileBounds &bounds, mlir::Value index, const Extent &extent);
/// The address of coordinates of indices; those that are null are left out.
Address addressOf(TileReader &in, mlir::Value ref, mlir::ValueRange indices,
                  mlir::ValueRange coordinates);
Address both(ThreadBuilder &b, const Address &lhs, const Address &rhs);
/// Reads an element, or the vector of `count` that lie together; element 0 and
/// on instead of those outside, for which it gives zeros.
mlir::Value loadFrom(TileReader &in, mlir::Value ref, const Address &address,
                     int64_t count = 1);

/// Elements of a thread by their rows and columns, the last ones of the tile
/// for padding.
llvm::SmallVector<mlir::Value> makeElements(
    ThreadBuilder &b, const RegisterLayout &layout,
    llvm::function_ref<mlir::Value(mlir::Value row, mlir::Value col)> make);
/// Their registers.
llvm::SmallVector<mlir::Value> pack(ThreadBuilder &b,
                                    const RegisterLayout &layout,
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
/// The value of unused registers.
llvm::SmallVector<mlir::Value> getUnused(ThreadBuilder &b, mlir::Value tile);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPUTONVVM_TILEREADER_H
