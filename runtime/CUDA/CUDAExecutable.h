//===- CUDAExecutable.h - programs on a GPU ---------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_CUDAEXECUTABLE_H
#define NSA_RUNTIME_CUDA_CUDAEXECUTABLE_H

#include "runtime/Core/Executable.h"

namespace nsa {

/// Makes a program ready on the GPU `options.device`. Fails when there is no
/// driver or no such GPU, when the GPU cannot run the artefact's target, when
/// memory runs out, and when the program has gemms and cuBLASLt is not found.
Result<std::unique_ptr<Executable>>
createCUDAExecutable(const Artifact &artifact, const RuntimeOptions &options);

} // namespace nsa

#endif // NSA_RUNTIME_CUDA_CUDAEXECUTABLE_H
