//===- Statistics.h - what gates and selections do, in fp64 -----*- C++ -*-===//

#ifndef NSA_LIB_REFERENCE_KERNELS_STATISTICS_H
#define NSA_LIB_REFERENCE_KERNELS_STATISTICS_H

#include "lib/Reference/Kernels/Tensor.h"

namespace nsa::reference {

/// The mean gate of each branch and the mean entropy of a token's gates after
/// they are divided by their sum, of gates [B,S,Hq,branches].
Tensor gateStatistics(const Tensor &gates);

/// Of indices [B,Hkv,S,n]: the mean number of selected blocks of a query, their
/// mean distance in blocks from that of the query, and the mean number of
/// different blocks that the queries of one block select. With the starts [B,S]
/// of packed sequences, blocks are counted from these.
Tensor selectionStatistics(const Tensor &indices, int64_t selectBlock,
                           const Tensor *start = nullptr);

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_KERNELS_STATISTICS_H
