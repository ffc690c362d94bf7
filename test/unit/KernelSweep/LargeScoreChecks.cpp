//===- LargeScoreChecks.cpp - gradients from a kernel's own lse -----------===//
//
// The other checks give gradients the reference's lse. Here they get that of
// the forward kernel, as in training: where scores are large, the two must
// round them alike.
//
//===----------------------------------------------------------------------===//

#include "lib/Reference/Kernels/Attention.h"
#include "lib/Reference/Kernels/NN.h"
#include "test/unit/KernelSweep/Checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

namespace {

struct Branch {
  std::string name;
  Tensor k, v, gate;
  VisibleKeys visible;
};

using Gradients = std::array<AttentionGradients, 3>;

/// The operands of all branches, with products of queries and keys that fp32
/// holds exactly in any order of summation: the formula is off by what it makes
/// of them alone. Queries are random or, if `peaked`, those of the last key
/// that they see, whose score is far above all others: its probability is 1.
struct Case {
  Case(Trial &trial, double largest, bool peaked);

  /// Gives queries the last key that they see in `branch`.
  void point(const Branch &branch);

  /// The gradients of each branch by the formula, forward and backward, with
  /// their gates or without; `withOutput` off leaves do . o away.
  Gradients grade(Arithmetic arithmetic, unsigned order, bool gated,
                  bool withOutput = true) const;
  /// Expects result `name` to have at most twice the error of the formula, or
  /// what is left where all terms cancel.
  void compare(const Trial &trial, const std::string &name, bool gated,
               const std::function<Tensor(const Gradients &)> &part) const;

  Tensor q, dout, gates, indices;
  std::array<Branch, 3> branches;
  double largest, scale;
  bool peaked;
};

Tensor withIntegers(Tensor t) {
  for (double &x : t.data)
    x = std::round(x);
  return t;
}

Case::Case(Trial &trial, double largest, bool peaked)
    : largest(largest), peaked(peaked) {
  const Combination &c = trial.c;
  scale = 1.0 / std::sqrt(static_cast<double>(c.dk));
  // Scores are normally distributed; those of a key with itself have a mean.
  double size = std::sqrt(largest / (peaked ? std::sqrt(double(c.dk)) : 4));
  auto draw = [&](int64_t rows, int64_t heads, int64_t width) {
    return trial.normal({c.batch, rows, heads, width}, size);
  };
  q = withIntegers(draw(c.sequence, c.heads(), c.dk));
  Tensor scores = trial.normal(
      {c.batch, c.kvHeads, c.sequence, (c.sequence + c.lSel - 1) / c.lSel});
  indices = selectBlocks(scores, {c.l, c.d, c.lSel, c.count, 1, c.local, 1.0});
  branches[0] = {"cmp", {}, {}, {}, compressedKeys(c.compressed(), c.l, c.d)};
  branches[1] = {"slc", {}, {}, {}, selectedKeys(indices, c.lSel, c.sequence)};
  branches[2] = {"win", {}, {}, {}, windowKeys(c.window)};
  dout = trial.normal({c.batch, c.sequence, c.heads(), c.dv});
  gates = Trial::single(trial.normal({c.batch, c.sequence, c.heads(), 3}));
  for (auto &branch : branches) {
    int64_t rows = branch.name == "cmp" ? c.compressed() : c.sequence;
    // The last key of a query is that of its own token in both.
    branch.k = branch.name == "win" ? branches[1].k
                                    : withIntegers(draw(rows, c.kvHeads, c.dk));
    branch.v = trial.normal({c.batch, rows, c.kvHeads, c.dv});
    branch.gate = Tensor({c.batch, c.sequence, c.heads()});
    for (size_t i = 0; i < branch.gate.data.size(); ++i)
      branch.gate.data[i] = gates.data[3 * i + (&branch - branches.data())];
    trial.set(branch.name + ".k", branch.k);
    trial.set(branch.name + ".v", branch.v);
  }
  trial.set("do", dout);
  trial.set("gates", gates);
  trial.set("indices_in", indices);
}

void Case::point(const Branch &branch) {
  std::vector<int64_t> keys;
  int64_t group = q.dim(2) / branch.k.dim(2);
  for (int64_t h = 0; h < q.dim(2); ++h)
    for (int64_t t = 0; t < q.dim(1); ++t) {
      branch.visible(0, h / group, t, keys);
      if (!keys.empty())
        std::copy_n(branch.k.row({0, keys.back(), h / group}), q.dim(3),
                    q.row({0, t, h}));
    }
}

Gradients Case::grade(Arithmetic arithmetic, unsigned order, bool gated,
                      bool withOutput) const {
  Gradients grads;
  for (auto [branch, own] :
       {std::pair(&branches[0], &grads[0]), std::pair(&branches[1], &grads[1]),
        std::pair(&branches[2], &grads[2])}) {
    AttentionResult result = attention(q, branch->k, branch->v, scale,
                                       branch->visible, arithmetic, order);
    *own = attentionBackward(dout, q, branch->k, branch->v,
                             withOutput ? result.output
                                        : Tensor(result.output.shape),
                             result.lse, scale, branch->visible, arithmetic,
                             order, gated ? branch->gate : Tensor());
  }
  return grads;
}

void Case::compare(const Trial &trial, const std::string &name, bool gated,
                   const std::function<Tensor(const Gradients &)> &part) const {
  Tensor exact = part(grade(Arithmetic::F64, 0, gated));
  double error = distance(trial.get(name), exact);
  double terms = magnitude(part(grade(Arithmetic::F64, 0, gated, false)));
  double bound = std::sqrt(double(trial.c.dv)) * 0x1p-23 * terms;
  for (unsigned order = 0; order < 4 && bound < error; ++order)
    bound = std::max(
        bound, kSameFormulaFactor *
                   distance(part(grade(Arithmetic::F32, order, gated)), exact));
  EXPECT_LE(error, bound) << (gated ? "gated " : "") << name << " with "
                          << (peaked ? "one score" : "scores") << " up to "
                          << largest << " of " << trial.c.describe();
}

void check(Trial &trial, Case &data) {
  for (size_t i = 0; i < data.branches.size(); ++i) {
    const std::string &name = data.branches[i].name;
    if (data.peaked)
      data.point(data.branches[i]);
    trial.set("q", data.q);
    trial.run(name);
    trial.set(name + ".o_in", trial.get(name + ".o"));
    trial.set(name + ".lse_in", trial.get(name + ".lse"));
    trial.run(name + "_backward");
    data.compare(trial, name + ".dq", /*gated=*/false,
                 [&](const Gradients &g) { return g[i].q; });
    data.compare(trial, name + ".dk", /*gated=*/false,
                 [&](const Gradients &g) { return g[i].k; });
    data.compare(trial, name + ".dv", /*gated=*/false,
                 [&](const Gradients &g) { return g[i].v; });
  }
}

void checkGated(Trial &trial, const Case &data) {
  trial.run("cmp");
  trial.set("oc", trial.get("cmp.o"));
  trial.set("cmp.lse_in", trial.get("cmp.lse"));
  trial.run("gated");
  for (const std::string name : {"slc", "win"}) {
    trial.set("o" + name.substr(0, 1), trial.get(name + ".o"));
    trial.set(name + ".lse_in", trial.get(name + ".lse"));
  }
  trial.run("gated_backward");
  data.compare(trial, "dq", /*gated=*/true, [&](const Gradients &g) {
    return reference::add(reference::add(g[0].q, g[1].q), g[2].q);
  });
  for (size_t i = 0; i < data.branches.size(); ++i) {
    const std::string &name = data.branches[i].name;
    data.compare(trial, name + ".dk", /*gated=*/true,
                 [&](const Gradients &g) { return g[i].k; });
    data.compare(trial, name + ".dv", /*gated=*/true,
                 [&](const Gradients &g) { return g[i].v; });
  }
}

} // namespace

void nsa::test::checkLargeScores(const Compile &compile) {
  Combination c;
  c.sequence = 70;
  c.group = 2;
  // The scale is no power of 2.
  c.dk = 32;
  c.window = 33;
  c.gating = "given";
  c.seed = testSeed();
  Trial trial(c, compile);
  Status status =
      trial.prepare({"cmp", "cmp_backward", "slc", "slc_backward", "win",
                     "win_backward", "gated", "gated_backward"});
  ASSERT_TRUE(status.ok()) << c.describe() << "\n" << status.message();
  for (double largest : {250.0, 1000.0, 1e4}) {
    for (bool peaked : {false, true}) {
      Case data(trial, largest, peaked);
      check(trial, data);
      // With the queries of the last branch.
      checkGated(trial, data);
    }
  }
}
