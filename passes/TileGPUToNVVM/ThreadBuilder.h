//===- ThreadBuilder.h - code of one thread of a block ----------*- C++ -*-===//
//
// Builder helpers of the CUDA lowering: i32 arithmetic that folds constants,
// shared memory and shuffles.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_TILEGPUTONVVM_THREADBUILDER_H
#define NSA_PASSES_TILEGPUTONVVM_THREADBUILDER_H

#include "dialects/Interfaces/Extents.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/TileGPU/RegisterLayout.h"

namespace nsa::cuda {

/// The global that is a block's shared memory.
inline constexpr llvm::StringLiteral kSharedMemory = "nsa_shared_memory";

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
  mlir::Value equal(mlir::Value lhs, int64_t rhs);
  mlir::Value differs(mlir::Value lhs, int64_t rhs);
  /// min(value, count - 1).
  mlir::Value clamp(mlir::Value value, int64_t count);
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

  /// The address of element `index` (i32 or i64) from `base` on.
  mlir::Value address(mlir::Value base, mlir::Value index, mlir::Type element);
  /// An element of registers, of which i1 is a byte in memory, or a vector of
  /// elements that lie together, aligned as a whole. The index is of elements.
  mlir::Value load(mlir::Value base, mlir::Value index, mlir::Type type);
  void store(mlir::Value value, mlir::Value base, mlir::Value index);

  /// The address `bytes` (i32 or a number) past `base`.
  mlir::Value advance(mlir::Value base, mlir::Value bytes);
  mlir::Value advance(mlir::Value base, int64_t bytes);

  mlir::Value vectorOf(mlir::ValueRange elements);
  /// A vector of two `element`s, to which f32 numbers are rounded.
  mlir::Value pair(mlir::Value low, mlir::Value high, mlir::Type element);
  /// Element `i` of a vector.
  mlir::Value half(mlir::Value vector, int64_t i);
  mlir::Value bitcast(mlir::Value value, mlir::Type type);

  /// Threads of the block, without those that only copy.
  int64_t getThreads();
  mlir::Value blockId(unsigned axis);

  // What is computed once, where the kernel begins.
  mlir::Value threadId();
  struct Place {
    mlir::Value lane, warp;
    /// lane / 4 and 2 * (lane % 4).
    mlir::Value quad, pair;
  };
  Place place();
  /// The number of the warp in its warpgroup, the same value for its lanes.
  mlir::Value warpOfGroup();
  /// The block's shared memory, and the scratch in it.
  mlir::Value sharedBase();
  mlir::Value scratchBase();
  /// Calls `make` the first time for a name and up to three numbers; what it
  /// creates is marked with tile_gpu.prologue, for `movePrologue`.
  mlir::Value once(llvm::StringLiteral name,
                   llvm::function_ref<mlir::Value()> make, int64_t x = 0,
                   int64_t y = 0, int64_t z = 0);

  // Rows and columns of a thread's elements.
  mlir::Value rowOf(const RegisterLayout &layout, int64_t r);
  mlir::Value colOf(const RegisterLayout &layout, int64_t c);
  /// Both, but the last ones of the tile for padding.
  std::pair<mlir::Value, mlir::Value> inside(const RegisterLayout &layout,
                                             int64_t r, int64_t c);
  /// Whether row `r` (column `c`) of a thread is one of the tile, or both are;
  /// null if so in all threads.
  mlir::Value hasRow(const RegisterLayout &layout, int64_t r);
  mlir::Value hasCol(const RegisterLayout &layout, int64_t c);
  mlir::Value hasElement(const RegisterLayout &layout, int64_t r, int64_t c) {
    mlir::Value row = hasRow(layout, r), col = hasCol(layout, c);
    return both(row, col);
  }
  /// Of the threads that repeat an element, one; null if none do.
  mlir::Value isFirst(const RegisterLayout &layout);
  /// The same of an element that is one of the tile.
  mlir::Value isOwner(const RegisterLayout &layout, int64_t r, int64_t c) {
    mlir::Value exists = hasElement(layout, r, c);
    return both(exists, isFirst(layout));
  }

  /// The value of lane `lane ^ mask` of the warp, an f32 or i32.
  mlir::Value shuffle(mlir::Value value, unsigned mask);
  /// The value of lane `lane`, an i32, of the warp.
  mlir::Value shuffleFrom(mlir::Value value, mlir::Value lane);

  /// What the lanes of the warp say together: a bit for each, an i32, or
  /// whether some or all hold.
  mlir::Value vote(mlir::Value condition, mlir::NVVM::VoteSyncKind kind);

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

private:
  tile::KernelOp getKernel();
  /// What a thread adds to its columns.
  mlir::Value firstCol(const RegisterLayout &layout);

  llvm::DenseMap<std::tuple<llvm::StringRef, int64_t, int64_t, int64_t>,
                 mlir::Value>
      prologue;
};

/// An instruction as text. In it, $0 and on are the results, which start as
/// `tied` if there are any, and then the inputs. With `ordersMemory` no access
/// to memory moves across.
struct Assembly {
  std::string text;
  llvm::SmallVector<mlir::Type> results;
  llvm::SmallVector<mlir::Value> inputs, tied;
  bool ordersMemory = false;

  llvm::SmallVector<mlir::Value> create(mlir::ImplicitLocOpBuilder &b) const;
};

/// Passes values through an instruction that orders accesses to registers:
/// what computes them stays before it, what uses them after it. What they are
/// then.
llvm::SmallVector<mlir::Value> passThrough(mlir::ImplicitLocOpBuilder &b,
                                           llvm::StringRef instruction,
                                           mlir::ValueRange values);

/// Moves what a kernel computes once after the first of these operations.
void movePrologue(mlir::LLVM::LLVMFuncOp function);

} // namespace nsa::cuda

#endif // NSA_PASSES_TILEGPUTONVVM_THREADBUILDER_H
