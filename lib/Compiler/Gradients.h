//===- Gradients.h - which gradients a compilation was asked for -*- C++
//-*-===//

#ifndef NSA_LIB_COMPILER_GRADIENTS_H
#define NSA_LIB_COMPILER_GRADIENTS_H

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace nsa {

/// Marks the arguments of these names with `nn.differentiate`, in every
/// function that has one of them, and, where no result is the objective, the
/// first floating-point result with `nn.objective`. Both get the name that the
/// artefact would give them (arg0, result0) if they have none. A name that no
/// function has, and a function without such a result, are errors.
llvm::LogicalResult markGradients(mlir::ModuleOp module,
                                  llvm::ArrayRef<std::string> names);

} // namespace nsa

#endif // NSA_LIB_COMPILER_GRADIENTS_H
