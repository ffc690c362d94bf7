//===- TextLimits.h - text that MLIR's parser can read ----------*- C++ -*-===//
//
// MLIR's parser recurses for every level of nesting and overflows the stack on
// text that is nested deeply enough; a few other inputs end the process as
// well. Tools look for these before they parse.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_COMPILER_TEXTLIMITS_H
#define NSA_LIB_COMPILER_TEXTLIMITS_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace nsa {

/// Levels of (), [], {} and <> at most, those inside of the aliases that a text
/// refers to included.
constexpr unsigned kMaxNesting = 256;
/// Terms at most that follow each other in one affine expression.
constexpr unsigned kMaxTerms = 4096;

/// What of the text MLIR's parser must not see, as "FILE:LINE:COLUMN: error:
/// ...", or nothing. Bytecode passes.
std::string findUnparsable(llvm::StringRef text, llvm::StringRef file);

} // namespace nsa

#endif // NSA_LIB_COMPILER_TEXTLIMITS_H
