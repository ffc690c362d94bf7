//===- BufferPlan.h - where tiles live on the stack -------------*- C++ -*-===//
//
// Every tile that needs memory belongs to a class; values of one class share
// one buffer without copies (a loop's carried tile with what the loop yields,
// an accumulator with the result). Classes whose lives do not overlap share a
// slot of the stack frame.
//
// Lives are segments over the kernel's operations in program order, four points
// per operation: results that are written before the operands are read, the
// read, results that are written while operands are read, and the end.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_TILETOCPU_BUFFERPLAN_H
#define NSA_PASSES_TILETOCPU_BUFFERPLAN_H

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/TileToCPU/FusionPlan.h"

namespace nsa::cpu {

class BufferPlan {
public:
  /// `scratchBytes` says how much memory an operation needs while it runs.
  BufferPlan(tile::KernelOp kernel, const FusionPlan &fusion, unsigned width,
             llvm::function_ref<int64_t(mlir::Operation *)> scratchBytes);

  /// Sizes of the stack slots in bytes.
  llvm::ArrayRef<int64_t> getSlots() const { return slots; }
  int64_t getTotalBytes() const;

  bool hasBuffer(mlir::Value value) const { return classOf.count(value); }
  unsigned getSlot(mlir::Value value) const {
    return classes[classOf.lookup(value)].slot;
  }
  unsigned getScratchSlot(mlir::Operation *op) const {
    return classes[scratchOf.lookup(op)].slot;
  }
  /// Whether two values are one buffer by agreement, so that nothing is copied.
  bool shareBuffer(mlir::Value a, mlir::Value b) const {
    auto first = classOf.find(a), second = classOf.find(b);
    return first != classOf.end() && second != classOf.end() &&
           first->second == second->second;
  }

private:
  struct Segment {
    int64_t begin, end;
  };
  struct Class {
    llvm::SmallVector<Segment> segments;
    int64_t bytes = 0;
    unsigned slot = 0;
  };
  /// A wish that an operand and a value that follows from it share a buffer.
  struct Tie {
    mlir::OpOperand *operand;
    mlir::Value target;
  };

  void number(mlir::Block &block);
  void addValue(mlir::Value value);
  void addCarried(mlir::scf::ForOp loop);
  void addBranchResults(mlir::scf::IfOp branch);
  void collectTies(mlir::Operation *op);
  int64_t writePoint(mlir::Value value) const;
  int64_t readPoint(mlir::OpOperand &use) const;
  int64_t endOfUse(mlir::Value value, mlir::OpOperand &use) const;
  bool mayWriteInPlace(mlir::OpOperand &use) const;
  bool isTied(mlir::OpOperand &use) const;
  bool tryMerge(mlir::Value a, mlir::Value b);
  void assignSlots();
  static bool overlap(const Class &a, const Class &b);

  const FusionPlan &fusion;
  unsigned width;
  int64_t counter = 0;
  llvm::DenseMap<mlir::Operation *, int64_t> starts, ends;
  llvm::DenseMap<mlir::Value, unsigned> classOf;
  llvm::DenseMap<mlir::Operation *, unsigned> scratchOf;
  llvm::SmallVector<Class> classes;
  llvm::SmallVector<Tie> ties;
  llvm::SmallVector<int64_t> slots;
};

} // namespace nsa::cpu

#endif // NSA_PASSES_TILETOCPU_BUFFERPLAN_H
