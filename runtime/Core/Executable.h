//===- Executable.h - what a target makes of an artefact --------*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_EXECUTABLE_H
#define NSA_RUNTIME_CORE_EXECUTABLE_H

#include "nsa/Runtime/Runtime.h"
#include "runtime/Core/Bindings.h"

#include <optional>
#include <variant>

namespace nsa {

/// A non-finite value where there must be none.
struct NonFinite {
  /// The command that wrote it, a position in the entry's list.
  size_t command;
  /// Which of the command's float outputs, and which element.
  size_t output;
  int64_t element;
  double value;
};

/// Why a run failed.
struct RunFailure {
  /// The command that could not run; none if that is not known.
  std::optional<size_t> command;
  std::string message;
};

/// What stopped a run; nothing if it reached its end.
using RunResult = std::variant<std::monostate, NonFinite, RunFailure>;

/// A program on a device: segments in memory and command lists that are ready
/// to run. One implementation per target.
class Executable {
public:
  virtual ~Executable() = default;

  /// The address of a segment, readable and writable by the host between runs.
  /// Where the device has memory of its own it is the host's copy, which
  /// `upload` and `download` bring into line; null for segments that hold no
  /// named tensors.
  virtual void *segment(unsigned index) const = 0;

  /// Copies a slice of a segment to the device, or from there.
  virtual Status upload(const artifact::Slice &slice) = 0;
  virtual Status download(const artifact::Slice &slice) = 0;

  /// See Program::pinHost.
  virtual Status pinHost() { return {}; }

  /// Puts memory of the caller in the place of the entry's tensors, until other
  /// bindings or none take its place. It lies on the program's device, and
  /// `upload` and `download` do not know it.
  virtual Status bind(unsigned entry, const Bindings &bindings) = 0;

  /// On a GPU: what is started from now on waits for what the caller's stream
  /// has by now, or the stream for what was started. A stream is the driver's
  /// handle; 0 stands for the default one.
  virtual Status waitFor(uint64_t) { return {}; }
  virtual Status release(uint64_t) { return {}; }

  /// Hands the commands of an entry to the device, with what its inputs hold
  /// now, and need not wait for them. With RuntimeOptions::checkFinite it stops
  /// after the first command that wrote something else, and before one that
  /// selects blocks which its tokens may not read, and says what.
  virtual RunResult start(unsigned entry) = 0;

  /// Waits for all that was started and brings back the entry's outputs of the
  /// role output.
  virtual RunResult finish(unsigned entry) = 0;

  /// Whether `enqueue` may take the place of `waitFor`, `start` and `release`:
  /// the program has no memory of its own, and nothing looks at its runs.
  virtual bool canEnqueue() const { return false; }
  /// Puts the commands of an entry on a stream of the caller.
  virtual RunResult enqueue(unsigned, uint64_t) { return {}; }

  /// Bytes allocated for the segments.
  virtual uint64_t allocatedBytes() const = 0;
  /// Bytes of the device in use since the program got there; 0 if unknown.
  virtual uint64_t deviceBytesInUse() const { return 0; }
  /// Bytes of the device that the connections to other ranks took.
  virtual uint64_t connectionBytes() const { return 0; }
  /// Peak rates of the GPU; nothing on other devices.
  virtual Result<std::optional<GPUPeaks>> measureGPU() {
    return std::optional<GPUPeaks>();
  }
  virtual int threads() const = 0;
  /// The GPU and its driver; empty on the CPU.
  virtual std::string gpuName() const { return ""; }
  virtual std::string gemmLibrary() const = 0;
  /// What reduces over ranks on a GPU; empty elsewhere and for one rank.
  virtual std::string reductionLibrary() const { return ""; }
  /// Seconds that a GPU's commands have waited for other ranks so far.
  virtual double waitedSeconds() const { return 0; }

  /// Nanoseconds per command of an entry, summed over all runs.
  virtual const std::vector<uint64_t> &nanoseconds(unsigned entry) const = 0;

  /// When each command of an entry last ran.
  virtual const std::vector<CommandSpan> &lastRun(unsigned entry) const = 0;
};

/// Makes the executable for the artefact's target, or says which targets there
/// are.
Result<std::unique_ptr<Executable>>
createExecutable(const Artifact &artifact, const RuntimeOptions &options);

} // namespace nsa

#endif // NSA_RUNTIME_CORE_EXECUTABLE_H
