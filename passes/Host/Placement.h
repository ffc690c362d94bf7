//===- Placement.h - values that share memory -------------------*- C++ -*-===//
//
// Decides, before any command is emitted, which values of a straight-line
// function are no tensors of their own: parts of an `nn.split` lie in what is
// split, operands of an `nn.concat` are computed where they belong, and a
// kernel may write its result over a part without later readers.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_HOST_PLACEMENT_H
#define NSA_PASSES_HOST_PLACEMENT_H

#include "dialects/NN/NNOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/Host/InPlace.h"
#include "passes/Host/KernelLayouts.h"

namespace nsa {

/// Bytes; where kernels and libraries expect dense memory to begin.
inline constexpr uint64_t kMemoryAlignment = 64;

/// Which elements of `root`, a value with memory of its own, a value is.
struct Place {
  mlir::Value root;
  int64_t offset;
  RowLayout layout;

  bool isDense() const { return layout.width == layout.pitch; }
  /// All elements of the root, in order.
  bool isWhole() const;
  /// Whether some element is in both; true where that is hard to tell.
  bool overlaps(const Place &other) const;

  bool operator==(const Place &other) const {
    return root == other.root && offset == other.offset &&
           layout == other.layout;
  }
};

class Placement {
public:
  Placement(mlir::func::FuncOp function, mlir::SymbolTable &symbols,
            KernelLayouts &layouts, InPlaceAnalysis &inPlace);

  /// Where the elements of `value` are, for those who read it.
  Place get(mlir::Value value) const;
  mlir::Value getRoot(mlir::Value value) const { return get(value).root; }

  /// A part that has a dense copy besides, because it is split again in a way
  /// that no layout describes. `getSource` says what is to be copied.
  bool isCopied(mlir::Value value) const { return copied.contains(value); }
  Place getSource(mlir::Value value) const;

  /// Where operand `index` belongs.
  Place getTarget(nn::ConcatOp concat, unsigned index) const;

private:
  std::optional<Place> getPart(nn::SplitOp split, unsigned index) const;
  void copyOddParts();
  void placeParts(nn::ConcatOp concat);
  bool mayLieIn(mlir::OpResult value, const Place &place,
                mlir::OpOperand &use) const;
  void updateParts(tile::LaunchOp launch);
  bool mayUpdate(tile::LaunchOp launch, unsigned input, unsigned output) const;
  bool keepsLongEnough(tile::LaunchOp launch, mlir::Value result,
                       const Place &place) const;
  void collectMembers();
  void addMember(mlir::Value value);
  bool fitsReaders(mlir::Value value, const Place &place) const;
  tile::KernelOp getKernel(tile::LaunchOp launch) const {
    return symbols.lookup<tile::KernelOp>(launch.getKernel());
  }

  mlir::func::FuncOp function;
  mlir::SymbolTable &symbols;
  KernelLayouts &layouts;
  InPlaceAnalysis &inPlace;
  /// Results of operations that lie in memory of others.
  llvm::DenseMap<mlir::Value, Place> placed;
  llvm::DenseSet<mlir::Value> copied;
  llvm::DenseMap<mlir::Operation *, unsigned> numbers;
  /// All values by root.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> members;
};

} // namespace nsa

#endif // NSA_PASSES_HOST_PLACEMENT_H
