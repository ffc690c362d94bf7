//===- Source.h - the module that is compiled -------------------*- C++ -*-===//

#ifndef NSA_LIB_COMPILER_SOURCE_H
#define NSA_LIB_COMPILER_SOURCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace llvm {
class SourceMgr;
} // namespace llvm

namespace nsa {

/// Parses the main file, text or bytecode; null, with a diagnostic, if it is no
/// module. An operation that the text gives a name instead of a location,
/// `loc("layers.0.mlp")`, has both: the name at its position in the file.
mlir::OwningOpRef<mlir::ModuleOp> parseModule(const llvm::SourceMgr &sources,
                                              mlir::MLIRContext *context);

} // namespace nsa

#endif // NSA_LIB_COMPILER_SOURCE_H
