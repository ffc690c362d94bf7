//===- KernelSchedule.cpp - how kernels are cut for a machine -------------===//

#include "passes/Conversion/KernelSchedule.h"
#include "llvm/ADT/bit.h"

using namespace nsa;

/// The H100 has 132 multiprocessors, the H200 as many.
static constexpr int64_t kMultiprocessors = 132;

int64_t KernelSchedule::getRowsAtOnce(int64_t width) const {
  // Fewer rows than a block has warps would leave warps without work.
  constexpr int64_t fewest = 8, most = 32;
  int64_t rows = elementsAtOnce / std::max<int64_t>(width, 1);
  return rows < fewest
             ? 1
             : std::min<int64_t>(llvm::bit_floor(uint64_t(rows)), most);
}

KernelSchedule KernelSchedule::get(ScheduleKind kind) {
  KernelSchedule schedule;
  if (kind == ScheduleKind::CPU)
    return schedule;
  schedule.programs = 4 * kMultiprocessors;
  // 16 elements, in pieces of 16 bytes, for each of 256 threads.
  schedule.elementsPerProgram = schedule.elementsPerTile = 4096;
  schedule.elementsAtOnce = 8192;
  schedule.sumColumns = 64;
  schedule.sumRows = 16;
  schedule.scatterElements = int64_t(1) << 25;
  schedule.mostPartialSums = schedule.programs;
  // What tensor cores multiply: 16 rows or elements of a sum, 8 columns.
  schedule.rowMultiple = 16;
  schedule.tileMultiple = 16;
  schedule.columnMultiple = 8;
  schedule.processors = kMultiprocessors;
  schedule.isWide = true;
  if (kind == ScheduleKind::Hopper)
    schedule.productRows = 64;
  return schedule;
}
