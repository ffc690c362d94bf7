//===- KernelChecks.h - the arguments of a kernel ---------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_KERNELCHECKS_H
#define NSA_RUNTIME_CORE_KERNELCHECKS_H

#include "nsa/Artifact/DataType.h"
#include "nsa/Support/Result.h"

#include <cstdint>

namespace nsa {

/// Whether the elements of a vector lie at addresses that suit them. The
/// verifier of FlatBuffers knows what alignment the length of a vector needs,
/// but not what its elements need: 8 bytes for all that ask.
template <typename T>
bool isAligned(const flatbuffers::Vector<T> &vector) {
  auto address = reinterpret_cast<uintptr_t>(vector.Data());
  return vector.size() == 0 || address % alignof(uint64_t) == 0;
}

/// Checks what a kernel says of its arguments: their types and sizes, the rows
/// and the tensor maps of some, which a processor has no use for.
Status checkArguments(const artifact::Kernel &kernel, bool isCPU);

/// Bytes of which the address of an operand of a launch is a multiple, for a
/// kernel that has passed the checks.
uint64_t operandAlignment(const artifact::Kernel &kernel, unsigned argument);

} // namespace nsa

#endif // NSA_RUNTIME_CORE_KERNELCHECKS_H
