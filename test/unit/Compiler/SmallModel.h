//===- SmallModel.h - the text of a small model -----------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_COMPILER_SMALLMODEL_H
#define NSA_TEST_UNIT_COMPILER_SMALLMODEL_H

#include <cstdint>
#include <string>
#include <vector>

namespace nsa::test {

/// NSA_TEST_SEED if that is set, else a random number; printed once.
uint64_t testSeed();

/// The text of a two-layer model of 70 tokens, two sequences at a time, whose
/// configuration `overrides` change, as in "nsa.phi=linear". Wrong overrides
/// are a failure of the test.
std::string modelText(const std::vector<std::string> &overrides);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_COMPILER_SMALLMODEL_H
