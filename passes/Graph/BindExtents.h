//===- BindExtents.h - numbers in place of `?` ------------------*- C++ -*-===//

#ifndef NSA_PASSES_GRAPH_BINDEXTENTS_H
#define NSA_PASSES_GRAPH_BINDEXTENTS_H

#include "mlir/IR/BuiltinOps.h"

namespace nsa {

/// Puts numbers in place of `?` in the types of functions' arguments and of
/// what follows from them, and the attribute `nsa.extents` on the module, which
/// says what they stand for. In an argument, `?` is the batch in the first
/// dimension and the length of sequences in another one, or what `nn.dims`
/// calls it; of compressed keys and values, the number of their blocks; of a
/// table of angles, the length. Reports `?` elsewhere, and tables of a number
/// of positions for any length. The module need not be verified before, and is
/// afterwards.
llvm::LogicalResult bindExtents(mlir::ModuleOp module);

} // namespace nsa

#endif // NSA_PASSES_GRAPH_BINDEXTENTS_H
