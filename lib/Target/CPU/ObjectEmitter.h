//===- ObjectEmitter.h - LLVM IR to a relocatable object --------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CPU_OBJECTEMITTER_H
#define NSA_LIB_TARGET_CPU_OBJECTEMITTER_H

#include "lib/Target/CPU/CPUDescription.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Module.h"

namespace nsa {

/// The object of one kernel.
struct KernelObject {
  llvm::SmallVector<char, 0> bytes;
  uint64_t codeBytes = 0;
  uint64_t stackBytes = 0;
  /// Readable LLVM IR and assembly; empty unless they are asked for.
  std::string ir, assembly;
  /// The error of the code in the cache.
  std::string warning;
};

/// Optimises `module`, whose only external function is `symbol`, and emits an
/// object for `cpu`. Fails on what the code generator rejects and on undefined
/// symbols that no machine is sure to have. `keepText`: also prints the
/// optimised IR and the assembly. Safe to call from several threads
/// for modules of different contexts.
llvm::Expected<KernelObject> emitObject(llvm::Module &module,
                                        llvm::StringRef symbol,
                                        const CPUDescription &cpu,
                                        bool keepText = false);

} // namespace nsa

#endif // NSA_LIB_TARGET_CPU_OBJECTEMITTER_H
