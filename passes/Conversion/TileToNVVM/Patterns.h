//===- Patterns.h - conversions of tile operations --------------*- C++ -*-===//
//
// Tiles become the registers of a thread, one value for each: an operation on
// tiles is converted to code of one thread of the block.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_PATTERNS_H
#define NSA_PASSES_CONVERSION_TILETONVVM_PATTERNS_H

#include "passes/Conversion/TileToNVVM/TileReader.h"

namespace nsa::cuda {

/// The registers of each result.
using Results = llvm::SmallVector<llvm::SmallVector<mlir::Value>>;

/// Converts an operation by a function; elements of rematerialized tiles are
/// computed where they are used.
template <typename OpTy, Results (*lower)(OpTy, TileReader &)>
struct TilePattern : mlir::OpConversionPattern<OpTy> {
  TilePattern(const mlir::TypeConverter &types, mlir::MLIRContext *context,
              TileBounds &bounds)
      : mlir::OpConversionPattern<OpTy>(types, context), bounds(bounds) {}

  mlir::LogicalResult matchAndRewrite(
      OpTy op,
      typename mlir::OpConversionPattern<OpTy>::OneToNOpAdaptor adaptor,
      mlir::ConversionPatternRewriter &rewriter) const override {
    ThreadBuilder b(op.getLoc(), rewriter);
    TileReader in(b, op, adaptor.getOperands(), rewriter, bounds);
    if (op->getNumResults() > 0 && isRematerialized(op->getResultTypes()[0]))
      rewriter.replaceOpWithMultiple(op, Results(op->getNumResults()));
    else
      rewriter.replaceOpWithMultiple(op, lower(op, in));
    return mlir::success();
  }

  TileBounds &bounds;
};

// A family of operations each.
void populateMemoryPatterns(mlir::RewritePatternSet &patterns,
                            const mlir::TypeConverter &types,
                            TileBounds &bounds);
void populateCopyPatterns(mlir::RewritePatternSet &patterns,
                          const mlir::TypeConverter &types, TileBounds &bounds);
void populateLayoutPatterns(mlir::RewritePatternSet &patterns,
                            const mlir::TypeConverter &types,
                            TileBounds &bounds);
void populateElementwisePatterns(mlir::RewritePatternSet &patterns,
                                 const mlir::TypeConverter &types,
                                 TileBounds &bounds);
void populateReductionPatterns(mlir::RewritePatternSet &patterns,
                               const mlir::TypeConverter &types,
                               TileBounds &bounds);
void populateDotPatterns(mlir::RewritePatternSet &patterns,
                         const mlir::TypeConverter &types, TileBounds &bounds);
void populateTopNPatterns(mlir::RewritePatternSet &patterns,
                          const mlir::TypeConverter &types, TileBounds &bounds);
/// Of a function in which only control flow, roles of warpgroups and the frame
/// are left.
void populateRolePatterns(mlir::RewritePatternSet &patterns, int64_t threads);

// Dots and tiles in the MMA layout, which are conversions of their own.
/// Operand A for M-tile `s` and columns `16 * k` and on.
llvm::SmallVector<mlir::Value> operandA(TileReader &in, tile::DotOp op,
                                        int64_t s, int64_t k);
Results lowerWarpgroupDot(tile::DotOp op, TileReader &in);
Results lowerMmaLoad(tile::LoadOp op, TileReader &in);
Results lowerMmaStore(tile::StoreOp op, TileReader &in);
Results lowerMmaMap(tile::MapOp op, TileReader &in);
Results lowerMmaReduce(tile::ReduceOp op, TileReader &in);

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_PATTERNS_H
