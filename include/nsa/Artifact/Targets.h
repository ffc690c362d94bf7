//===- Targets.h - the targets of artefacts ---------------------*- C++ -*-===//

#ifndef NSA_ARTIFACT_TARGETS_H
#define NSA_ARTIFACT_TARGETS_H

#include <string_view>

namespace nsa::artifact {

/// `Artifact.target` of programs for NVIDIA GPUs: what compilers write and the
/// runtime runs.
constexpr std::string_view gpuTargets[] = {"sm_80", "sm_86", "sm_90a"};

} // namespace nsa::artifact

#endif // NSA_ARTIFACT_TARGETS_H
