//===- GemmWorkspace.h - scratch memory of a gemm ---------------*- C++ -*-===//
//
// The compiler reserves, and the runtime uses, fp32 copies of the operands of
// a gemm that are narrower than fp32. Both take the layout from here. On a GPU
// it is memory for the library instead.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_ARTIFACT_GEMMWORKSPACE_H
#define NSA_ARTIFACT_GEMMWORKSPACE_H

#include "nsa/Artifact/DataType.h"

namespace nsa {

/// Bytes that the library of matmuls may use on a GPU.
constexpr uint64_t gpuGemmWorkspace = 32u << 20;

/// Byte offsets of the fp32 copies inside the workspace slice of
/// a batch of out[MxN] = alpha * op(lhs) op(rhs) + beta * addend. An operand
/// that is already fp32 has none and its offset means nothing.
struct GemmWorkspace {
  uint64_t lhs = 0;
  uint64_t rhs = 0;
  uint64_t out = 0;
  /// What the slice must hold; 0 when every operand is fp32.
  uint64_t bytes = 0;
};

/// Lays the copies out one after the other, each at a multiple of 64 bytes.
/// The products of the sizes must fit into 61 bits.
constexpr GemmWorkspace gemmWorkspace(uint64_t m, uint64_t n, uint64_t k,
                                      DataType lhs, DataType rhs, DataType out,
                                      uint64_t batch = 1) {
  GemmWorkspace layout;
  auto place = [&layout](DataType type, uint64_t elements) {
    uint64_t offset = layout.bytes;
    if (type != DataType::F32)
      layout.bytes += (elements * 4 + 63) / 64 * 64;
    return offset;
  };
  layout.lhs = place(lhs, batch * m * k);
  layout.rhs = place(rhs, batch * k * n);
  layout.out = place(out, batch * m * n);
  return layout;
}

} // namespace nsa

#endif // NSA_ARTIFACT_GEMMWORKSPACE_H
