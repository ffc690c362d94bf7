//===- NNAttributes.h - names and roles of a program's tensors --*- C++ -*-===//
//
// The attributes of function arguments and results through which the passes,
// the artefact and the runtime know the tensors of a program. Every reader and
// writer of them goes through the functions here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNATTRIBUTES_H
#define NSA_DIALECTS_NN_NNATTRIBUTES_H

#include "dialects/Interfaces/OpChecks.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

#include "dialects/NN/NNEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/NN/NNAttributes.h.inc"

namespace nsa::nn {

inline constexpr llvm::StringLiteral kNameAttr = "nn.name";
inline constexpr llvm::StringLiteral kRoleAttr = "nn.role";
inline constexpr llvm::StringLiteral kInitAttr = "nn.init";
inline constexpr llvm::StringLiteral kDecayAttr = "nn.decay";
inline constexpr llvm::StringLiteral kOptimizerAttr = "nn.optimizer";
inline constexpr llvm::StringLiteral kStateAttr = "nn.state";
inline constexpr llvm::StringLiteral kDimsAttr = "nn.dims";
inline constexpr llvm::StringLiteral kDifferentiateAttr = "nn.differentiate";
inline constexpr llvm::StringLiteral kSeedAttr = "nn.seed";
inline constexpr llvm::StringLiteral kAliasAttr = "nn.alias";
inline constexpr llvm::StringLiteral kObjectiveAttr = "nn.objective";
inline constexpr llvm::StringLiteral kKeptAttr = "nn.kept";
inline constexpr llvm::StringLiteral kStatisticAttr = "nn.statistic";
inline constexpr llvm::StringLiteral kTrainAttr = "nn.train";
inline constexpr llvm::StringLiteral kConfigAttr = "nn.config";

/// Names in `nn.dims` of the dimensions that a specialisation may change.
inline constexpr llvm::StringLiteral kBatchDim = "batch";
inline constexpr llvm::StringLiteral kSequenceDim = "seq";

/// Arguments. `index` is less than the number of arguments.
/// The name, or an empty string.
llvm::StringRef getArgumentName(mlir::FunctionOpInterface function,
                                unsigned index);
std::optional<ArgumentRole> getArgumentRole(mlir::FunctionOpInterface function,
                                            unsigned index);
/// Whether a rotary table of `pairs` pairs may start from `rotary`, which may
/// be null.
llvm::LogicalResult
checkRotary(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
            RotaryAttr rotary, int64_t pairs);
/// The initial value, or null.
InitAttr getArgumentInit(mlir::FunctionOpInterface function, unsigned index);
/// Whether weight decay applies to the parameter.
bool hasDecay(mlir::FunctionOpInterface function, unsigned index);
/// The optimizer of the parameter, if it is not that of the program.
llvm::StringRef getArgumentOptimizer(mlir::FunctionOpInterface function,
                                     unsigned index);
/// What the optimizer calls the state that the argument is, such as "m"; an
/// empty string if it is none of the optimizer's.
llvm::StringRef getArgumentState(mlir::FunctionOpInterface function,
                                 unsigned index);
/// One entry for each dimension ("batch", "seq" or ""); empty if not given.
llvm::SmallVector<llvm::StringRef>
getArgumentDims(mlir::FunctionOpInterface function, unsigned index);
/// Whether the argument is the gradient of the objective, which is 1 without.
bool isSeed(mlir::FunctionOpInterface function, unsigned index);
/// The argument of this name.
std::optional<unsigned> findArgument(mlir::FunctionOpInterface function,
                                     llvm::StringRef name);

/// Results. `index` is less than the number of results.
/// The name, or an empty string.
llvm::StringRef getResultName(mlir::FunctionOpInterface function,
                              unsigned index);
/// The argument that the result updates in place, or an empty string.
llvm::StringRef getResultAlias(mlir::FunctionOpInterface function,
                               unsigned index);
/// Whether the result is the value to differentiate.
bool isObjective(mlir::FunctionOpInterface function, unsigned index);
void setObjective(mlir::FunctionOpInterface function, unsigned index);
/// Whether the result is for people: evaluation computes it, training does not.
bool isStatistic(mlir::FunctionOpInterface function, unsigned index);
/// The result of this name.
std::optional<unsigned> findResult(mlir::FunctionOpInterface function,
                                   llvm::StringRef name);

/// Whether the function is the model to train.
bool isTrainable(mlir::FunctionOpInterface function);

} // namespace nsa::nn

#endif // NSA_DIALECTS_NN_NNATTRIBUTES_H
