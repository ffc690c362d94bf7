//===- VectorBuilder.h - short vectors and raw memory -----------*- C++ -*-===//
//
// Builder helpers of the CPU lowering. Memory is `!llvm.ptr`, positions are
// i64 element counts, elements are scalars for one lane and 1-D vectors for
// more. bf16 and f16 are i16 everywhere; i1 is one byte in memory.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_TILETOCPU_VECTORBUILDER_H
#define NSA_PASSES_TILETOCPU_VECTORBUILDER_H

#include "dialects/Tile/TileOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace nsa::cpu {

/// The smallest multiple of `unit` that is at least `size`.
inline int64_t roundUp(int64_t size, int64_t unit) {
  return (size + unit - 1) / unit * unit;
}

/// Lanes of the vectors that run along an extent: the vector width, or for
/// shorter extents the power of two that covers them.
unsigned lanesFor(int64_t extent, unsigned width);

/// bf16 and f16.
bool isHalf(mlir::Type elementType);

/// The type of an element in a register and in memory.
mlir::Type registerType(mlir::Type elementType);
mlir::Type memoryType(mlir::Type elementType);
unsigned memoryBytes(mlir::Type elementType);

/// How a tile lies in its buffer: rows one after the other, each padded to
/// whole vectors; a column is stored densely. Padding holds arbitrary values.
struct TileLayout {
  TileLayout(tile::TileType type, unsigned width);

  int64_t rows, cols;
  /// Elements from one row to the next.
  int64_t rowStride;
  /// Elements of the whole buffer.
  int64_t size;
  mlir::Type elementType;

  int64_t bytes() const { return size * memoryBytes(elementType); }
};

class VectorBuilder : public mlir::ImplicitLocOpBuilder {
public:
  using mlir::ImplicitLocOpBuilder::ImplicitLocOpBuilder;
  using LoopBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::Value, mlir::ValueRange)>;

  mlir::Value i64(int64_t number);
  mlir::Value i32(int64_t number);
  mlir::Value f32(double number);
  /// The number as every lane of a register type.
  mlir::Value constant(mlir::Type elementType, double number, unsigned lanes);
  /// 0, 1, 2, ... times `step` as i32.
  mlir::Value iota(unsigned lanes, int64_t step = 1);
  /// True in the first `count` lanes.
  mlir::Value firstLanes(int64_t count, unsigned lanes);

  /// Integer arithmetic that folds constants.
  mlir::Value add(mlir::Value lhs, mlir::Value rhs);
  mlir::Value mul(mlir::Value lhs, mlir::Value rhs);
  mlir::Value add(mlir::Value lhs, int64_t rhs);
  mlir::Value mul(mlir::Value lhs, int64_t rhs);
  mlir::Value logicalAnd(mlir::Value lhs, mlir::Value rhs);
  mlir::Value toI64(mlir::Value value);
  mlir::Value toI32(mlir::Value value);
  /// 0 <= value < extent, of i32.
  mlir::Value inside(mlir::Value value, int64_t extent);

  mlir::Type vectorOf(mlir::Type elementType, unsigned lanes);
  mlir::Value splat(mlir::Value scalar, unsigned lanes);
  mlir::Value extract(mlir::Value vector, int64_t lane);
  mlir::Value shuffle(mlir::Value lhs, mlir::Value rhs,
                      llvm::ArrayRef<int64_t> lanes);
  /// combine(x, y) over all lanes, pairwise in a fixed order.
  mlir::Value
  horizontal(mlir::Value vector,
             llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);

  /// The address of element `index` of elements of a type.
  mlir::Value address(mlir::Value base, mlir::Value index, mlir::Type element);
  /// Elements at `index`; a null mask reads all lanes, others read as zero.
  mlir::Value load(mlir::Value base, mlir::Value index, mlir::Type element,
                   unsigned lanes, mlir::Value mask = {});
  /// The elements at `index`, `index` + 2, ... of 4 bytes, which are the first
  /// or second ones of pairs.
  mlir::Value loadOfPairs(mlir::Value base, mlir::Value index,
                          mlir::Type element, unsigned lanes, bool second);
  void store(mlir::Value value, mlir::Value base, mlir::Value index,
             mlir::Type element, mlir::Value mask = {});

  /// for (i = begin; i < end; i += step) over i64 with carried values; without
  /// a loop where the constant bounds give one iteration, nothing for none.
  llvm::SmallVector<mlir::Value> loop(mlir::Value begin, mlir::Value end,
                                      int64_t step, mlir::ValueRange inits,
                                      LoopBody body);
  void loop(int64_t end, int64_t step,
            llvm::function_ref<void(mlir::Value)> body, int64_t begin = 0);
  void ifThen(mlir::Value condition, llvm::function_ref<void()> thenBody,
              llvm::function_ref<void()> elseBody = nullptr);

  /// One elementwise arith or math operation on registers of `lanes` lanes.
  /// Conversions from and to bf16 become integer arithmetic that rounds to
  /// nearest even and keeps NaN; those from and to f16 are instructions of the
  /// processor (F16C).
  llvm::SmallVector<mlir::Value>
  elementwise(mlir::Operation *op, mlir::ValueRange operands, unsigned lanes);

private:
  mlir::Value extendBF16(mlir::Value bits, unsigned lanes);
  mlir::Value truncateToBF16(mlir::Value value, unsigned lanes);
  mlir::Value extendF16(mlir::Value bits, unsigned lanes);
  mlir::Value truncateToF16(mlir::Value value, unsigned lanes);
};

} // namespace nsa::cpu

#endif // NSA_PASSES_TILETOCPU_VECTORBUILDER_H
