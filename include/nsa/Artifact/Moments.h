//===- Moments.h - names of the optimizer's moments -------------*- C++ -*-===//
//
// What the compiler calls the moments of a program, and the trainer looks for:
// those of parameter `w` are `m.w` and `v.w`. Where ranks share them
// (nsa-compile --shard-optimizer), a rank's part of the moments of all
// parameters with weight decay is one tensor, and that of the others another.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_ARTIFACT_MOMENTS_H
#define NSA_ARTIFACT_MOMENTS_H

namespace nsa::artifact {

inline constexpr const char moment1Prefix[] = "m.";
inline constexpr const char moment2Prefix[] = "v.";
/// Take the place of a parameter's name.
inline constexpr const char sharedDecayed[] = "decayed";
inline constexpr const char sharedOthers[] = "others";

} // namespace nsa::artifact

#endif // NSA_ARTIFACT_MOMENTS_H
