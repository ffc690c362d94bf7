//===- Packed.h - sequences that share a row --------------------*- C++ -*-===//
//
// What packed sequences mean: each is evaluated on its own, and its results are
// put where they belong.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_REFERENCE_PACKED_H
#define NSA_LIB_REFERENCE_PACKED_H

#include "lib/Reference/Kernels/Tensor.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <vector>

namespace nsa::reference {

/// What lies along an axis of a tensor whose first one is the batch.
struct PackedAxis {
  enum Kind {
    /// No sequence: the tensor is whole for each of them. Results of them are
    /// added.
    Whole,
    /// Its tokens.
    Tokens,
    /// Its complete blocks, from row floor(start / stride) on.
    Blocks
  };
  Kind kind = Whole;
  size_t axis = 0;
};

/// The lengths of blocks, 1 where there are none.
struct BlockLengths {
  int64_t block = 1, stride = 1;
};

struct PackedInput {
  const Tensor *tensor;
  PackedAxis axis;
};

struct PackedOutput {
  std::vector<int64_t> shape;
  PackedAxis axis;
  /// Of what belongs to no sequence.
  double otherwise = 0.0;
};

/// Runs `evaluate` on the parts that each sequence has of the inputs, batch row
/// by batch row. `start` [B, S] is the index of the first token of each token's
/// sequence.
std::vector<Tensor> runPacked(
    const Tensor &start, BlockLengths lengths,
    llvm::ArrayRef<PackedInput> inputs, llvm::ArrayRef<PackedOutput> outputs,
    llvm::function_ref<std::vector<Tensor>(std::vector<Tensor>)> evaluate);

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_PACKED_H
