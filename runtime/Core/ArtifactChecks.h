//===- ArtifactChecks.h - the meaning of an artefact ------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_ARTIFACTCHECKS_H
#define NSA_RUNTIME_CORE_ARTIFACTCHECKS_H

#include "nsa/Artifact/DataType.h"
#include "nsa/Support/Result.h"

namespace nsa {

/// Checks what the FlatBuffers verifier cannot know: every index is in range,
/// every slice lies in its segment and has the size of what it holds, names are
/// unique and printable, enumerations hold known values. `root` must have
/// passed the verifier. The error names the first thing that is wrong.
Status checkArtifact(const artifact::Artifact &root);

} // namespace nsa

#endif // NSA_RUNTIME_CORE_ARTIFACTCHECKS_H
