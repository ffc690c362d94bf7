//===- NSASpellings.h - clauses of nsa ops ----------------------*- C++ -*-===//
//
// What the assembly formats of nsa ops call. Each clause is printed in one way;
// the parameters of its attributes, in a dictionary, are read too.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NSA_NSASPELLINGS_H
#define NSA_DIALECTS_NSA_NSASPELLINGS_H

#include "dialects/NSA/NSAOps.h"

namespace nsa {

/// `by(#nsa.compressed<block = 8, stride = 4>)` and other attributes.
mlir::ParseResult parseBlocks(mlir::OpAsmParser &parser,
                              CompressedAttr &compressed,
                              mlir::NamedAttrList &attributes);
void printBlocks(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                 CompressedAttr compressed, mlir::DictionaryAttr attributes);

/// `by(#nsa.compressed<...>, #nsa.selected<...>)` and other attributes.
mlir::ParseResult parseSelection(mlir::OpAsmParser &parser,
                                 CompressedAttr &compressed,
                                 SelectedAttr &selected,
                                 mlir::NamedAttrList &attributes);
void printSelection(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                    CompressedAttr compressed, SelectedAttr selected,
                    mlir::DictionaryAttr attributes);

/// The types of `nsa.select`: `query, key -> indices`, or those of a function.
mlir::ParseResult parseSelectionTypes(mlir::OpAsmParser &parser,
                                      mlir::Type &query, mlir::Type &key,
                                      mlir::Type &lse, mlir::Type &indices);
void printSelectionTypes(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                         mlir::Type query, mlir::Type key, mlir::Type lse,
                         mlir::Type indices);

} // namespace nsa

#endif // NSA_DIALECTS_NSA_NSASPELLINGS_H
