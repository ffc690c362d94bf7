//===- NNModuleDetail.h - what the files of NNModuleOps share ---*- C++ -*-===//

#ifndef NSA_DIALECTS_NN_NNMODULEDETAIL_H
#define NSA_DIALECTS_NN_NNMODULEDETAIL_H

#include "dialects/NN/NNModuleOps.h"

namespace nsa::nn::detail {

/// "seq, _, _" for ["seq", "", ""].
mlir::ParseResult parseDims(mlir::OpAsmParser &parser, mlir::ArrayAttr &dims);
void printDims(mlir::OpAsmPrinter &printer, mlir::Operation *op,
               mlir::ArrayAttr dims);

/// "0, 2 to 5" for 0, 2, 3, 4: the end of a range is not part of it.
mlir::ParseResult parseIndices(mlir::OpAsmParser &parser,
                               mlir::DenseI64ArrayAttr &indices);
void printIndices(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                  mlir::DenseI64ArrayAttr indices);

/// One of batch, seq and nothing for each dimension.
mlir::LogicalResult verifyDims(mlir::Operation *op, const llvm::Twine &what,
                               mlir::Type type, mlir::ArrayAttr dims);

/// The model of an operation; an error unless it stands directly in a function
/// or in repeated layers.
mlir::FailureOr<ModelOp> getModel(mlir::Operation *op);

} // namespace nsa::nn::detail

#endif // NSA_DIALECTS_NN_NNMODULEDETAIL_H
