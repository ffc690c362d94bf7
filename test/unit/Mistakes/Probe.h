//===- Probe.h - inputs that show what a kernel attends to ------*- C++ -*-===//
//
// Values that are one-hot per key make an output row say which keys it saw and
// with which weight; output gradients that are one-hot per query make the
// values' gradient say the same of the backward kernel.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_MISTAKES_PROBE_H
#define NSA_TEST_UNIT_MISTAKES_PROBE_H

#include "test/unit/KernelSweep/Trial.h"
#include "test/unit/VisibleKeys.h"

namespace nsa::test {

/// A combination's entries with probing inputs.
class Probe {
public:
  /// Compiles the entries `only`. Throws what the compiler reports, which
  /// fails the test.
  Probe(const Combination &c, const std::vector<std::string> &only);

  /// Queries [B,S,Hq,dk] for which the score of a key is its first component,
  /// times `factor`.
  reference::Tensor queries(double factor = 1.0) const;

  /// Queries of the head h that read component h of a key instead.
  reference::Tensor queriesOfHeads() const;

  /// Keys [B,rows,Hkv,dk] whose first component is `score(row)`.
  reference::Tensor keys(int64_t rows,
                         const std::function<double(int64_t)> &score) const;

  /// Row i of [B,rows,heads,width] is one at component i.
  static reference::Tensor oneHot(int64_t batch, int64_t rows, int64_t heads,
                                  int64_t width);

  reference::AttentionResult forward(const std::string &branch,
                                     const reference::Tensor &q,
                                     const reference::Tensor &k,
                                     const reference::Tensor &v);
  reference::AttentionGradients
  backward(const std::string &branch, const reference::Tensor &dout,
           const reference::Tensor &q, const reference::Tensor &k,
           const reference::Tensor &v,
           const reference::AttentionResult &result);

  /// Runs the entry select on compressed keys; the lse is the reference's.
  reference::Tensor select(const reference::Tensor &q,
                           const reference::Tensor &k);

  /// Expects that with equal scores every query attends, with equal weights,
  /// to exactly the keys for which `visible(query, key)`, forward and backward.
  /// Needs a value width of at least the sequence length.
  void expectKeys(const std::string &branch, int64_t numKeys,
                  const std::function<bool(int64_t, int64_t)> &visible);

  /// Expects the branch's results and gradients within the normative tolerance
  /// of the reference.
  void expectReference(const std::string &branch, const reference::Tensor &q,
                       const reference::Tensor &k, const reference::Tensor &v,
                       const reference::VisibleKeys &visible);

  const Combination c;
  Trial trial;
  double scale;
};

/// "1 2 5": the entries that are not -1, to compare and to print.
std::string blocksOf(const reference::Tensor &indices, int64_t b, int64_t h,
                     int64_t t);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_MISTAKES_PROBE_H
