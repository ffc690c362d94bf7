//===- KernelSchedule.cpp - how kernels are cut for a machine -------------===//

#include "passes/Conversion/KernelSchedule.h"

using namespace nsa;

/// The H100 has 132 multiprocessors, the H200 as many.
static constexpr int64_t kMultiprocessors = 132;

KernelSchedule KernelSchedule::get(ScheduleKind kind) {
  KernelSchedule schedule;
  if (kind == ScheduleKind::CPU)
    return schedule;
  schedule.programs = 4 * kMultiprocessors;
  schedule.mostPartialSums = schedule.programs;
  schedule.rowMultiple = 16;
  return schedule;
}
