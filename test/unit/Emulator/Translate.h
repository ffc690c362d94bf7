//===- Translate.h - LLVM and NVVM dialects to code -------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EMULATOR_TRANSLATE_H
#define NSA_TEST_UNIT_EMULATOR_TRANSLATE_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "test/unit/Emulator/Code.h"

namespace nsa::emulator {

/// Makes a CUDA kernel ready to run. Fails with a diagnostic at an operation
/// that the emulator does not know. The function must outlive the code.
mlir::FailureOr<Code> translate(mlir::LLVM::LLVMFuncOp function);

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_TRANSLATE_H
