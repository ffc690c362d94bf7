//===- Patterns.h - conversions of tile operations --------------*- C++ -*-===//
//
// Tiles become the registers of a thread, one value for each: an operation on
// tiles is converted to code of one thread of the block.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_TILEGPUTONVVM_PATTERNS_H
#define NSA_PASSES_TILEGPUTONVVM_PATTERNS_H

#include "passes/TileGPUToNVVM/TileReader.h"

namespace nsa::cuda {

/// The registers of each result.
using Results = llvm::SmallVector<llvm::SmallVector<mlir::Value>>;

/// Converts an operation by a function; elements of rematerialized tiles are
/// computed where they are used.
template <typename OpTy>
struct TilePattern : mlir::OpConversionPattern<OpTy> {
  using Lower = Results (*)(OpTy, TileReader &);

  TilePattern(const mlir::TypeConverter &types, mlir::MLIRContext *context,
              TileBounds &bounds, Lower lower)
      : mlir::OpConversionPattern<OpTy>(types, context), bounds(bounds),
        lower(lower) {}

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
  Lower lower;
};

/// The patterns of a kernel's tiles.
struct TilePatterns {
  template <typename... OpTs>
  void add(Results (*...lower)(OpTs, TileReader &)) {
    (set.add<TilePattern<OpTs>>(types, set.getContext(), bounds, lower), ...);
  }

  mlir::RewritePatternSet &set;
  const mlir::TypeConverter &types;
  TileBounds &bounds;
};

// A family of operations each.
void populateMemoryPatterns(TilePatterns &patterns);
void populateCopyPatterns(TilePatterns &patterns);
void populateLayoutPatterns(TilePatterns &patterns);
void populateElementwisePatterns(TilePatterns &patterns);
void populateReductionPatterns(TilePatterns &patterns);
void populateDotPatterns(TilePatterns &patterns);
void populateTopNPatterns(TilePatterns &patterns);

/// Converts an operation on threads by a function: to the value that it returns
/// for the result, or to nothing.
template <typename OpTy, typename ResultT>
struct ThreadPattern : mlir::OpConversionPattern<OpTy> {
  using Lower = ResultT (*)(OpTy, typename OpTy::Adaptor, ThreadBuilder &);

  ThreadPattern(mlir::MLIRContext *context, Lower lower)
      : mlir::OpConversionPattern<OpTy>(context), lower(lower) {}

  mlir::LogicalResult
  matchAndRewrite(OpTy op, typename OpTy::Adaptor adaptor,
                  mlir::ConversionPatternRewriter &rewriter) const override {
    ThreadBuilder b(op.getLoc(), rewriter);
    if constexpr (std::is_void_v<ResultT>) {
      lower(op, adaptor, b);
      rewriter.eraseOp(op);
    } else {
      rewriter.replaceOp(op, lower(op, adaptor, b));
    }
    return mlir::success();
  }

  Lower lower;
};
template <typename... OpTs, typename... ResultTs>
void addThreadPatterns(mlir::RewritePatternSet &patterns,
                       ResultTs (*...lower)(OpTs, typename OpTs::Adaptor,
                                            ThreadBuilder &)) {
  (patterns.add<ThreadPattern<OpTs, ResultTs>>(patterns.getContext(), lower),
   ...);
}

/// Of a function in which only control flow, roles of warpgroups and the frame
/// are left.
void populateRolePatterns(mlir::RewritePatternSet &patterns);

/// The registers of tiles, which lie one tile after another in `all`.
Results splitRegisters(mlir::ValueRange tiles, mlir::ValueRange all);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPUTONVVM_PATTERNS_H
