//===- Targets.h - the targets of artefacts ---------------------*- C++ -*-===//

#ifndef NSA_ARTIFACT_TARGETS_H
#define NSA_ARTIFACT_TARGETS_H

#include <string_view>

namespace nsa::artifact {

/// `Artifact.target` of programs for NVIDIA GPUs: what compilers write and the
/// runtime runs. Later ones are better for a GPU that runs several.
constexpr std::string_view gpuTargets[] = {
    "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_103", "sm_120"};

} // namespace nsa::artifact

#endif // NSA_ARTIFACT_TARGETS_H
