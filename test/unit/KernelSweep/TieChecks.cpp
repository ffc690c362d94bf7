//===- TieChecks.cpp - which of equal blocks are selected -----------------===//

#include "lib/Reference/Kernels/Attention.h"
#include "test/unit/KernelSweep/Checks.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

/// Gives all tokens the key of the first one.
static void repeatFirst(Tensor &keys) {
  int64_t row = keys.dim(2) * keys.dim(3);
  for (int64_t b = 0; b < keys.dim(0); ++b)
    for (int64_t i = 1; i < keys.dim(1); ++i)
      std::copy_n(keys.row({b, 0}), row, keys.row({b, i}));
}

void nsa::test::checkTies(const Combination &c, const Compile &compile) {
  if (c.compressed() == 0)
    return;
  Trial trial(c, compile);
  Status status = trial.prepare({"select"});
  ASSERT_TRUE(status.ok()) << c.describe() << "\n" << status.message();
  Inputs in(trial);
  Tensor keys =
      trial.normal({c.batch, c.compressed(), c.kvHeads, c.dk}, in.scale);
  repeatFirst(keys);
  // Any statistics will do by which probabilities have all kinds of digits.
  Tensor lse = Trial::single(trial.normal({c.batch, c.heads(), c.sequence}));
  trial.set("q", in.q);
  trial.set("cmp.k", keys);
  trial.set("cmp.lse_in", lse);
  trial.run("select");
  SelectionRule rule{c.l, c.d, c.lSel, c.count, 1, c.local, in.scale};
  Tensor expected = selectBlocks(blockScores(in.q, keys, lse, rule), rule);
  Tensor actual = trial.get("indices");
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.kvHeads; ++h)
      for (int64_t t = 0; t < c.sequence; ++t)
        ASSERT_TRUE(std::equal(expected.row({b, h, t}),
                               expected.row({b, h, t}) + c.count,
                               actual.row({b, h, t})))
            << "t=" << t << " of " << c.describe();
}
