//===- Registration.h - what the compiler tools know ------------*- C++ -*-===//
//
// Every tool that reads or transforms IR registers the same dialects and
// passes through these two functions. Both list exactly what is used.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_COMPILER_REGISTRATION_H
#define NSA_COMPILER_REGISTRATION_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace nsa {

/// Adds the project's dialects, the upstream dialects that they lower to, and
/// the interfaces that translate the last of them to LLVM IR.
void registerDialects(mlir::DialectRegistry &registry);

/// Makes every pass and pipeline available by name. Calling it again changes
/// nothing.
void registerPasses();

} // namespace nsa

#endif // NSA_COMPILER_REGISTRATION_H
