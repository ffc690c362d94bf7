//===- Report.h - what the commands of a program do -------------*- C++ -*-===//

#ifndef NSA_LIB_COMPILER_REPORT_H
#define NSA_LIB_COMPILER_REPORT_H

#include "lib/Compiler/LayerMap.h"
#include "nsa/Compiler/Compiler.h"

namespace nsa {

/// One description for each command of each entry, in order. Empty before the
/// buffer phase.
std::vector<CommandReport> describeCommands(mlir::ModuleOp module,
                                            const LayerMap &layers);

} // namespace nsa

#endif // NSA_LIB_COMPILER_REPORT_H
