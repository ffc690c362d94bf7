//===- Checks.h - all kernels of one combination ----------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_KERNELSWEEP_CHECKS_H
#define NSA_TEST_UNIT_KERNELSWEEP_CHECKS_H

#include "test/unit/KernelSweep/Trial.h"

namespace nsa::test {

/// Runs every nsa operation of the combination, forward and backward, on
/// random inputs and compares it with the fp64 reference.
void checkAll(const Combination &c, const Compile &compile = {});

/// The same for the operations that fusion makes of them.
void checkGated(const Combination &c, const Compile &compile = {});

/// Compiles `c` and checks that attention which rotates what it loads, and what
/// it stores of gradients, gives the bits of nn.rotary and attention apart. The
/// head width of queries is even; logits are about 1 whatever `c` says.
void checkRotation(const Combination &c, const Compile &compile = {});

/// Where all keys are equal, selection takes exactly the reference's blocks:
/// beside the forced ones the lowest.
void checkTies(const Combination &c, const Compile &compile = {});

/// Gives fp32 gradients the output and the lse that forward kernels compute,
/// with scores up to about 250, 1000 and 10,000: they have at most twice the
/// error of the same formula in fp32.
void checkLargeScores(const Compile &compile = {});

/// Every gating with and without bias in turn.
Combination withGating(Combination c, size_t number);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_KERNELSWEEP_CHECKS_H
