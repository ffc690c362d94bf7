//===- Targets.cpp - the targets of this build ----------------------------===//

#include "runtime/CPU/CPUExecutable.h"
#include "runtime/CUDA/CUDAExecutable.h"
#include "runtime/Core/Executable.h"

using namespace nsa;

namespace {
struct Target {
  const char *name;
  Result<std::unique_ptr<Executable>> (*create)(const Artifact &artifact,
                                                const RuntimeOptions &options);
};
} // namespace

static const Target targets[] = {
    {artifact::cpuTarget, createCPUExecutable},
    {"sm_80", createCUDAExecutable},
    {"sm_86", createCUDAExecutable},
    {"sm_90a", createCUDAExecutable},
};

Result<std::unique_ptr<Executable>>
nsa::createExecutable(const Artifact &artifact, const RuntimeOptions &options) {
  std::string wanted = artifact->target()->str();
  std::string known;
  for (const Target &target : targets) {
    if (wanted == target.name)
      return target.create(artifact, options);
    known += (known.empty() ? "" : ", ") + std::string(target.name);
  }
  return Error{"is for the target '" + wanted +
               "', this runtime has: " + known};
}
