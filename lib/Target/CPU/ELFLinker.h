//===- ELFLinker.h - objects to a shared object -----------------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CPU_ELFLINKER_H
#define NSA_LIB_TARGET_CPU_ELFLINKER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

namespace nsa {

/// Links relocatable ELF objects for x86-64 to one shared object. The result
/// depends on the objects and their order only. Thread-safe; calls run one
/// after the other because the linker keeps global state.
llvm::Expected<llvm::SmallVector<char, 0>>
linkSharedObject(llvm::ArrayRef<llvm::SmallVector<char, 0>> objects);

} // namespace nsa

#endif // NSA_LIB_TARGET_CPU_ELFLINKER_H
