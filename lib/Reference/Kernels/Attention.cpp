//===- Attention.cpp - Native Sparse Attention in fp64 --------------------===//

#include "lib/Reference/Kernels/Attention.h"
#include "lib/Reference/Kernels/Parallel.h"
#include "lib/Reference/Kernels/Rounding.h"
#include "lib/Reference/Kernels/SummationOrder.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

using namespace nsa::reference;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Sums and products in `Real`; the tensors hold doubles.
template <typename Real>
static Real dot(const double *a, const double *b, int64_t n,
                SummationOrder &order) {
  auto [i, step] = order.next(n);
  Real total = 0;
  for (int64_t term = 0; term < n; ++term) {
    total += static_cast<Real>(a[i]) * static_cast<Real>(b[i]);
    i += step;
    i -= i >= n ? n : 0;
  }
  return total;
}

template <typename Real>
static Real dot(const double *a, const double *b, int64_t n) {
  SummationOrder plain(0);
  return dot<Real>(a, b, n, plain);
}

template <typename Real>
static void addScaled(double *out, Real factor, const double *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<Real>(out[i]) + factor * static_cast<Real>(x[i]);
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {
/// Exponents of the softmax: natural, or of 2, as kernels for 16 bits compute
/// them. Large scores are rounded otherwise by the one than by the other.
template <typename Real>
class Exponent {
public:
  Exponent(Real scale, bool isOfTwo)
      : factor(isOfTwo ? scale * kLog2E : scale), isOfTwo(isOfTwo) {}

  Real of(Real product) const { return factor * product; }
  Real fromLse(Real lse) const { return isOfTwo ? lse * kLog2E : lse; }
  Real power(Real exponent) const {
    return isOfTwo ? std::exp2(exponent) : std::exp(exponent);
  }
  /// The natural logarithm of `sum` and the power of `exponent`.
  Real toLse(Real exponent, Real sum) const {
    return (isOfTwo ? exponent * kLn2 : exponent) + std::log(sum);
  }

private:
  static constexpr Real kLog2E = 1.44269504088896340736;
  static constexpr Real kLn2 = 0.69314718055994530942;

  Real factor;
  bool isOfTwo;
};
} // namespace

/// Whether `order` takes exponents of 2: two of four, in 16 bits.
static bool takesPowersOfTwo(Arithmetic arithmetic, unsigned order) {
  return arithmetic != Arithmetic::F32 && order % 4 >= 2;
}

/// Queries or keys that one thread takes at a time.
static constexpr int64_t kPart = 16;

template <typename Real>
static AttentionResult attend(const Tensor &q, const Tensor &k, const Tensor &v,
                              const Exponent<Real> &exponent,
                              const VisibleKeys &visible, Round round,
                              unsigned order) {
  int64_t batch = q.dim(0), sequence = q.dim(1), heads = q.dim(2);
  int64_t dk = q.dim(3), dv = v.dim(3), group = heads / k.dim(2);
  AttentionResult result{Tensor({batch, sequence, heads, dv}),
                         Tensor({batch, heads, sequence}, -kInfinity)};
  auto attendRow = [&](int64_t row, std::vector<int64_t> &keys,
                       std::vector<Real> &scores) {
    int64_t t = row % sequence, h = row / sequence % heads;
    int64_t b = row / sequence / heads;
    visible(b, h / group, t, keys);
    if (keys.empty())
      return;
    SummationOrder terms(order, row);
    scores.clear();
    for (int64_t u : keys)
      scores.push_back(exponent.of(
          dot<Real>(q.row({b, t, h}), k.row({b, u, h / group}), dk, terms)));
    Real top = *std::max_element(scores.begin(), scores.end());
    Real sum = 0;
    for (Real score : scores)
      sum += exponent.power(score - top);
    Real lse = exponent.toLse(top, sum);
    result.lse.at({b, h, t}) = lse;
    double *out = result.output.row({b, t, h});
    // P is rounded before or after it is divided by its sum.
    Real shift = order % 2 ? top : exponent.fromLse(lse);
    for (size_t i = 0; i < keys.size(); ++i)
      addScaled<Real>(
          out, static_cast<Real>(round(exponent.power(scores[i] - shift))),
          v.row({b, keys[i], h / group}), dv);
    for (int64_t c = 0; order % 2 && c < dv; ++c)
      out[c] = static_cast<Real>(out[c]) / sum;
    std::transform(out, out + dv, out, round);
  };
  int64_t rows = batch * heads * sequence;
  forEachPart(rows, kPart, double(rows) * double(k.dim(1) * (dk + dv)),
              [&](int64_t begin, int64_t end) {
                std::vector<int64_t> keys;
                std::vector<Real> scores;
                for (int64_t row = begin; row < end; ++row)
                  attendRow(row, keys, scores);
              });
  return result;
}

AttentionResult nsa::reference::attention(const Tensor &q, const Tensor &k,
                                          const Tensor &v, double scale,
                                          const VisibleKeys &visible,
                                          Arithmetic arithmetic,
                                          unsigned order) {
  if (arithmetic == Arithmetic::F64)
    return attend<double>(q, k, v, {scale, false}, visible, keep, order);
  Exponent<float> exponent(static_cast<float>(scale),
                           takesPowersOfTwo(arithmetic, order));
  return attend<float>(q, k, v, exponent, visible, getRounding(arithmetic),
                       order);
}

namespace {
/// What the keys of one query get.
template <typename Real>
struct Share {
  std::vector<int64_t> keys;
  /// The gradients of the scores, and what the gradient of the output is
  /// multiplied by.
  std::vector<Real> ds, p;
};
} // namespace

template <typename Real>
static AttentionGradients
attendBackward(const Tensor &outputGrad, const Tensor &q, const Tensor &k,
               const Tensor &v, const Tensor &output, const Tensor &lse,
               Real scale, const Exponent<Real> &exponent,
               const VisibleKeys &visible, Round round, unsigned order,
               const Tensor &gate) {
  int64_t batch = q.dim(0), sequence = q.dim(1), heads = q.dim(2);
  int64_t dk = q.dim(3), dv = v.dim(3), group = heads / k.dim(2);
  AttentionGradients grads{Tensor(q.shape), Tensor(k.shape), Tensor(v.shape)};
  auto gradeRow = [&](int64_t b, int64_t h, int64_t t, Share<Real> &share) {
    visible(b, h / group, t, share.keys);
    share.ds.clear();
    share.p.clear();
    SummationOrder terms(order, (b * heads + h) * sequence + t);
    const double *dout = outputGrad.row({b, t, h});
    Real factor = gate.data.empty() ? 1 : gate.at({b, t, h});
    Real delta = factor * dot<Real>(dout, output.row({b, t, h}), dv);
    Real shift = exponent.fromLse(static_cast<Real>(lse.at({b, h, t})));
    for (int64_t u : share.keys) {
      const double *key = k.row({b, u, h / group});
      const double *value = v.row({b, u, h / group});
      Real score = exponent.of(dot<Real>(q.row({b, t, h}), key, dk, terms));
      Real p = exponent.power(score - shift);
      Real dp = factor * dot<Real>(dout, value, dv, terms);
      Real ds = p * (dp - delta);
      ds = order % 2 ? static_cast<Real>(round(ds)) * scale
                     : static_cast<Real>(round(ds * scale));
      addScaled<Real>(grads.q.row({b, t, h}), ds, key, dk);
      share.ds.push_back(ds);
      share.p.push_back(static_cast<Real>(round(factor * p)));
    }
  };
  // In the order of the queries, whichever thread adds them.
  auto addShares = [&](int64_t b, int64_t h,
                       const std::vector<Share<Real>> &shares, int64_t begin,
                       int64_t end) {
    for (int64_t t = 0; t < sequence; ++t)
      for (size_t i = 0; i < shares[t].keys.size(); ++i) {
        int64_t u = shares[t].keys[i];
        if (u < begin || u >= end)
          continue;
        addScaled<Real>(grads.k.row({b, u, h / group}), shares[t].ds[i],
                        q.row({b, t, h}), dk);
        addScaled<Real>(grads.v.row({b, u, h / group}), shares[t].p[i],
                        outputGrad.row({b, t, h}), dv);
      }
  };
  double work = double(sequence) * double(k.dim(1) * (dk + dv));
  // Every part reads all shares: no more parts than processors.
  int64_t keyPart =
      std::max(kPart, (k.dim(1) + processors() - 1) / processors());
  std::vector<Share<Real>> shares(sequence);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      forEachPart(sequence, kPart, work, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t)
          gradeRow(b, h, t, shares[t]);
      });
      forEachPart(k.dim(1), keyPart, work, [&](int64_t begin, int64_t end) {
        addShares(b, h, shares, begin, end);
      });
    }
  for (Tensor *grad : {&grads.q, &grads.k, &grads.v})
    std::transform(grad->data.begin(), grad->data.end(), grad->data.begin(),
                   round);
  return grads;
}

AttentionGradients nsa::reference::attentionBackward(
    const Tensor &outputGrad, const Tensor &q, const Tensor &k, const Tensor &v,
    const Tensor &output, const Tensor &lse, double scale,
    const VisibleKeys &visible, Arithmetic arithmetic, unsigned order,
    const Tensor &gate) {
  if (arithmetic == Arithmetic::F64)
    return attendBackward<double>(outputGrad, q, k, v, output, lse, scale,
                                  {scale, false}, visible, keep, order, gate);
  auto factor = static_cast<float>(scale);
  Exponent<float> exponent(factor, takesPowersOfTwo(arithmetic, order));
  return attendBackward<float>(outputGrad, q, k, v, output, lse, factor,
                               exponent, visible, getRounding(arithmetic),
                               order, gate);
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

/// Tokens that compressed block i and selection block j share.
static int64_t overlap(int64_t i, int64_t j, const SelectionRule &rule) {
  int64_t begin = std::max(i * rule.stride, j * rule.selectBlock);
  int64_t end =
      std::min(i * rule.stride + rule.block, (j + 1) * rule.selectBlock);
  return std::max<int64_t>(0, end - begin);
}

Tensor nsa::reference::blockScores(const Tensor &q, const Tensor &k,
                                   const Tensor &lse,
                                   const SelectionRule &rule) {
  int64_t batch = q.dim(0), sequence = q.dim(1), heads = q.dim(2);
  int64_t dk = q.dim(3), kvHeads = k.dim(2), group = heads / kvHeads;
  int64_t blocks = (sequence + rule.selectBlock - 1) / rule.selectBlock;
  Tensor scores({batch, kvHeads, sequence, blocks}, -1.0);
  auto isComplete = [&](int64_t i, int64_t t) {
    return i < k.dim(1) && i * rule.stride + rule.block - 1 <= t;
  };
  auto scoreRow = [&](int64_t b, int64_t h, int64_t t) {
    double *row = scores.row({b, h, t});
    std::fill(row, row + t / rule.selectBlock + 1, 0.0);
    for (int64_t i = 0; isComplete(i, t); ++i) {
      double p = 0.0;
      for (int64_t g = h * group; g < (h + 1) * group; ++g)
        p += std::exp(rule.scale *
                          dot<double>(q.row({b, t, g}), k.row({b, i, h}), dk) -
                      lse.at({b, g, t}));
      int64_t first = i * rule.stride / rule.selectBlock;
      for (int64_t j = first; j < blocks && overlap(i, j, rule) > 0; ++j)
        row[j] += p * static_cast<double>(overlap(i, j, rule)) /
                  static_cast<double>(rule.stride);
    }
  };
  int64_t rows = batch * kvHeads * sequence;
  forEachPart(rows, kPart, double(rows) * double(k.dim(1) * group * dk),
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row)
                  scoreRow(row / sequence / kvHeads, row / sequence % kvHeads,
                           row % sequence);
              });
  return scores;
}

std::vector<int64_t> nsa::reference::forcedBlocks(int64_t lastBlock,
                                                  const SelectionRule &rule) {
  std::vector<int64_t> forced;
  auto add = [&](int64_t j) {
    if (j >= 0 && j <= lastBlock &&
        std::find(forced.begin(), forced.end(), j) == forced.end())
      forced.push_back(j);
  };
  if (rule.local > 0)
    add(lastBlock);
  for (int64_t j = 0; j < rule.initial; ++j)
    add(j);
  for (int64_t j = 1; j < rule.local; ++j)
    add(lastBlock - j);
  if (static_cast<int64_t>(forced.size()) > rule.count)
    forced.resize(rule.count);
  return forced;
}

Tensor nsa::reference::selectBlocks(const Tensor &scores,
                                    const SelectionRule &rule) {
  int64_t batch = scores.dim(0), kvHeads = scores.dim(1);
  int64_t sequence = scores.dim(2);
  Tensor indices({batch, kvHeads, sequence, rule.count}, -1.0);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < kvHeads; ++h)
      for (int64_t t = 0; t < sequence; ++t) {
        int64_t last = t / rule.selectBlock;
        const double *row = scores.row({b, h, t});
        std::vector<int64_t> chosen = forcedBlocks(last, rule);
        std::vector<int64_t> rest;
        for (int64_t j = 0; j <= last; ++j)
          if (std::find(chosen.begin(), chosen.end(), j) == chosen.end())
            rest.push_back(j);
        std::sort(rest.begin(), rest.end(), [&](int64_t x, int64_t y) {
          return row[x] != row[y] ? row[x] > row[y] : x < y;
        });
        for (int64_t j : rest)
          if (static_cast<int64_t>(chosen.size()) < rule.count)
            chosen.push_back(j);
        std::sort(chosen.begin(), chosen.end());
        for (size_t i = 0; i < chosen.size(); ++i)
          indices.at({b, h, t, static_cast<int64_t>(i)}) =
              static_cast<double>(chosen[i]);
      }
  return indices;
}
