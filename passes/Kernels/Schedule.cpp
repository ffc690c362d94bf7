//===- Schedule.cpp - how one kernel is cut -------------------------------===//

#include "passes/Kernels/Schedule.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace nsa;

KernelCut::KernelCut(MachineAttr machine, ScheduleAttr sizes)
    : MachineAttr(machine), sizes(sizes) {
  if (!sizes)
    this->sizes = ScheduleAttr::get(machine.getContext(), SelectionForm::Lists,
                                    0, 0, 0, 0, 0, 0, 0, /*column_parts=*/1,
                                    /*min_blocks=*/0, /*producer=*/0,
                                    /*spills=*/0);
}

ArrayAttr nsa::getSchedules(Operation *op, AttentionKernel kernel) {
  for (Operation *each : {op, op->getParentOfType<ModuleOp>().getOperation()})
    if (auto lists = each->getAttrOfType<DictionaryAttr>(kSchedulesAttr))
      if (auto own = lists.getAs<ArrayAttr>(stringifyAttentionKernel(kernel)))
        return own;
  return {};
}
