//===- OptTool.h - what nsa-opt does ----------------------------*- C++ -*-===//

#ifndef NSA_LIB_COMPILER_OPTTOOL_H
#define NSA_LIB_COMPILER_OPTTOOL_H

namespace nsa {

/// Runs passes on a file, as mlir-opt does, with the dialects and passes of
/// this project. Returns the exit code. Registers its options with LLVM: for
/// one call in a program that has no others.
int runOptTool(int argc, char **argv);

} // namespace nsa

#endif // NSA_LIB_COMPILER_OPTTOOL_H
