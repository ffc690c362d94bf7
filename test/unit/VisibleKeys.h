//===- VisibleKeys.h - which keys a query attends to ------------*- C++ -*-===//
//
// Written from arXiv 2502.11089 alone, for the reference to attend to: nothing
// here comes from the attributes that kernels are made of.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_VISIBLEKEYS_H
#define NSA_TEST_UNIT_VISIBLEKEYS_H

#include "lib/Reference/Kernels/Attention.h"

#include <algorithm>

namespace nsa::reference {

/// Compressed block i ends at i*stride + block - 1, which must not lie after
/// the query.
inline VisibleKeys compressedKeys(int64_t count, int64_t block,
                                  int64_t stride) {
  return [=](int64_t, int64_t, int64_t t, std::vector<int64_t> &keys) {
    keys.clear();
    for (int64_t i = 0; i < count && i * stride + block - 1 <= t; ++i)
      keys.push_back(i);
  };
}

/// The last `window` keys, the query's own included.
inline VisibleKeys windowKeys(int64_t window) {
  return [=](int64_t, int64_t, int64_t t, std::vector<int64_t> &keys) {
    keys.clear();
    for (int64_t u = 0; u <= t; ++u)
      if (t - u < window)
        keys.push_back(u);
  };
}

/// The tokens of the selected blocks up to the query's own. `indices` must
/// outlive the result.
inline VisibleKeys selectedKeys(const Tensor &indices, int64_t selectBlock,
                                int64_t sequence) {
  return [&indices, selectBlock, sequence](int64_t b, int64_t h, int64_t t,
                                           std::vector<int64_t> &keys) {
    keys.clear();
    for (int64_t j = 0; j < indices.dim(3); ++j) {
      auto selected = static_cast<int64_t>(indices.at({b, h, t, j}));
      if (selected < 0)
        continue;
      int64_t end = std::min({(selected + 1) * selectBlock, sequence, t + 1});
      for (int64_t u = selected * selectBlock; u < end; ++u)
        keys.push_back(u);
    }
  };
}

} // namespace nsa::reference

#endif // NSA_TEST_UNIT_VISIBLEKEYS_H
