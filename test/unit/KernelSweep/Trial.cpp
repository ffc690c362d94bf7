//===- Trial.cpp - one combination, compiled ------------------------------===//

#include "test/unit/KernelSweep/Trial.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using reference::Tensor;

double nsa::test::allowedError(const Combination &c, const Tensor &expected,
                               const SameFormula &same,
                               const std::function<double()> &terms,
                               double enough) {
  double top = magnitude(expected), bound = kSingleTolerance * top;
  // Scores have standard deviation `logits`: up to 25 none exceeds 100.
  bool single = !c.isNarrow() && c.logits <= 25.0 && top > 0.0;
  if (single && (enough <= bound || !terms))
    return bound;
  if (terms) {
    // What is left where all cancels is the rounding of the fp32 output that
    // the gradient is given.
    double cancelling = terms();
    if (single && top > 0x1p-20 * cancelling)
      return bound;
    bound = std::max(bound, std::sqrt(double(c.dv)) * 0x1p-23 * cancelling);
  }
  for (unsigned order = 0; order < 16 && bound < enough; ++order)
    bound =
        std::max(bound, kSameFormulaFactor * distance(same(order), expected));
  return bound;
}

//===----------------------------------------------------------------------===//
// Trial
//===----------------------------------------------------------------------===//

Status Trial::prepare(const std::vector<std::string> &only) {
  CompilerOptions options;
  options.tileSizes = c.tileSizes;
  options.selectedForm = c.selectedForm;
  Result<CompiledModule> loaded = CompiledModule::load(
      moduleText(c, only), options, CompiledModule::poisoned(), compile);
  if (!loaded)
    return loaded.takeError();
  module.emplace(std::move(*loaded));
  return {};
}

Tensor Trial::normal(std::vector<int64_t> shape, double scale) {
  Tensor t(std::move(shape));
  std::normal_distribution<double> distribution;
  for (double &x : t.data)
    x = scale * distribution(random);
  return stored(std::move(t));
}

Tensor Trial::stored(Tensor t) const {
  for (double &x : t.data)
    x = roundTo(c.element, x);
  return t;
}

Tensor Trial::single(Tensor t) {
  for (double &x : t.data)
    x = roundTo(DataType::F32, x);
  return t;
}

void Trial::compare(const std::string &name, const Tensor &expected,
                    const SameFormula &same,
                    const std::function<double()> &terms) {
  double error = distance(get(name), expected);
  EXPECT_LE(error, allowedError(c, expected, same, terms, error))
      << name << " of " << c.describe();
}

void Trial::compare(const std::string &name, const Tensor &expected) {
  compare(name, expected, [&](unsigned) { return stored(expected); });
}

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

nsa::test::Inputs::Inputs(Trial &trial) {
  const Combination &c = trial.c;
  // Scores have standard deviation `logits` with scale 1 / sqrt(dk).
  double size = std::sqrt(c.logits);
  q = trial.normal({c.batch, c.sequence, c.heads(), c.dk}, size);
  for (Tensor *key : {&kCmp, &kSlc, &kWin})
    *key = trial.normal({c.batch, c.sequence, c.kvHeads, c.dk}, size);
  for (Tensor *value : {&vCmp, &vSlc, &vWin})
    *value = trial.normal({c.batch, c.sequence, c.kvHeads, c.dv});
  dout = trial.normal({c.batch, c.sequence, c.heads(), c.dv});
  gates = Trial::single(trial.normal({c.batch, c.sequence, c.heads(), 3}));
  scale = 1.0 / std::sqrt(static_cast<double>(c.dk));
}

void nsa::test::Inputs::changeFuture(Trial &trial, int64_t t) {
  for (Tensor *x : {&q, &kCmp, &kSlc, &kWin, &vCmp, &vSlc, &vWin, &gates}) {
    Tensor other = trial.normal(x->shape, 3.0);
    for (int64_t b = 0; b < x->dim(0); ++b)
      std::copy(other.row({b, t}),
                other.row({b, t}) + (x->dim(1) - t) * x->dim(2) * x->dim(3),
                x->row({b, t}));
  }
}

Tensor nsa::test::runFull(Trial &trial, const Inputs &in) {
  trial.set("q", in.q);
  trial.set("cmp.x", in.kCmp);
  trial.set("cmp.y", in.vCmp);
  trial.set("slc.k", in.kSlc);
  trial.set("slc.v", in.vSlc);
  trial.set("win.k", in.kWin);
  trial.set("win.v", in.vWin);
  trial.set("gates", in.gates);
  trial.run("full");
  return trial.get("full.o");
}
