//===- Executable.h - what a target makes of an artefact --------*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_EXECUTABLE_H
#define NSA_RUNTIME_CORE_EXECUTABLE_H

#include "nsa/Runtime/Runtime.h"

namespace nsa {

/// A NaN or an infinity where there must be none.
struct NonFinite {
  /// The command that wrote it, a position in the entry's list.
  size_t command;
  /// Which of the command's float outputs, and which element.
  size_t output;
  int64_t element;
  double value;
};

/// A program on a device: segments in memory and command lists that are ready
/// to run. One implementation per target.
class Executable {
public:
  virtual ~Executable() = default;

  /// The address of a segment, readable and writable by the host between runs.
  virtual void *segment(unsigned index) const = 0;

  /// Runs the commands of an entry and waits for the end. With
  /// RuntimeOptions::checkFinite it stops after the first command that wrote
  /// something else, and says what.
  virtual std::optional<NonFinite> run(unsigned entry) = 0;

  virtual uint64_t allocatedBytes() const = 0;
  virtual int threads() const = 0;
  virtual std::string gemmLibrary() const = 0;

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
