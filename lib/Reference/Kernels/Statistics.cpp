//===- Statistics.cpp - what gates and selections do, in fp64 -------------===//

#include "lib/Reference/Kernels/Statistics.h"

#include <cmath>
#include <numeric>
#include <set>

using namespace nsa::reference;

Tensor nsa::reference::gateStatistics(const Tensor &gates) {
  int64_t branches = gates.dim(3);
  Tensor y({branches + 1});
  auto rows = static_cast<double>(gates.rows());
  for (int64_t r = 0; r < gates.rows(); ++r) {
    const double *g = gates.data.data() + r * branches;
    double total = std::accumulate(g, g + branches, 0.0);
    for (int64_t branch = 0; branch < branches; ++branch) {
      y.data[branch] += g[branch] / rows;
      if (g[branch] > 0.0)
        y.data[branches] -=
            g[branch] / total * std::log(g[branch] / total) / rows;
    }
  }
  return y;
}

Tensor nsa::reference::selectionStatistics(const Tensor &indices,
                                           int64_t selectBlock,
                                           const Tensor *start) {
  int64_t sequence = indices.dim(2), count = indices.dim(3);
  double chosen = 0.0, distance = 0.0, distinct = 0.0, groups = 0.0;
  for (int64_t b = 0; b < indices.dim(0); ++b)
    for (int64_t h = 0; h < indices.dim(1); ++h) {
      std::set<double> blocks;
      for (int64_t t = 0; t < sequence; ++t) {
        for (int64_t i = 0; i < count; ++i) {
          double j = indices.at({b, h, t, i});
          if (j < 0.0)
            continue;
          auto begin =
              start ? static_cast<int64_t>(start->at({b, t})) : int64_t(0);
          chosen += 1.0;
          distance += static_cast<double>((t - begin) / selectBlock) - j;
          blocks.insert(j + static_cast<double>(begin / selectBlock));
        }
        if (t + 1 < sequence && (t + 1) % selectBlock != 0)
          continue;
        distinct += static_cast<double>(blocks.size());
        groups += 1.0;
        blocks.clear();
      }
    }
  Tensor y({3});
  y.data = {chosen / static_cast<double>(indices.rows()),
            chosen > 0.0 ? distance / chosen : 0.0, distinct / groups};
  return y;
}
