//===- ThreadBuilder.h - code of one thread of a block ----------*- C++ -*-===//
//
// Builder helpers of the CUDA lowering: i32 arithmetic that folds constants,
// shared memory and shuffles.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_THREADBUILDER_H
#define NSA_PASSES_CONVERSION_TILETONVVM_THREADBUILDER_H

#include "dialects/Interfaces/Extents.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace nsa::cuda {

/// Address spaces of `!llvm.ptr`.
enum class Space : unsigned { Global = 1, Shared = 3, SharedCluster = 7 };

/// Bytes of an element in memory; i1 takes one.
unsigned elementBytes(mlir::Type elementType);

class ThreadBuilder : public mlir::ImplicitLocOpBuilder {
public:
  using mlir::ImplicitLocOpBuilder::ImplicitLocOpBuilder;

  mlir::Value i32(int64_t number);
  mlir::Value i64(int64_t number);
  mlir::Value constant(mlir::Type type, double number);

  /// Of coordinates and addresses, which do not overflow: distances that are
  /// constants become parts of instructions then.
  mlir::Value add(mlir::Value lhs, mlir::Value rhs);
  mlir::Value add(mlir::Value lhs, int64_t rhs);
  mlir::Value mul(mlir::Value lhs, int64_t rhs);
  /// Of numbers that are not negative.
  mlir::Value div(mlir::Value lhs, int64_t rhs);
  mlir::Value rem(mlir::Value lhs, int64_t rhs);
  /// lhs < rhs, signed.
  mlir::Value less(mlir::Value lhs, int64_t rhs);
  /// 0 <= value < extent.
  mlir::Value inside(mlir::Value value, int64_t extent);
  /// A size as a value of an integer type. One that is no constant is computed
  /// where the function begins, from its last parameters.
  mlir::Value size(const Extent &extent, mlir::Type type);
  mlir::Value mul(mlir::Value lhs, const Extent &rhs);
  mlir::Value inside(mlir::Value value, const Extent &extent);
  /// Either may be null, which is true.
  mlir::Value both(mlir::Value lhs, mlir::Value rhs);
  mlir::Value select(mlir::Value condition, mlir::Value yes, mlir::Value no);

  /// The address of element `index` (i32 or i64) behind `base`.
  mlir::Value address(mlir::Value base, mlir::Value index, mlir::Type element);
  /// Elements of registers; i1 is a byte in memory.
  mlir::Value load(mlir::Value base, mlir::Value index, mlir::Type element);
  void store(mlir::Value value, mlir::Value base, mlir::Value index);

  /// The address `bytes` (i32 or a number) behind `base`.
  mlir::Value advance(mlir::Value base, mlir::Value bytes);
  mlir::Value advance(mlir::Value base, int64_t bytes);
  /// `count` elements of at least 16 bits that lie together, aligned as a
  /// whole.
  mlir::Value loadVector(mlir::Value base, mlir::Value index,
                         mlir::Type element, int64_t count);
  void storeVector(mlir::Value vector, mlir::Value base, mlir::Value index);

  mlir::Value vectorOfTwo(mlir::Value low, mlir::Value high);
  /// A vector of two `element`s, to which f32 numbers are rounded.
  mlir::Value pair(mlir::Value low, mlir::Value high, mlir::Type element);
  /// Element `i` of a vector.
  mlir::Value half(mlir::Value vector, int64_t i);
  mlir::Value bitcast(mlir::Value value, mlir::Type type);

  mlir::Value threadId();
  mlir::Value blockId(unsigned axis);
  /// The value of lane `lane ^ mask` of the warp, an f32 or i32.
  mlir::Value shuffle(mlir::Value value, unsigned mask);
  /// The value of lane `lane`, an i32, of the warp.
  mlir::Value shuffleFrom(mlir::Value value, mlir::Value lane);

  /// The value of the warp's first lane, an i32: the assembler sees of it that
  /// all lanes have the same.
  mlir::Value broadcast(mlir::Value value);

  void ifThen(mlir::Value condition, llvm::function_ref<void()> body);
  /// Values of `types`, from one of two branches.
  llvm::SmallVector<mlir::Value>
  ifElse(mlir::Value condition, mlir::TypeRange types,
         llvm::function_ref<llvm::SmallVector<mlir::Value>()> yes,
         llvm::function_ref<llvm::SmallVector<mlir::Value>()> no);
  /// for (i = begin; i < end; i += step) over i32 with carried values.
  llvm::SmallVector<mlir::Value>
  loop(mlir::Value begin, mlir::Value end, mlir::Value step,
       mlir::ValueRange inits,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value,
                                                         mlir::ValueRange)>
           body);
};

} // namespace nsa::cuda

#endif // NSA_PASSES_CONVERSION_TILETONVVM_THREADBUILDER_H
