//===- Schedule.h - ways to cut one kernel ----------------------*- C++ -*-===//
//
// The tiles that are fastest for most shapes need too many registers or too
// much shared memory for others. So a kernel of attention has a list of
// schedules, fastest first, and takes the first one that the assembler does not
// refuse.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_SCHEDULE_H
#define NSA_PASSES_KERNELS_SCHEDULE_H

#include "passes/Kernels/KernelCut.h"
#include "llvm/ADT/SmallVector.h"

namespace nsa {

/// One way to cut a kernel. The default is what the conversions choose for the
/// machine.
struct Schedule {
  /// Reads "NAME=SIZE NAME=SIZE"; the text has to be one.
  static Schedule parse(llvm::StringRef text);

  /// The machine's sizes but for those that this one has. What a user has fixed
  /// stays.
  KernelCut applyTo(KernelCut machine) const;

  /// As it was read; empty for the default.
  std::string text;
  TileSizes sizes;
  /// Programs that share the columns of what a program computes otherwise. Each
  /// computes all scores.
  int64_t columnParts = 1;
  /// Minimum programs per multiprocessor, which limits registers; 0 for what
  /// the conversion chooses. With 1 there is no producer, and threads have all
  /// registers.
  int64_t minBlocks = 0;
  /// Bytes of spill stores and loads per thread that are accepted: for the
  /// widest heads a few spills cost less than more programs that share columns.
  int64_t spills = 0;
};

/// Kernels that have a list of their own.
enum class ScheduledKernel {
  Forward,
  RotaryForward,
  QueryGrad,
  KeyValueGrad,
  MaskedForward,
  MaskedQueryGrad,
  MaskedKeyValueGrad,
  ListForward,
  ListQueryGrad,
  ListKeyValueGrad,
  GatheredForward,
  GatheredQueryGrad,
  Select,
};

/// The schedules of a kernel for heads in groups of `group` whose wider side
/// has `width` elements, in the order of predicted time. The last ones are for
/// any shape.
llvm::SmallVector<Schedule> getSchedules(ScheduledKernel kernel, int64_t width,
                                         int64_t group,
                                         const KernelCut &machine);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_SCHEDULE_H
