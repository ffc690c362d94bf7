//===- LaunchOverlap.h - launches that begin early --------------*- C++ -*-===//

#ifndef NSA_DIALECTS_INTERFACES_LAUNCHOVERLAP_H
#define NSA_DIALECTS_INTERFACES_LAUNCHOVERLAP_H

#include "llvm/ADT/StringRef.h"

namespace nsa {

/// Attribute of a kernel, an array<i64> of arguments in ascending order: a
/// launch may begin while the one before it runs (programmatic dependent launch
/// of Hopper GPUs). Until all before it have ended, it reads these arguments
/// only, which nothing in its entry writes, or only launches that have ended
/// when it begins: those before one that has `kLateDependentsAttr`.
inline constexpr llvm::StringLiteral kLaunchOverlapAttr = "nsa.launch_overlap";

/// Attribute of a kernel: the launch after it begins when those before it have
/// ended, not at once. It then need not wait for what these wrote.
inline constexpr llvm::StringLiteral kLateDependentsAttr =
    "nsa.late_dependents";

/// Attribute of a kernel, an array<i64> of an argument, its first byte and the
/// number of bytes, for each range that the kernel or a later launch reads and
/// that is to come to the cache of the GPU as soon as the kernel begins.
inline constexpr llvm::StringLiteral kPrefetchAttr = "nsa.prefetch";

} // namespace nsa

#endif // NSA_DIALECTS_INTERFACES_LAUNCHOVERLAP_H
