//===- ObjectCache.h - code that was generated before -----------*- C++ -*-===//
//
// Where NSA_KERNEL_CACHE names a folder, the code of kernels is kept there and
// found again by what it is made of: their LLVM IR, the processor, the version
// of LLVM and the sources of our own code generators; of machine code of GPUs,
// the PTX, the options of ptxas and its version. The hash of all that is in the
// file, too. Compilers of one user that run at the same time may share
// the folder, to which no other user may write; of 2 GiB and a week, the oldest
// files are removed.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_TARGET_OBJECTCACHE_H
#define NSA_LIB_TARGET_OBJECTCACHE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include <string>

namespace nsa {

/// What `generate` makes of all that `writeInputs` writes: from the cache, or
/// by calling it. Fails where it fails, and if the folder cannot be written or
/// is not this user's alone. A file that is damaged, or of something else, is
/// written again, which `warn` is told.
llvm::Expected<std::string>
generateOnce(llvm::function_ref<void(llvm::raw_ostream &)> writeInputs,
             llvm::function_ref<llvm::Expected<std::string>()> generate,
             llvm::function_ref<void(const std::string &)> warn);

/// The same where `generate` makes code of `module` for `processor`, which
/// names all that the module does not say of the target.
llvm::Expected<std::string>
generateOnce(const llvm::Module &module, llvm::StringRef processor,
             llvm::function_ref<llvm::Expected<std::string>()> generate,
             llvm::function_ref<void(const std::string &)> warn);

} // namespace nsa

#endif // NSA_LIB_TARGET_OBJECTCACHE_H
