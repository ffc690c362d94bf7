//===- Cases.h - cases of a random module -----------------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_RANDOMMODULES_CASES_H
#define NSA_TEST_UNIT_RANDOMMODULES_CASES_H

#include "test/gpu/Case.h"
#include "test/unit/RandomModules/Graph.h"

namespace nsa::test {

/// Random inputs of every entry, what the fp64 reference gives for them, and
/// how far from it the oracle lets a program be.
Result<std::vector<Case>> makeCases(const GraphModule &module, uint64_t seed);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_RANDOMMODULES_CASES_H
