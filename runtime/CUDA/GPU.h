//===- GPU.h - one GPU of this machine --------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_GPU_H
#define NSA_RUNTIME_CUDA_GPU_H

#include "runtime/CUDA/Driver.h"

#include <memory>
#include <string>
#include <vector>

namespace nsa::cuda {

/// A GPU with a stream for the commands of one program.
class GPU {
public:
  /// What code is for: "sm_90a", and whether it is PTX, which the driver
  /// compiles, or machine code.
  struct Target {
    std::string name;
    bool isText = false;
  };

  /// Opens GPU `number`. Fails when there is no driver or no such GPU, and when
  /// it can run none of the `forms` of a program's code, which are for targets
  /// of one name.
  static Result<std::unique_ptr<GPU>> open(int number,
                                           const std::vector<Target> &forms);
  ~GPU();

  /// The best of the targets that artefacts can have for GPU `number`: machine
  /// code for it, or for an older one of its generation, else text. Fails when
  /// it is older than all of them.
  static Result<Target> findTarget(int number);

  /// Bytes of memory that GPU `number` has.
  static Result<uint64_t> memory(int number);

  /// The first of the forms that it runs.
  const Target &target() const { return chosen; }

  const Driver &driver() const { return *functions; }
  Stream stream() const { return commands; }

  /// Makes it current in the calling thread.
  void makeCurrent() const { functions->CtxSetCurrent(context); }

  /// Waits for all that was put on the stream.
  Status wait() const;

  /// "NVIDIA H100 80GB HBM3, CUDA 12.8".
  const std::string &description() const { return text; }

  /// Bytes of its memory that have come into use since `open` gave a context,
  /// by this program and all others.
  uint64_t usedBytes() const;

private:
  friend class CurrentGPU;

  GPU() = default;
  Status choose(int number, const std::vector<Target> &forms);
  Status start();
  uint64_t freeBytes() const;

  const Driver *functions = nullptr;
  Device device = 0;
  Context context = nullptr;
  Stream commands = nullptr;
  std::string text;
  Target chosen;
  uint64_t freeAtStart = 0;
};

/// Lets the calling thread use a GPU for a while. Others in the process may use
/// another one on this thread, and find it again.
class CurrentGPU {
public:
  explicit CurrentGPU(const GPU &gpu) : gpu(gpu) {
    gpu.functions->CtxGetCurrent(&before);
    if (before != gpu.context)
      gpu.makeCurrent();
  }
  ~CurrentGPU() {
    if (before && before != gpu.context)
      gpu.functions->CtxSetCurrent(before);
  }
  CurrentGPU(const CurrentGPU &) = delete;
  CurrentGPU &operator=(const CurrentGPU &) = delete;

private:
  const GPU &gpu;
  Context before = nullptr;
};

/// Host memory that the GPU copies from and to while the host goes on.
class PinnedMemory {
public:
  /// `bytes` zeros; must not outlive the GPU.
  static Result<PinnedMemory> allocate(const GPU &gpu, uint64_t bytes);

  PinnedMemory() = default;
  PinnedMemory(PinnedMemory &&other) noexcept;
  PinnedMemory &operator=(PinnedMemory &&other) noexcept;
  ~PinnedMemory();

  char *data() const { return address; }

private:
  const GPU *gpu = nullptr;
  char *address = nullptr;
};

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_GPU_H
