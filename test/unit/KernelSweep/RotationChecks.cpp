//===- RotationChecks.cpp - rotary embedding in attention's kernels -------===//

#include "lib/Reference/Kernels/Attention.h"
#include "lib/Reference/Kernels/NN.h"
#include "test/unit/KernelSweep/Checks.h"

#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

static void expectSame(const Trial &trial, const std::string &name,
                       const std::string &expected) {
  EXPECT_EQ(trial.get(name).data, trial.get(expected).data)
      << name << ", " << trial.c.describe();
}

static void setTokens(Trial &trial, const Inputs &in) {
  trial.set("q", in.q);
  trial.set("slc.k", in.kSlc);
  trial.set("slc.v", in.vSlc);
  trial.set("win.k", in.kWin);
}

static void checkForward(Trial &trial, const Inputs &in) {
  setTokens(trial, in);
  trial.run("compressed_and_rotated");
  trial.set("cmp.k", trial.get("whole.kc"));
  trial.set("cmp.v", trial.get("whole.vc"));
  trial.run("rotary_attention");
  for (const char *name : {"o", "lse", "q", "win.k"})
    expectSame(trial, std::string("rotary.") + name,
               std::string("whole.") + name);
  trial.run("rotate_q");
  expectSame(trial, "rotary.q", "rotated.q");
  trial.run("rotate_k");
  expectSame(trial, "rotary.slc.k", "rotated.k");
  trial.set("slc.k", in.kWin);
  trial.run("rotate_k");
  expectSame(trial, "rotary.win.k", "rotated.k");
  trial.set("q", trial.get("rotated.q"));
  trial.run("cmp");
  expectSame(trial, "rotary.o", "cmp.o");
  expectSame(trial, "rotary.lse", "cmp.lse");
}

static void checkBackward(Trial &trial, const Inputs &in) {
  const Combination &c = trial.c;
  setTokens(trial, in);
  trial.set("do", in.dout);
  trial.set("win.v", in.vWin);
  Tensor scores = trial.normal(
      {c.batch, c.kvHeads, c.sequence, (c.sequence + c.lSel - 1) / c.lSel});
  trial.set("indices_in",
            selectBlocks(scores, {c.l, c.d, c.lSel, c.count, 1, c.local, 1.0}));
  for (const char *output : {"oc", "os", "ow"})
    trial.set(output, trial.normal(in.dout.shape));
  // Any statistics will do by which no probability overflows: both forms read
  // the same ones.
  Tensor lse({c.batch, c.heads(), c.sequence});
  for (double &x : lse.data)
    x = 8.0;
  for (const char *branch : {"cmp", "slc", "win"})
    trial.set(std::string(branch) + ".lse_in", lse);
  if (c.gating == "given")
    trial.set("gates", in.gates);
  else
    trial.set("logits", trial.normal({c.batch, c.sequence, 3 * c.heads()}));
  if (c.gating != "given" && c.gateBias)
    trial.set("bias", Trial::single(trial.normal({3 * c.heads()})));
  trial.run("gated_backward_turned");
  trial.run("gated_backward");
  auto turn = [&](const std::string &what, const std::string &grad) {
    trial.set("grad." + what, trial.get(grad));
    trial.run("turn_" + what);
    expectSame(trial, "turned." + grad, "apart." + what);
  };
  turn("q", "dq");
  turn("kc", "cmp.dk");
  turn("k", "slc.dk");
  turn("k", "win.dk");
  for (const char *value : {"cmp.dv", "slc.dv", "win.dv"})
    expectSame(trial, std::string("turned.") + value, value);
}

void nsa::test::checkRotation(const Combination &given,
                              const Compile &compile) {
  Combination c = given;
  c.logits = 1.0;
  Trial trial(c, compile);
  Status status = trial.prepare(rotationEntries());
  ASSERT_TRUE(status.ok()) << c.describe() << "\n" << status.message();
  trial.set("table", rotaryTable(c.sequence, c.dk, 100.0));
  Inputs in(trial);
  checkForward(trial, in);
  checkBackward(trial, in);
}
