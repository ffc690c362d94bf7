//===- Packed.cpp - sequences that share a row ----------------------------===//

#include "lib/Reference/Packed.h"
#include "lib/Reference/Kernels/Attention.h"

using namespace nsa::reference;

namespace {
/// A sequence: its batch row, its first token and the number of its tokens.
struct Sequence {
  int64_t row, begin, length;
};
} // namespace

/// Sequences begin at tokens that are their own start.
static std::vector<Sequence> findSequences(const Tensor &start) {
  std::vector<Sequence> found;
  for (int64_t b = 0; b < start.dim(0); ++b)
    for (int64_t t = 0; t < start.dim(1); ++t) {
      if (t == 0 || start.at({b, t}) == static_cast<double>(t))
        found.push_back({b, t, 0});
      ++found.back().length;
    }
  return found;
}

/// The rows of a sequence along an axis: the first one and how many.
static std::pair<int64_t, int64_t>
getRows(const Sequence &sequence, PackedAxis axis, BlockLengths lengths) {
  if (axis.kind == PackedAxis::Tokens)
    return {sequence.begin, sequence.length};
  return {sequence.begin / lengths.stride,
          compressedLength(sequence.length, lengths.block, lengths.stride)};
}

/// Copies between a tensor and its part for a sequence, which has one batch
/// row.
template <typename Copy>
static void forPart(const std::vector<int64_t> &shape, size_t axis, int64_t row,
                    int64_t first, int64_t count, Copy copy) {
  int64_t outer = 1, inner = 1;
  for (size_t d = 1; d < axis; ++d)
    outer *= shape[d];
  for (size_t d = axis + 1; d < shape.size(); ++d)
    inner *= shape[d];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < count * inner; ++i)
      copy(((row * outer + o) * shape[axis] + first) * inner + i,
           o * count * inner + i);
}

std::vector<Tensor> nsa::reference::runPacked(
    const Tensor &start, BlockLengths lengths,
    llvm::ArrayRef<PackedInput> inputs, llvm::ArrayRef<PackedOutput> outputs,
    llvm::function_ref<std::vector<Tensor>(std::vector<Tensor>)> evaluate) {
  std::vector<Tensor> results;
  for (const PackedOutput &output : outputs)
    results.emplace_back(output.shape, output.otherwise);
  for (const Sequence &sequence : findSequences(start)) {
    std::vector<Tensor> parts;
    for (const PackedInput &input : inputs) {
      const Tensor *tensor = input.tensor;
      PackedAxis axis = input.axis;
      if (axis.kind == PackedAxis::Whole) {
        parts.push_back(*tensor);
        continue;
      }
      auto [first, count] = getRows(sequence, axis, lengths);
      std::vector<int64_t> shape = tensor->shape;
      shape[0] = 1;
      shape[axis.axis] = count;
      Tensor &part = parts.emplace_back(std::move(shape));
      forPart(tensor->shape, axis.axis, sequence.row, first, count,
              [&](int64_t from, int64_t to) {
                part.data[to] = tensor->data[from];
              });
    }
    std::vector<Tensor> own = evaluate(std::move(parts));
    assert(own.size() == outputs.size() && "another number of results");
    for (size_t i = 0; i < own.size(); ++i) {
      Tensor &result = results[i];
      PackedAxis axis = outputs[i].axis;
      if (axis.kind == PackedAxis::Whole) {
        for (size_t e = 0; e < result.data.size(); ++e)
          result.data[e] += own[i].data[e];
        continue;
      }
      auto [first, count] = getRows(sequence, axis, lengths);
      forPart(result.shape, axis.axis, sequence.row, first, count,
              [&](int64_t to, int64_t from) {
                result.data[to] = own[i].data[from];
              });
    }
  }
  return results;
}
