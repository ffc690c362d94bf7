//===- NSASchedule.cpp - machines, and kernels cut for them ---------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/NSA/NSADialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace mlir;
using namespace nsa;

//===----------------------------------------------------------------------===//
// Machines
//===----------------------------------------------------------------------===//

LogicalResult MachineAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                  int64_t processors, int64_t mmaRows) {
  constexpr int64_t most = 1 << 16;
  if (processors < 1 || processors > most)
    return emitError() << "a machine has 1 to " << most << " processors, not "
                       << processors;
  if (mmaRows != 0 && mmaRows != 16 && mmaRows != 64)
    return emitError() << "an MMA has 16 or 64 rows, 0 stands for none, not "
                       << mmaRows;
  return success();
}

MachineAttr MachineAttr::of(Operation *op) {
  auto module = dyn_cast<ModuleOp>(op);
  if (!module)
    module = op->getParentOfType<ModuleOp>();
  if (auto own = module ? module->getAttrOfType<MachineAttr>(kMachineAttr)
                        : MachineAttr())
    return own;
  return get(op->getContext(), /*processors=*/1, /*mma_rows=*/0);
}

int64_t MachineAttr::getRowsAtOnce(int64_t width) const {
  // Fewer rows than a block has warps would leave warps without work.
  constexpr int64_t elements = 8192, fewest = 8, most = 32;
  int64_t rows = isParallel() ? elements / std::max<int64_t>(width, 1) : 0;
  return rows < fewest
             ? 1
             : std::min<int64_t>(llvm::bit_floor(uint64_t(rows)), most);
}

int64_t MachineAttr::alignQueries(int64_t queries, int64_t group,
                                  int64_t mostRows) const {
  int64_t multiple = getRowMultiple() / std::gcd(group, getRowMultiple());
  auto aligned = static_cast<int64_t>(llvm::alignTo(queries, multiple));
  return aligned * group <= mostRows ? aligned : queries;
}

int64_t MachineAttr::alignQueriesDown(int64_t queries, int64_t group,
                                      int64_t mostRows) const {
  int64_t multiple = getRowMultiple() / std::gcd(group, getRowMultiple());
  return queries >= multiple ? queries / multiple * multiple
                             : alignQueries(queries, group, mostRows);
}

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   SelectionForm form, int64_t queries,
                                   int64_t keys, int64_t selectedQueries,
                                   int64_t selectedKeys,
                                   int64_t gatheredQueries,
                                   int64_t gatheredHeads, int64_t blocks,
                                   int64_t columnParts, int64_t minBlocks,
                                   int64_t producer, int64_t spills) {
  struct Number {
    StringRef name;
    int64_t number, least, most;
  };
  // Registers and caches are the tighter limit.
  for (const Number &each :
       {Number{"queries", queries, 0, 256}, Number{"keys", keys, 0, 256},
        Number{"selected_queries", selectedQueries, 0, 256},
        Number{"selected_keys", selectedKeys, 0, 256},
        Number{"gathered_queries", gatheredQueries, 0, 256},
        Number{"gathered_heads", gatheredHeads, 0, 256},
        Number{"blocks", blocks, 0, 256},
        Number{"column_parts", columnParts, 1, 16},
        Number{"min_blocks", minBlocks, 0, 16},
        Number{"producer", producer, 0, 4}, Number{"spills", spills, 0, 256}})
    if (each.number < each.least || each.number > each.most)
      return emitError() << "`" << each.name << "` of a schedule is "
                         << each.number << ", expected " << each.least << " to "
                         << each.most;
  if (minBlocks != 0 && producer != 0)
    return emitError() << "`min_blocks` of a schedule is " << minBlocks
                       << ", which leaves no registers to a producer, but "
                          "`producer` is "
                       << producer;
  return success();
}
