//===- Commands.h - commands with their addresses on a GPU ------*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_COMMANDS_H
#define NSA_RUNTIME_CUDA_COMMANDS_H

#include "nsa/Artifact/DataType.h"
#include "runtime/CUDA/BlasLt.h"
#include "runtime/Core/Parts.h"

#include <array>
#include <variant>
#include <vector>

namespace nsa::artifact {
struct Kernel;
struct Tensor;
} // namespace nsa::artifact

namespace nsa::cuda {

struct LaunchKernel {
  Function function;
  std::array<unsigned, 3> grid;
  unsigned threads, sharedBytes;
  /// Whether it may begin while the command before it, a launch, ends.
  bool beginsEarly = false;
  std::vector<DevicePtr> arguments;
  /// Parameters after the arguments, and the extents of the call after these
  /// if the kernel takes them.
  std::vector<TensorMap> maps;
  std::vector<uint64_t> extents;
};

/// A matmul that BlasLt has planned.
struct RunGemm {
  unsigned plan;
  MatmulMemory memory;
};

/// `count` elements of `width` bytes with the bits `pattern`.
struct FillMemory {
  DevicePtr out;
  unsigned width;
  uint32_t pattern;
  uint64_t count;
};

struct CopyMemory {
  DevicePtr source, out;
  std::vector<CopyBytes> ranges;
  /// Whether `source` is an address of the host.
  bool isUpload = false;
};

struct InitializeTensor {
  const artifact::Tensor *tensor;
};

/// The beginning of a reduction over ranks, and its end: one of those that an
/// entry waits for with nothing computed in between, from number `first` on.
struct StartReduction {
  unsigned number;
};
struct FinishReduction {
  unsigned number, first;
  bool isLast;
};

/// Nothing: a reduction over one rank or grouped with the next, or a launch
/// without programs.
struct PassOver {};

using Command =
    std::variant<LaunchKernel, RunGemm, FillMemory, CopyMemory,
                 InitializeTensor, StartReduction, FinishReduction, PassOver>;

/// An address in a command that follows from memory of the caller: it lies
/// `offset` bytes past the beginning of a range of the bindings.
struct Relocation {
  DevicePtr *address;
  size_t range;
  uint64_t offset;
};

/// The command that gives `bytes` bytes of elements of `type` a value. Fails
/// for a 64-bit value that is not the same 32 bits twice.
Result<Command> makeFill(DataType type, double value, DevicePtr out,
                         uint64_t bytes);

/// Writes the tensor maps of a launch of `kernel` on `arguments` to `maps`, of
/// which there are as many as the kernel has. Fails where the driver has none.
Status encodeTensorMaps(const Driver &driver, const artifact::Kernel &kernel,
                        const std::vector<DevicePtr> &arguments,
                        std::vector<TensorMap> &maps);

/// Puts a launch, fill or copy on the stream, and nothing for PassOver.
Status issueCommand(const Driver &driver, const Command &command,
                    Stream stream);

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_COMMANDS_H
