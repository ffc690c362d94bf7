//===- StepProfile.h - where the time of a training step goes ---*- C++ -*-===//
//
// Collects when each command of some training steps ran and compares it with
// what the machine can do: a command takes at least its floating-point
// operations at the peak rate, and at least its bytes at the copy rate.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_STEPPROFILE_H
#define NSA_RUNTIME_TRAIN_STEPPROFILE_H

#include "nsa/Runtime/Runtime.h"
#include "runtime/CPU/MachinePeaks.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nsa {

/// All launches of one kernel, or all matmuls of one shape, in a step.
struct CommandGroup {
  /// Such as "launch @silu_n16384_f32" or "gemm 2048x512x128".
  std::string command;
  /// Where the first of them comes from.
  std::string location;
  unsigned count = 0;
  /// Per step: the medians of the commands' times, added up.
  double seconds = 0;
  uint64_t flops = 0;
  uint64_t bytes = 0;
  /// The lower bound by the peaks of the machine.
  double limitSeconds = 0;
  /// Whether arithmetic, not memory, is the limit.
  bool computeBound = false;
  /// Whether they are reductions over ranks, which run beside the others, and
  /// whether they wait for such ones.
  bool startsReduction = false, endsReduction = false;
};

/// Profiles the training steps of a program that was created with
/// RuntimeOptions::profile.
class StepProfile {
public:
  /// Steps that are not recorded, because memory is touched first in them.
  static constexpr int64_t warmUpSteps = 3;

  /// `wanted` steps of one of `ranks` ranks will be recorded. Measures what one
  /// thread and the program's threads reach, unless it runs on a GPU, whose
  /// peaks are known.
  StepProfile(int64_t wanted, int threads, std::optional<GPUPeaks> gpu,
              int ranks = 1);

  /// Called after each run of an entry. Entries other than accumulate, update
  /// and step do not count.
  void record(const Program &program, const EntryInfo &entry);

  /// Measures the processor once more, so that other work on it at one time
  /// weighs less, and keeps the better values. A GPU has no other work.
  void measureAgain();

  /// Steps recorded so far.
  int64_t steps() const { return int64_t(stepSeconds.size()); }

  /// The groups, the most expensive first.
  std::vector<CommandGroup> groups(const Program &program) const;

  /// The machine, the step and its most expensive groups, as text.
  std::string table(const Program &program) const;

  /// The recorded steps in Chrome's trace format (chrome://tracing, Perfetto):
  /// one slice per command, called after its source location. `otherData` has
  /// the machine and all groups.
  std::string trace(const Program &program) const;

private:
  struct Event {
    unsigned entry, command;
    CommandSpan span;
  };
  struct Limit {
    double seconds;
    bool computeBound;
  };

  Limit limit(const Program &program, const CommandProfile &command) const;
  double peakFlops(const Program &program, const CommandProfile &command) const;
  double medianStep() const;
  std::string describeReductions(const std::vector<CommandGroup> &list) const;
  double tokensPerStep(const Program &program) const;

  int64_t wanted;
  int ranks;
  /// Of the processor, one thread and all of them, or of the GPU.
  MachinePeaks one, all;
  std::optional<GPUPeaks> gpu;
  int64_t warmUpDone = 0;
  /// Runs of each entry in the recorded steps.
  std::map<unsigned, int64_t> runs;
  std::vector<Event> events;
  /// Where the step in progress began in `events`.
  size_t stepBegin = 0;
  std::vector<double> stepSeconds;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_STEPPROFILE_H
