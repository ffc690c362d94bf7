//===- GatedChecks.cpp - fused nsa kernels against the reference ----------===//

#include "lib/Reference/Kernels/Attention.h"
#include "lib/Reference/Kernels/NN.h"
#include "test/unit/KernelSweep/Checks.h"

#include <array>
#include <cmath>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

namespace {

/// One branch: its keys and values, and its output in fp64 and as stored.
struct Branch {
  std::string name;
  Tensor k, v;
  VisibleKeys visible;
  AttentionResult exact;
  Tensor output, lse;
};

/// Everything that the fused operations read.
struct Case {
  explicit Case(Trial &trial);

  AttentionResult attend(const Branch &branch, Arithmetic arithmetic,
                         unsigned order = 1) const {
    return attention(in.q, branch.k, branch.v, in.scale, branch.visible,
                     arithmetic, order);
  }
  /// The gates of one branch.
  Tensor gateOf(int64_t branch) const;
  /// The gradients of each branch; `withOutput` off leaves do . o away.
  std::array<AttentionGradients, 3> grade(Arithmetic arithmetic, unsigned order,
                                          bool withOutput = true) const;

  Inputs in;
  Tensor indices, logits, bias, gates;
  std::array<Branch, 3> branches;
  /// The gradients of the gates.
  CombineGradients sum;
  bool given, softmax;
};

Case::Case(Trial &trial) : in(trial) {
  const Combination &c = trial.c;
  given = c.gating == "given";
  softmax = c.gating == "softmax";
  // Any scores do: what is selected is an operand here.
  Tensor scores = trial.normal(
      {c.batch, c.kvHeads, c.sequence, (c.sequence + c.lSel - 1) / c.lSel});
  indices = selectBlocks(scores, {c.l, c.d, c.lSel, c.count, 1, c.local, 1.0});
  double size = std::sqrt(c.logits);
  branches = {
      Branch{"cmp",
             trial.normal({c.batch, c.compressed(), c.kvHeads, c.dk}, size),
             trial.normal({c.batch, c.compressed(), c.kvHeads, c.dv}),
             compressedKeys(c.compressed(), c.l, c.d),
             {},
             {},
             {}},
      Branch{"slc",
             in.kSlc,
             in.vSlc,
             selectedKeys(indices, c.lSel, c.sequence),
             {},
             {},
             {}},
      Branch{"win", in.kWin, in.vWin, windowKeys(c.window), {}, {}, {}}};
  for (Branch &branch : branches) {
    branch.exact = attend(branch, Arithmetic::F64);
    branch.output = trial.stored(branch.exact.output);
    branch.lse = Trial::single(branch.exact.lse);
  }
  logits = trial.normal({c.batch, c.sequence, 3 * c.heads()});
  if (!given && c.gateBias)
    bias = Trial::single(trial.normal({3 * c.heads()}));
  gates = given ? in.gates : gate(logits, bias, softmax);
  sum = combineBackward(
      in.dout, gates,
      {&branches[0].output, &branches[1].output, &branches[2].output});

  trial.set("q", in.q);
  trial.set("do", in.dout);
  trial.set("indices_in", indices);
  for (const Branch &branch : branches) {
    trial.set(branch.name + ".k", branch.k);
    trial.set(branch.name + ".v", branch.v);
    trial.set("o" + branch.name.substr(0, 1), branch.output);
    trial.set(branch.name + ".lse_in", branch.lse);
  }
  trial.set(given ? "gates" : "logits", given ? gates : logits);
  if (!bias.data.empty())
    trial.set("bias", bias);
}

Tensor Case::gateOf(int64_t branch) const {
  int64_t rows = in.q.dim(0) * in.q.dim(1) * in.q.dim(2);
  Tensor gate({in.q.dim(0), in.q.dim(1), in.q.dim(2)});
  for (int64_t row = 0; row < rows; ++row)
    gate.data[row] = gates.data[3 * row + branch];
  return gate;
}

std::array<AttentionGradients, 3>
Case::grade(Arithmetic arithmetic, unsigned order, bool withOutput) const {
  std::array<AttentionGradients, 3> results;
  for (size_t i = 0; i < 3; ++i) {
    const Branch &branch = branches[i];
    results[i] = attentionBackward(
        in.dout, in.q, branch.k, branch.v,
        withOutput ? branch.output : Tensor(branch.output.shape), branch.lse,
        in.scale, branch.visible, arithmetic, order, gateOf(i));
  }
  return results;
}

void checkForward(Trial &trial, const Case &data, Arithmetic same) {
  trial.run("gated");
  for (size_t i : {1, 2}) {
    const Branch &branch = data.branches[i];
    trial.compare(branch.name + ".o", branch.exact.output, [&](unsigned order) {
      return data.attend(branch, same, order).output;
    });
    trial.compare(branch.name + ".lse", branch.exact.lse, [&](unsigned order) {
      return data.attend(branch, same, order).lse;
    });
  }
  auto mix = [&](const Tensor &selected, const Tensor &window) {
    return combine(data.gates, {&data.branches[0].output, &selected, &window});
  };
  trial.compare(
      "gated.o",
      mix(data.branches[1].exact.output, data.branches[2].exact.output),
      [&](unsigned order) {
        return trial.stored(
            mix(data.attend(data.branches[1], same, order).output,
                data.attend(data.branches[2], same, order).output));
      });
}

void checkBackward(Trial &trial, const Case &data, Arithmetic same) {
  trial.run("gated_backward");
  auto total = [](const std::array<AttentionGradients, 3> &grads) {
    return reference::add(reference::add(grads[0].q, grads[1].q), grads[2].q);
  };
  auto exact = data.grade(Arithmetic::F64, 1);
  auto terms = data.grade(Arithmetic::F64, 1, /*withOutput=*/false);
  trial.compare(
      "dq", total(exact),
      [&](unsigned order) {
        return trial.stored(total(data.grade(same, order)));
      },
      [&] { return magnitude(total(terms)); });
  for (size_t i = 0; i < 3; ++i) {
    const std::string &name = data.branches[i].name;
    trial.compare(
        name + ".dk", exact[i].k,
        [&](unsigned order) { return data.grade(same, order)[i].k; },
        [&] { return magnitude(terms[i].k); });
    trial.compare(
        name + ".dv", exact[i].v,
        [&](unsigned order) { return data.grade(same, order)[i].v; },
        [&] { return magnitude(terms[i].v); });
  }
  if (data.given)
    return trial.compare("dgates", data.sum.gates);
  GateGradients grads = gateBackward(data.sum.gates, data.gates, data.softmax);
  trial.compare("dlogits", grads.logits);
  if (!data.bias.data.empty())
    trial.compare("dbias", grads.bias);
}

} // namespace

void nsa::test::checkGated(const Combination &c, const Compile &compile) {
  Trial trial(c, compile);
  Status status = trial.prepare({"gated", "gated_backward"});
  ASSERT_TRUE(status.ok()) << c.describe() << "\n" << status.message();
  Case data(trial);
  Arithmetic same = c.arithmetic();
  checkForward(trial, data, same);
  checkBackward(trial, data, same);
}

Combination nsa::test::withGating(Combination c, size_t number) {
  static constexpr const char *gatings[] = {"sigmoid", "softmax", "given"};
  c.gating = gatings[number % 3];
  c.gateBias = number % 2 == 0;
  return c;
}
