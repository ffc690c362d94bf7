//===- Probe.cpp - inputs that show what a kernel attends to --------------===//

#include "test/unit/Mistakes/Probe.h"

#include <cmath>
#include <gtest/gtest.h>
#include <stdexcept>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

Probe::Probe(const Combination &c, const std::vector<std::string> &only)
    : c(c), trial(this->c), scale(1.0 / std::sqrt(double(c.dk))) {
  Status status = trial.prepare(only);
  if (!status.ok())
    throw std::runtime_error(status.message());
}

Tensor Probe::queries(double factor) const {
  Tensor q({c.batch, c.sequence, c.heads(), c.dk});
  for (size_t i = 0; i < q.data.size(); i += c.dk)
    q.data[i] = factor / scale;
  return q;
}

Tensor Probe::queriesOfHeads() const {
  Tensor q({c.batch, c.sequence, c.heads(), c.dk});
  for (size_t row = 0; row < q.data.size() / c.dk; ++row)
    q.data[row * c.dk + row % c.heads()] = 1.0 / scale;
  return q;
}

Tensor Probe::keys(int64_t rows,
                   const std::function<double(int64_t)> &score) const {
  Tensor k({c.batch, rows, c.kvHeads, c.dk});
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < c.kvHeads; ++h)
        k.at({b, i, h, 0}) = score(i);
  return Trial::single(std::move(k));
}

Tensor Probe::oneHot(int64_t batch, int64_t rows, int64_t heads,
                     int64_t width) {
  Tensor x({batch, rows, heads, width});
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t h = 0; h < heads; ++h)
        x.at({b, i, h, i}) = 1.0;
  return x;
}

AttentionResult Probe::forward(const std::string &branch, const Tensor &q,
                               const Tensor &k, const Tensor &v) {
  trial.set("q", q);
  trial.set(branch + ".k", k);
  trial.set(branch + ".v", v);
  trial.run(branch);
  return {trial.get(branch + ".o"), trial.get(branch + ".lse")};
}

AttentionGradients Probe::backward(const std::string &branch,
                                   const Tensor &dout, const Tensor &q,
                                   const Tensor &k, const Tensor &v,
                                   const AttentionResult &result) {
  trial.set("do", dout);
  trial.set("q", q);
  trial.set(branch + ".k", k);
  trial.set(branch + ".v", v);
  trial.set(branch + ".o_in", result.output);
  trial.set(branch + ".lse_in", result.lse);
  trial.run(branch + "_backward");
  return {trial.get(branch + ".dq"), trial.get(branch + ".dk"),
          trial.get(branch + ".dv")};
}

Tensor Probe::select(const Tensor &q, const Tensor &k) {
  Tensor v({c.batch, k.dim(1), c.kvHeads, c.dv});
  AttentionResult result =
      attention(q, k, v, scale, compressedKeys(k.dim(1), c.l, c.d));
  trial.set("q", q);
  trial.set("cmp.k", k);
  trial.set("cmp.lse_in", result.lse);
  trial.run("select");
  return trial.get("indices");
}

void Probe::expectKeys(const std::string &branch, int64_t numKeys,
                       const std::function<bool(int64_t, int64_t)> &visible) {
  ASSERT_LE(c.sequence, c.dv);
  Tensor q = queries(0.0);
  Tensor k = keys(numKeys, [](int64_t) { return 1.0; });
  Tensor v = oneHot(c.batch, numKeys, c.kvHeads, c.dv);
  AttentionResult result = forward(branch, q, k, v);
  Tensor dout = oneHot(c.batch, c.sequence, c.heads(), c.dv);
  AttentionGradients grads = backward(branch, dout, q, k, v, result);
  for (int64_t t = 0; t < c.sequence; ++t) {
    int64_t number = 0;
    for (int64_t u = 0; u < numKeys; ++u)
      number += visible(t, u);
    for (int64_t u = 0; u < numKeys; ++u) {
      double weight = visible(t, u) ? 1.0 / double(number) : 0.0;
      for (int64_t b = 0; b < c.batch; ++b)
        for (int64_t h = 0; h < c.heads(); ++h) {
          double seen = result.output.at({b, t, h, u});
          double back = grads.v.at({b, u, h / c.group, t}) / double(c.group);
          // An invisible key has no weight at all.
          ASSERT_NEAR(seen, weight, weight * 1e-5)
              << branch << ": query " << t << " at key " << u;
          ASSERT_NEAR(back, weight, weight * 1e-5)
              << branch << " backward: query " << t << " at key " << u;
        }
    }
  }
}

void Probe::expectReference(const std::string &branch, const Tensor &q,
                            const Tensor &k, const Tensor &v,
                            const VisibleKeys &visible) {
  auto evaluate = [&](Arithmetic arithmetic, unsigned order = 0) {
    return attention(q, k, v, scale, visible, arithmetic, order);
  };
  AttentionResult expected = evaluate(Arithmetic::F64);
  forward(branch, q, k, v);
  trial.compare(branch + ".o", expected.output, [&](unsigned order) {
    return evaluate(Arithmetic::F32, order).output;
  });
  trial.compare(branch + ".lse", expected.lse, [&](unsigned order) {
    return evaluate(Arithmetic::F32, order).lse;
  });
  AttentionResult given{Trial::single(expected.output),
                        Trial::single(expected.lse)};
  Tensor dout = trial.normal(given.output.shape);
  auto differentiate = [&](Arithmetic arithmetic, unsigned order = 0) {
    return attentionBackward(dout, q, k, v, given.output, given.lse, scale,
                             visible, arithmetic, order);
  };
  AttentionGradients grads = differentiate(Arithmetic::F64);
  backward(branch, dout, q, k, v, given);
  trial.compare(branch + ".dq", grads.q, [&](unsigned order) {
    return differentiate(Arithmetic::F32, order).q;
  });
  trial.compare(branch + ".dk", grads.k, [&](unsigned order) {
    return differentiate(Arithmetic::F32, order).k;
  });
  trial.compare(branch + ".dv", grads.v, [&](unsigned order) {
    return differentiate(Arithmetic::F32, order).v;
  });
}

std::string nsa::test::blocksOf(const Tensor &indices, int64_t b, int64_t h,
                                int64_t t) {
  std::string text;
  const double *row = indices.row({b, h, t});
  for (int64_t i = 0; i < indices.dim(3); ++i)
    if (row[i] != -1.0)
      text += (text.empty() ? "" : " ") + std::to_string(int64_t(row[i]));
  return text;
}
