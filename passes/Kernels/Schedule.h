//===- Schedule.h - how one kernel is cut -----------------------*- C++ -*-===//
//
// The tiles that are fastest for most shapes need too many registers or too
// much shared memory for others. So a kernel of attention has a list of
// schedules, fastest first, and takes the first one that the assembler does not
// refuse.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_SCHEDULE_H
#define NSA_PASSES_KERNELS_SCHEDULE_H

#include "dialects/NSA/NSADialect.h"
#include "mlir/IR/Operation.h"

namespace nsa {

/// A machine, and how a kernel is cut for it.
struct KernelCut : MachineAttr {
  /// Without `sizes`, as the conversions choose.
  KernelCut(MachineAttr machine, ScheduleAttr sizes = {});

  ScheduleAttr sizes;
};

/// What `nsa.schedules` of an operation, or else of its module, says of a
/// kernel; null if nothing.
mlir::ArrayAttr getSchedules(mlir::Operation *op, AttentionKernel kernel);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_SCHEDULE_H
