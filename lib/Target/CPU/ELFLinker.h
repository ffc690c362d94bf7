//===- ELFLinker.h - objects to a shared object -----------------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CPU_ELFLINKER_H
#define NSA_LIB_TARGET_CPU_ELFLINKER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

namespace nsa {

/// Links relocatable ELF objects for x86-64 to one shared object: code and
/// constants that the exported symbols need, calls between them, and calls of
/// functions that no object defines, which the loader finds when it opens the
/// object. Fails where an object has what kernels do without: writable or
/// thread-local data, constructors, or relocations that are not relative to
/// where they lie. The result depends on the objects and their order only.
/// Thread-safe.
llvm::Expected<llvm::SmallVector<char, 0>>
linkSharedObject(llvm::ArrayRef<llvm::SmallVector<char, 0>> objects);

} // namespace nsa

#endif // NSA_LIB_TARGET_CPU_ELFLINKER_H
