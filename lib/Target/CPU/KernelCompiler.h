//===- KernelCompiler.h - kernels to an archive of objects ------*- C++ -*-===//
//
// Kernels in the llvm dialect become LLVM IR, machine code, and an archive of
// relocatable ELF objects for x86-64, which the runtime links where it maps
// them. Each kernel is an object of its own: they are compiled side by side,
// the result does not depend on how many threads did it, and whatever goes
// wrong has a kernel's name.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_TARGET_CPU_KERNELCOMPILER_H
#define NSA_LIB_TARGET_CPU_KERNELCOMPILER_H

#include "lib/Target/CPU/CPUDescription.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"

namespace nsa {

/// Properties of a kernel's machine code.
struct KernelCode {
  /// The symbol that its object exports.
  std::string symbol;
  /// Bytes of machine code and constants.
  uint64_t codeBytes = 0;
  /// Bytes of stack that one call needs.
  uint64_t stackBytes = 0;
};

/// An archive and the kernels in it, in the order they were given.
struct CPUBinary {
  CPUDescription cpu;
  llvm::SmallVector<char, 0> image;
  std::vector<KernelCode> kernels;
};

/// Lets `registry` translate what kernels are made of to LLVM IR.
void registerKernelTranslations(mlir::DialectRegistry &registry);

/// Compiles the functions `kernels` of `module` (with whatever they refer to)
/// for `cpu` on up to `threads` threads. `module` is in the llvm dialect and
/// is left as it is. Fails with a diagnostic at the kernel concerned, for
/// example when it calls anything but memcpy, memmove and memset. With a folder
/// `saveTo`, writes each kernel there as NAME.llvm.mlir, NAME.ll and NAME.s.
mlir::FailureOr<CPUBinary> compileKernels(
    mlir::ModuleOp module, llvm::ArrayRef<mlir::LLVM::LLVMFuncOp> kernels,
    const CPUDescription &cpu, unsigned threads, llvm::StringRef saveTo = "");

} // namespace nsa

#endif // NSA_LIB_TARGET_CPU_KERNELCOMPILER_H
