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
  // What tensor cores multiply: 16 rows or elements of a sum, 8 columns. Four
  // warps have 16 rows each.
  schedule.rowMultiple = 16;
  schedule.leastRows = 64;
  schedule.tileMultiple = 16;
  schedule.columnMultiple = 8;
  schedule.processors = kMultiprocessors;
  schedule.isWide = true;
  return schedule;
}
