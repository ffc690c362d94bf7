//===- CrashGuard.h - fatal errors of LLVM as messages ----------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CPU_CRASHGUARD_H
#define NSA_LIB_TARGET_CPU_CRASHGUARD_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

namespace nsa {

/// Calls `function`. When LLVM gives up inside it (report_fatal_error, exit, a
/// signal), the call ends early and the reason is returned; what it had
/// allocated is lost. May be used from several threads at once.
llvm::Error runGuarded(llvm::function_ref<void()> function);

} // namespace nsa

#endif // NSA_LIB_TARGET_CPU_CRASHGUARD_H
