//===- InPlace.h - which kernels may overwrite their inputs -----*- C++ -*-===//

#ifndef NSA_PASSES_HOST_INPLACE_H
#define NSA_PASSES_HOST_INPLACE_H

#include "dialects/Tile/TileOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseMap.h"

namespace nsa {

/// The inputs of a kernel, and its outputs, that it says are the same memory.
llvm::SmallVector<std::pair<unsigned, unsigned>>
getInPlacePairs(tile::KernelOp kernel);

/// Answers, from the bodies of kernels, whether an output may be the same
/// memory as an input of the same type. It may if all stores to the output are
/// in one block, and every load of the input stands before them in it with the
/// coordinates of one of them: then each element is read just before it is
/// written, and by no other program, as the coordinates written differ.
/// A program may load what it has stored.
class InPlaceAnalysis {
public:
  /// Whether output `output` of `kernel` may be the memory of input `input`.
  bool mayShare(tile::KernelOp kernel, unsigned input, unsigned output);

private:
  llvm::DenseMap<std::tuple<mlir::Operation *, unsigned, unsigned>, bool> known;
};

} // namespace nsa

#endif // NSA_PASSES_HOST_INPLACE_H
