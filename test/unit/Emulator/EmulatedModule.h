//===- EmulatedModule.h - modules compiled for the emulator -----*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EMULATOR_EMULATEDMODULE_H
#define NSA_TEST_UNIT_EMULATOR_EMULATEDMODULE_H

#include "nsa/Compiler/Compiler.h"

namespace nsa::emulator {

/// `Binary.format` of kernels in the LLVM and NVVM dialects, as text.
constexpr char kEmulatedFormat[] = "nvvm-mlir";

/// Compiles a module as for a GPU up to the kernels in the LLVM and NVVM
/// dialects. If the environment variable NSA_EMULATOR_DUMP names a file, they
/// are written there; messages of the emulator give its lines.
Result<CompiledArtifact> compileForEmulator(const std::string &text,
                                            const CompilerOptions &options);

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_EMULATEDMODULE_H
