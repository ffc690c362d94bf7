//===- LaunchOverlap.h - launches that begin early --------------*- C++ -*-===//

#ifndef NSA_ARTIFACT_LAUNCHOVERLAP_H
#define NSA_ARTIFACT_LAUNCHOVERLAP_H

namespace nsa::artifact {

/// Option of an artefact for a GPU: the entry whose kernels wait on the GPU for
/// the launches before theirs, so that each may begin while these end
/// (programmatic dependent launch).
inline constexpr const char overlappedEntryOption[] = "overlapped-entry";

} // namespace nsa::artifact

#endif // NSA_ARTIFACT_LAUNCHOVERLAP_H
