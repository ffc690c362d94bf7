//===- Targets.cpp - the targets of this build ----------------------------===//

#include "nsa/Artifact/Targets.h"
#include "lib/Support/Text.h"
#include "runtime/CPU/CPUExecutable.h"
#include "runtime/CUDA/CUDAExecutable.h"
#include "runtime/Core/Executable.h"

using namespace nsa;

Result<std::unique_ptr<Executable>>
nsa::createExecutable(const Artifact &artifact, const RuntimeOptions &options) {
  std::string wanted = artifact->target()->str();
  if (wanted == artifact::cpuTarget)
    return createCPUExecutable(artifact, options);
  std::string known = artifact::cpuTarget;
  for (std::string_view target : artifact::gpuTargets) {
    if (wanted == target)
      return createCUDAExecutable(artifact, options);
    known += ", " + std::string(target);
  }
  return Error{"is for the target " + quote(wanted) +
               ", this runtime has: " + known};
}
