//===- Assembler.h - PTX to a cubin -----------------------------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CUDA_ASSEMBLER_H
#define NSA_LIB_TARGET_CUDA_ASSEMBLER_H

#include "lib/Target/CUDA/CUDAChip.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <string>

namespace nsa {

/// What ptxas says about a kernel.
struct KernelResources {
  uint64_t registers = 0;
  /// Bytes of local memory of a thread, and bytes of code that spill to it.
  uint64_t stackBytes = 0, spillStores = 0, spillLoads = 0;
  /// Whether ptxas has serialized wgmma (C7500 to C7599).
  bool isSerialised = false;
  /// Whether there is no code: registers that other limits leave do not do.
  bool hasFailed = false;
};

/// The result of ptxas.
struct Assembly {
  llvm::SmallVector<char, 0> cubin;
  llvm::StringMap<KernelResources> kernels;
  /// Warnings, one line each.
  std::vector<std::string> warnings;
};

/// Reads what `ptxas -v` prints.
void parseAssemblerLog(llvm::StringRef log, Assembly &assembly);

/// Fails if a kernel starts with another number of registers of a thread than
/// `expected` says, by its name: its threads would wait forever for registers
/// that no warpgroup releases, or release too many.
llvm::Error checkLaunchRegisters(const Assembly &assembly,
                                 const llvm::StringMap<uint64_t> &expected);

/// Runs the program `ptxas` on PTX text, unless the cache has what it makes of
/// it. Where the text has line information, so has the cubin. Fails with what
/// it printed. `warn` is told what is wrong with the cache.
llvm::Expected<Assembly>
assemble(llvm::StringRef ptxas, llvm::StringRef ptx, const CUDAChip &chip,
         unsigned threads, llvm::function_ref<void(const std::string &)> warn);

/// The version of the program `ptxas`; empty if it cannot be run.
std::string getAssemblerVersion(llvm::StringRef ptxas);

/// What the cuobjdump beside `ptxas` prints of the instructions of `cubin`;
/// empty if there is none.
llvm::Expected<std::string> disassemble(llvm::StringRef ptxas,
                                        llvm::ArrayRef<char> cubin);

} // namespace nsa

#endif // NSA_LIB_TARGET_CUDA_ASSEMBLER_H
