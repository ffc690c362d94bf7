//===- ModelBuilder.h - a configuration to a decoder ------------*- C++ -*-===//
//
// Builds the text of a decoder with Native Sparse Attention from a run
// configuration.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_FRONTEND_MODELBUILDER_H
#define NSA_LIB_FRONTEND_MODELBUILDER_H

#include "lib/Support/Config.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace nsa {

/// A module with one `nn.module`: parameters, the layers, a function for each
/// of their parts, and one to train from tokens and targets (i32 [micro_batch,
/// seq_len]) to `loss` and `logits`. The configuration must be valid. `name` is
/// the model's symbol.
mlir::OwningOpRef<mlir::ModuleOp> buildModel(mlir::MLIRContext *context,
                                             const RunConfig &config,
                                             llvm::StringRef name = "model");

/// The sections of the configuration that say what the model computes.
mlir::DictionaryAttr getModelConfig(mlir::MLIRContext *context,
                                    RunConfig config);

/// The text of a module that `buildModel` made: types have short names, lines
/// at most 140 columns.
std::string printModel(mlir::ModuleOp module);

} // namespace nsa

#endif // NSA_LIB_FRONTEND_MODELBUILDER_H
