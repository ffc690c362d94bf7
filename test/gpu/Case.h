//===- Case.h - what an entry of a module must give -------------*- C++ -*-===//
//
// Inputs of an entry, what the reference makes of them and how far a program
// may be from it: worked out where the compiler is, compared where it is not.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_GPU_CASE_H
#define NSA_TEST_GPU_CASE_H

#include "lib/Reference/Kernels/Tensor.h"
#include "nsa/Support/Result.h"

#include <string>
#include <vector>

namespace nsa::test {

struct CaseArgument {
  std::string name;
  /// Whether entries share it under this name.
  bool isShared = false;
  reference::Tensor value;
};

struct CaseResult {
  std::string name;
  /// The argument that it updates, or -1.
  int64_t argument = -1;
  /// The largest distance of an element; below 0 where rounding may choose
  /// other blocks, so that there is nothing to compare with.
  double tolerance = -1.0;
  reference::Tensor value;
};

struct Case {
  std::string entry;
  std::vector<CaseArgument> arguments;
  std::vector<CaseResult> results;
};

/// Elements are stored in fp32, which holds every argument exactly.
std::string writeCases(const std::vector<Case> &cases);
Result<std::vector<Case>> readCases(const std::string &bytes);

} // namespace nsa::test

#endif // NSA_TEST_GPU_CASE_H
