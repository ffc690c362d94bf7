//===- Peaks.h - what a GPU does at best ------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_PEAKS_H
#define NSA_RUNTIME_CUDA_PEAKS_H

#include "nsa/Runtime/Runtime.h"
#include "runtime/CUDA/GPU.h"

namespace nsa::cuda {

/// Times a copy on the GPU and large matmuls of cuBLASLt, which `library`
/// names as for BlasLt::open; the best of several rounds.
Result<GPUPeaks> measurePeaks(const GPU &gpu, const std::string &library);

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_PEAKS_H
