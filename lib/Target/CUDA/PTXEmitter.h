//===- PTXEmitter.h - LLVM IR to PTX ----------------------------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CUDA_PTXEMITTER_H
#define NSA_LIB_TARGET_CUDA_PTXEMITTER_H

#include "lib/Target/CUDA/CUDAChip.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include <string>

namespace nsa {

/// Optimises `module`, whose kernels have the calling convention of PTX
/// kernels, and emits it as PTX text for `chip`. Fails on what the code
/// generator rejects and on calls of undefined functions.
/// `onOptimized` sees the module before code generation; with it, the text
/// does not come from a cache. `warn` is told what is wrong with the cache.
llvm::Expected<std::string>
emitPTX(llvm::Module &module, const CUDAChip &chip,
        llvm::function_ref<void(const llvm::Module &)> onOptimized,
        llvm::function_ref<void(const std::string &)> warn);

} // namespace nsa

#endif // NSA_LIB_TARGET_CUDA_PTXEMITTER_H
