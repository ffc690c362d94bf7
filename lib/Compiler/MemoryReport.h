//===- MemoryReport.h - what a planned program allocates --------*- C++ -*-===//

#ifndef NSA_LIB_COMPILER_MEMORYREPORT_H
#define NSA_LIB_COMPILER_MEMORYREPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "nsa/Compiler/Compiler.h"

namespace nsa {

/// Fills in the sizes of `report`: zeros before the plan phase.
void describeMemory(mlir::ModuleOp module, CompileReport &report);

} // namespace nsa

#endif // NSA_LIB_COMPILER_MEMORYREPORT_H
