//===- TensorMap.h - what a tensor map may describe -------------*- C++ -*-===//
//
// On a GPU of compute capability 9.0 TMA loads tiles of tensors to shared
// memory. A tensor map is its descriptor of a tensor: its extents and the
// elements of a box along each dimension, innermost first, and the bytes from
// one element to the next along each dimension but the innermost. The compiler
// and the reader of artefacts take the limits of TMA from here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_ARTIFACT_TENSORMAP_H
#define NSA_ARTIFACT_TENSORMAP_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace nsa {

constexpr size_t maxTensorMapRank = 5;
constexpr uint64_t maxTensorMapExtent = uint64_t(1) << 32;
constexpr uint64_t maxTensorMapBox = 256;

/// Bytes of which strides, rows of a box and the address are multiples, and of
/// which strides have fewer.
constexpr uint64_t tensorMapAlignment = 16;
constexpr uint64_t tensorMapStrideLimit = uint64_t(1) << 40;

/// Bytes of a tensor map, which is a parameter of a kernel.
constexpr size_t tensorMapBytes = 128;

/// Whether the tensor has no elements, which extents of a call can bring about.
template <typename Integers>
bool isEmptyTensorMap(const Integers &extents) {
  for (auto extent : extents)
    if (extent == 0)
      return true;
  return false;
}

/// Says which of `values` is not between 1 and `limit`; empty if all are.
template <typename Integers>
std::string findTensorMapOverrun(const Integers &values, const char *what,
                                 uint64_t limit) {
  unsigned dimension = 0;
  for (auto value : values) {
    if (value < 1 || uint64_t(value) > limit)
      return std::string(what) + " " + std::to_string(value) +
             " of dimension " + std::to_string(dimension) +
             " is not between 1 and " + std::to_string(limit);
    ++dimension;
  }
  return {};
}

/// The same of strides, each from a dimension but the innermost.
template <typename Integers>
std::string findTensorMapStride(const Integers &strides) {
  unsigned dimension = 1;
  for (auto stride : strides) {
    if (stride < 1 || uint64_t(stride) >= tensorMapStrideLimit ||
        uint64_t(stride) % tensorMapAlignment != 0)
      return "stride " + std::to_string(stride) + " of dimension " +
             std::to_string(dimension) + " is not a multiple of " +
             std::to_string(tensorMapAlignment) + " between 1 and " +
             std::to_string(tensorMapStrideLimit - 1);
    ++dimension;
  }
  return {};
}

/// Says what is wrong with the rows of a box, of `rowBytes` bytes, which are
/// permuted within `swizzle` bytes; empty if nothing is.
inline std::string findTensorMapSwizzle(uint64_t rowBytes, uint64_t swizzle) {
  if (rowBytes % tensorMapAlignment != 0)
    return "a row of the box has " + std::to_string(rowBytes) +
           " bytes, which is not a multiple of " +
           std::to_string(tensorMapAlignment);
  if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
    return "a swizzle of " + std::to_string(swizzle) +
           " bytes is none of 0, 32, 64 and 128";
  if (swizzle != 0 && rowBytes > swizzle)
    return "a row of the box has " + std::to_string(rowBytes) +
           " bytes, but the swizzle " + std::to_string(swizzle);
  return {};
}

/// Says what is wrong with a tensor map of elements of `elementBytes` bytes;
/// empty if nothing is. The integers may be signed or not.
template <typename Extents, typename Strides, typename Box>
std::string findTensorMapMistake(const Extents &extents, const Strides &strides,
                                 const Box &box, uint64_t swizzle,
                                 uint64_t elementBytes) {
  size_t rank = extents.size();
  if (rank < 1 || rank > maxTensorMapRank)
    return "a tensor map has 1 to " + std::to_string(maxTensorMapRank) +
           " dimensions, not " + std::to_string(rank);
  if (strides.size() != rank - 1)
    return "a tensor map of " + std::to_string(rank) + " dimensions has " +
           std::to_string(rank - 1) + " strides, not " +
           std::to_string(strides.size());
  if (box.size() != rank)
    return "a tensor map of " + std::to_string(rank) +
           " dimensions has a box of as many, not " +
           std::to_string(box.size());
  std::string mistake =
      findTensorMapOverrun(extents, "extent", maxTensorMapExtent);
  if (mistake.empty())
    mistake = findTensorMapStride(strides);
  if (mistake.empty())
    mistake = findTensorMapOverrun(box, "box", maxTensorMapBox);
  if (mistake.empty())
    mistake = findTensorMapSwizzle(uint64_t(box[0]) * elementBytes, swizzle);
  return mistake;
}

/// Bytes from the first element to the last, both included, of a tensor map
/// without mistake; the largest number if there are more.
template <typename Extents, typename Strides>
uint64_t tensorMapSpan(const Extents &extents, const Strides &strides,
                       uint64_t elementBytes) {
  uint64_t bytes = uint64_t(extents[0]) * elementBytes;
  for (unsigned i = 1; i < extents.size(); ++i) {
    uint64_t distance;
    if (__builtin_mul_overflow(uint64_t(extents[i]) - 1,
                               uint64_t(strides[i - 1]), &distance) ||
        __builtin_add_overflow(bytes, distance, &bytes))
      return UINT64_MAX;
  }
  return bytes;
}

} // namespace nsa

#endif // NSA_ARTIFACT_TENSORMAP_H
