//===- KernelFiles.h - kernels as readable files ----------------*- C++ -*-===//
//
// What nsa-compile --save-kernels writes: each kernel at each level, in a
// folder that exists. An empty folder saves nothing.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_TARGET_KERNELFILES_H
#define NSA_LIB_TARGET_KERNELFILES_H

#include "mlir/IR/Operation.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include <map>

namespace nsa {

/// Writes FOLDER/NAME.EXTENSION, or nothing without a folder. Fails with the
/// path.
llvm::Error saveKernelFile(llvm::StringRef folder, llvm::StringRef name,
                           llvm::StringRef extension, llvm::StringRef text);

/// Writes each operation with a symbol among `kernels` as NAME.EXTENSION. Fails
/// with a diagnostic.
llvm::LogicalResult saveKernelIR(llvm::StringRef folder,
                                 llvm::ArrayRef<mlir::Operation *> kernels,
                                 llvm::StringRef extension);

/// The part of `module` that `kernel` needs, as text.
std::string printKernel(const llvm::Module &module, llvm::StringRef kernel);

/// PTX cut at its entries: kernel -> what precedes all entries, and the entry.
std::map<std::string, std::string> splitPTX(llvm::StringRef ptx);

/// What cuobjdump prints, cut by kernel: kernel -> its instructions.
std::map<std::string, std::string> splitSASS(llvm::StringRef listing);

} // namespace nsa

#endif // NSA_LIB_TARGET_KERNELFILES_H
