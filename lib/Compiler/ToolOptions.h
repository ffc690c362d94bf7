//===- ToolOptions.h - what --help of a tool shows --------------*- C++ -*-===//

#ifndef NSA_LIB_COMPILER_TOOLOPTIONS_H
#define NSA_LIB_COMPILER_TOOLOPTIONS_H

namespace nsa {

/// Moves the hundreds of options that LLVM's libraries register for themselves
/// from --help to --help-hidden: they do nothing in a tool for MLIR. To be
/// called before the tool registers its own.
void hideForeignOptions();

} // namespace nsa

#endif // NSA_LIB_COMPILER_TOOLOPTIONS_H
