//===- FiniteCheck.h - NaNs and infinities in results -----------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_FINITECHECK_H
#define NSA_RUNTIME_CPU_FINITECHECK_H

#include "nsa/Artifact/Artifact.h"
#include "runtime/Core/Describe.h"
#include "runtime/Core/Executable.h"

#include <optional>
#include <vector>

namespace nsa {

/// A float array that a command writes.
struct FloatOutput : WrittenArray {
  bool allowMinusInfinity;
};

/// Fails for programs whose kernels do not say what their arguments are.
Status canCheckResults(const artifact::Artifact &root);

/// The float arrays that a command of such a program computes; a copy computes
/// none.
std::vector<FloatOutput> floatOutputs(const artifact::Artifact &root,
                                      const artifact::Command &command);

/// The first element of output `output` of command `command` that is not
/// finite. `data` holds what is in its slice.
std::optional<NonFinite> findNonFinite(size_t command, size_t output,
                                       const FloatOutput &array,
                                       const void *data);

} // namespace nsa

#endif // NSA_RUNTIME_CPU_FINITECHECK_H
