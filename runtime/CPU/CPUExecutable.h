//===- CPUExecutable.h - programs on the processor --------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_CPUEXECUTABLE_H
#define NSA_RUNTIME_CPU_CPUEXECUTABLE_H

#include "runtime/Core/Executable.h"

#include <set>
#include <string>

namespace nsa {

/// Makes an artefact of the target "cpu" ready. See Program::create.
Result<std::unique_ptr<Executable>>
createCPUExecutable(const Artifact &artifact, const RuntimeOptions &options);

/// Checks that a processor with these flags (see CPUFeatures.h) has all that
/// the artefact's code may use. The error lists what is missing.
Status checkProcessor(const artifact::Artifact &root,
                      const std::set<std::string> &flags);

} // namespace nsa

#endif // NSA_RUNTIME_CPU_CPUEXECUTABLE_H
