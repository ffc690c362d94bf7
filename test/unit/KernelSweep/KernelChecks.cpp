//===- KernelChecks.cpp - every nsa kernel against the reference ----------===//

#include "lib/Reference/Kernels/Attention.h"
#include "lib/Reference/Kernels/Compression.h"
#include "lib/Reference/Kernels/Statistics.h"
#include "test/unit/KernelSweep/Checks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <map>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

namespace {

/// Parameters of the size that models start with.
Projection makeProjection(Trial &trial, const std::string &suffix,
                          int64_t width) {
  const Combination &c = trial.c;
  Projection phi;
  auto draw = [&](Tensor &parameter, const char *name, int64_t rows,
                  double std) {
    parameter = trial.normal({c.kvHeads, rows, width}, std);
    trial.set(name + suffix, parameter);
  };
  auto gain = [](int64_t rows) {
    return 1.0 / std::sqrt(static_cast<double>(rows));
  };
  draw(phi.weight, "w_", c.l * width, gain(c.l * width));
  if (c.phi == Phi::Mlp)
    draw(phi.outputWeight, "w2_", width, 2.0 * gain(width));
  if (c.positions)
    draw(phi.positions, "p_", c.l, 0.5);
  return phi;
}

/// Checks linear or mlp forward and backward; gives y.
void checkProjection(Trial &trial, const std::string &suffix, const Tensor &x,
                     Tensor &y) {
  const Combination &c = trial.c;
  Arithmetic same = c.arithmetic();
  Projection phi = makeProjection(trial, suffix, x.dim(3));
  trial.run("compress_" + suffix);
  y = compressProjected(x, phi, c.l, c.d);
  trial.compare("y_" + suffix, y, [&](unsigned order) {
    return compressProjected(x, phi, c.l, c.d, same, order);
  });
  Tensor dy = trial.normal(y.shape);
  trial.set("dy_" + suffix, dy);
  trial.run("compress_" + suffix + "_backward");
  ProjectionGradients grads = compressProjectedBackward(dy, x, phi, c.l, c.d);
  std::map<unsigned, ProjectionGradients> again;
  using Part = std::function<const Tensor &(const ProjectionGradients &)>;
  auto check = [&](const char *name, const Part &part) {
    if (part(grads).shape.empty())
      return;
    trial.compare(name + suffix, part(grads), [&](unsigned order) {
      auto [entry, isNew] = again.try_emplace(order);
      if (isNew)
        entry->second =
            compressProjectedBackward(dy, x, phi, c.l, c.d, same, order);
      return part(entry->second);
    });
  };
  using Grads = const ProjectionGradients &;
  check("dx_", [](Grads g) -> const Tensor & { return g.input; });
  check("dw_", [](Grads g) -> const Tensor & { return g.phi.weight; });
  check("dw2_", [](Grads g) -> const Tensor & { return g.phi.outputWeight; });
  check("dp_", [](Grads g) -> const Tensor & { return g.phi.positions; });
}

void checkCompression(Trial &trial, const std::string &suffix, const Tensor &x,
                      Tensor &y) {
  const Combination &c = trial.c;
  trial.set("x_" + suffix, x);
  if (c.phi == Phi::Mean) {
    trial.run("compress_" + suffix);
    y = compressMean(x, c.l, c.d);
    trial.compare("y_" + suffix, y);
    Tensor dy = trial.normal(y.shape);
    trial.set("dy_" + suffix, dy);
    trial.run("compress_" + suffix + "_backward");
    trial.compare("dx_" + suffix, compressMeanBackward(dy, x, c.l, c.d));
  } else {
    checkProjection(trial, suffix, x, y);
  }
  y = trial.stored(y);
}

/// Checks one branch forward and backward; returns the reference's result.
AttentionResult checkAttention(Trial &trial, const Inputs &in,
                               const std::string &branch, const Tensor &k,
                               const Tensor &v, const VisibleKeys &visible) {
  Arithmetic same = trial.c.arithmetic();
  trial.set("q", in.q);
  trial.set(branch + ".k", k);
  trial.set(branch + ".v", v);
  trial.run(branch);
  AttentionResult expected = attention(in.q, k, v, in.scale, visible);
  auto again = [&](unsigned order) {
    return attention(in.q, k, v, in.scale, visible, same, order);
  };
  trial.compare(branch + ".o", expected.output,
                [&](unsigned order) { return again(order).output; });
  trial.compare(branch + ".lse", expected.lse,
                [&](unsigned order) { return again(order).lse; });

  Tensor output = trial.stored(expected.output);
  Tensor lse = Trial::single(expected.lse);
  trial.set("do", in.dout);
  trial.set(branch + ".o_in", output);
  trial.set(branch + ".lse_in", lse);
  trial.run(branch + "_backward");
  AttentionGradients grads =
      attentionBackward(in.dout, in.q, k, v, output, lse, in.scale, visible);
  auto evaluate = [&](const Tensor &o, Arithmetic arithmetic,
                      unsigned order = 0) {
    return attentionBackward(in.dout, in.q, k, v, o, lse, in.scale, visible,
                             arithmetic, order);
  };
  auto check = [&](const char *name, Tensor AttentionGradients::*member) {
    // Without do . o, nothing cancels.
    trial.compare(
        branch + name, grads.*member,
        [&](unsigned order) { return evaluate(output, same, order).*member; },
        [&] {
          return magnitude(evaluate(Tensor(output.shape), Arithmetic::F64).*
                           member);
        });
  };
  check(".dq", &AttentionGradients::q);
  check(".dk", &AttentionGradients::k);
  check(".dv", &AttentionGradients::v);
  return {std::move(output), std::move(lse)};
}

/// Compares selections where the scores leave no doubt; `expected` becomes the
/// reference's.
void checkSelection(Trial &trial, const Inputs &in, const Tensor &k,
                    const Tensor &lse, Tensor &expected) {
  const Combination &c = trial.c;
  SelectionRule rule{c.l, c.d, c.lSel, c.count, 1, c.local, in.scale};
  Tensor scores = blockScores(in.q, k, lse, rule);
  expected = selectBlocks(scores, rule);
  trial.set("cmp.k", k);
  trial.set("cmp.lse_in", lse);
  trial.run("select");
  Tensor actual = trial.get("indices");
  // Scores are relative to lse, so their error grows with the logits.
  double tolerance =
      std::max(1e-5, 1e-6 * std::max(1.0, c.logits)) * double(c.group) * 4.0;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.kvHeads; ++h)
      for (int64_t t = 0; t < c.sequence; ++t) {
        const double *want = expected.row({b, h, t});
        const double *have = actual.row({b, h, t});
        if (std::equal(want, want + c.count, have))
          continue;
        ASSERT_TRUE(std::is_sorted(have, have + c.count))
            << "selection at t=" << t << " of " << c.describe();
        // Another choice is allowed only among blocks of nearly equal score.
        std::vector<double> gone, come;
        std::set_difference(want, want + c.count, have, have + c.count,
                            std::back_inserter(gone));
        std::set_difference(have, have + c.count, want, want + c.count,
                            std::back_inserter(come));
        ASSERT_EQ(gone.size(), come.size()) << c.describe() << " t=" << t;
        for (size_t i = 0; i < gone.size(); ++i) {
          ASSERT_GE(come[i], 0) << c.describe() << " t=" << t;
          ASSERT_LE(come[i], t / c.lSel) << c.describe() << " t=" << t;
          double gap = scores.at({b, h, t, int64_t(gone[i])}) -
                       scores.at({b, h, t, int64_t(come[i])});
          ASSERT_LE(std::fabs(gap), tolerance)
              << "selection at t=" << t << " of " << c.describe();
        }
      }
  trial.set("chosen", expected);
  trial.run("statistics");
  Tensor statistics = selectionStatistics(expected, c.lSel);
  ASSERT_LE(distance(trial.get("y"), statistics), 1e-6 * magnitude(statistics))
      << "statistics of " << c.describe();
}

void checkCombination(Trial &trial, const Inputs &in, const Tensor &cmp,
                      const Tensor &slc, const Tensor &win) {
  trial.set("gates", in.gates);
  trial.set("oc", cmp);
  trial.set("os", slc);
  trial.set("ow", win);
  trial.set("do", in.dout);
  trial.run("combine");
  trial.compare("o", combine(in.gates, {&cmp, &slc, &win}));
  trial.run("combine_backward");
  CombineGradients grads =
      combineBackward(in.dout, in.gates, {&cmp, &slc, &win});
  trial.compare("dgates", grads.gates);
  trial.compare("doc", grads.branches[0]);
  trial.compare("dos", grads.branches[1]);
  trial.compare("dow", grads.branches[2]);
}

} // namespace

void nsa::test::checkAll(const Combination &c, const Compile &compile) {
  Trial trial(c, compile);
  Status status = trial.prepare();
  ASSERT_TRUE(status.ok()) << c.describe() << "\n" << status.message();
  Inputs in(trial);
  Tensor kc, vc;
  checkCompression(trial, "k", in.kCmp, kc);
  checkCompression(trial, "v", in.vCmp, vc);
  AttentionResult cmp = checkAttention(trial, in, "cmp", kc, vc,
                                       compressedKeys(kc.dim(1), c.l, c.d));
  Tensor indices;
  checkSelection(trial, in, kc, cmp.lse, indices);
  if (testing::Test::HasFatalFailure())
    return;
  trial.set("indices_in", indices);
  AttentionResult slc =
      checkAttention(trial, in, "slc", in.kSlc, in.vSlc,
                     selectedKeys(indices, c.lSel, c.sequence));
  AttentionResult win =
      checkAttention(trial, in, "win", in.kWin, in.vWin, windowKeys(c.window));
  checkAttention(trial, in, "causal", in.kWin, in.vWin, windowKeys(c.sequence));
  checkCombination(trial, in, cmp.output, slc.output, win.output);
}
