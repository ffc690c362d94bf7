//===- ModelBuilder.h - a configuration to a decoder ------------*- C++ -*-===//
//
// Builds the forward program of a decoder with Native Sparse Attention from a
// run configuration.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_FRONTEND_MODELBUILDER_H
#define NSA_LIB_FRONTEND_MODELBUILDER_H

#include "lib/Support/Config.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace nsa {

/// A module with one function `@model` from tokens and targets (i32
/// [micro_batch, seq_len]) and the parameters to `loss` and `logits`. Each
/// value's location names its place in the model, such as
/// "layers.3.attention.query". The configuration must be valid.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(mlir::MLIRContext *context,
                                             const RunConfig &config);

/// Number of trained numbers of a module that `buildModel` made.
int64_t countParameters(mlir::ModuleOp module);

} // namespace nsa

#endif // NSA_LIB_FRONTEND_MODELBUILDER_H
