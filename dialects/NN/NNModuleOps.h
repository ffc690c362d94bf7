//===- NNModuleOps.h - the text of whole models -----------------*- C++ -*-===//
//
// The operations that a model is written with. nsa-expand-model replaces them,
// so only what writes or expands models includes this file.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNMODULEOPS_H
#define NSA_DIALECTS_NN_NNMODULEOPS_H

#include "dialects/Interfaces/OpChecks.h"
#include "dialects/NN/NNDialect.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace nsa::nn {

/// The compute type that the model asks for, on the module that holds its
/// function: "fp32", "bf16" or "fp16".
inline constexpr llvm::StringLiteral kPrecisionAttr = "nn.precision";

inline bool isPrecision(llvm::StringRef name) {
  return name == "fp32" || name == "bf16" || name == "fp16";
}

/// Layers of a scope at most.
inline constexpr int64_t kMaxLayers = 10000;

} // namespace nsa::nn

#include "dialects/NN/NNModuleInterfaces.h.inc"

#define GET_OP_CLASSES
#include "dialects/NN/NNModuleOps.h.inc"

namespace nsa::nn {

/// The name in checkpoints of a parameter, for layer `index` if it stands in a
/// scope.
std::string getParameterName(ParameterOp parameter, int64_t index);

/// Where in a layer a parameter is used: "attention.query" of
/// `@layers::@attention.query.weight`.
llvm::StringRef getPlaceName(mlir::SymbolRefAttr parameter);

} // namespace nsa::nn

#endif // NSA_DIALECTS_NN_NNMODULEOPS_H
