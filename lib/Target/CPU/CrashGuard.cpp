//===- CrashGuard.cpp - fatal errors of LLVM as messages ------------------===//

#include "lib/Target/CPU/CrashGuard.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/ErrorHandling.h"
#include <mutex>
#include <string>

using namespace llvm;

/// Why the guarded call of this thread was left.
static thread_local std::string fatalMessage;

static void handleFatalError(void *, const char *reason, bool) {
  CrashRecoveryContext *context = CrashRecoveryContext::GetCurrent();
  if (!context)
    return;
  fatalMessage = reason;
  context->HandleExit(1);
}

namespace {
/// Recovery is a switch of the whole process; it is on while any thread is
/// inside a guarded call.
class RecoveryEnabled {
public:
  RecoveryEnabled() {
    std::lock_guard<std::mutex> lock(mutex);
    if (users++ > 0)
      return;
    CrashRecoveryContext::Enable();
    install_fatal_error_handler(handleFatalError);
  }
  ~RecoveryEnabled() {
    std::lock_guard<std::mutex> lock(mutex);
    if (--users > 0)
      return;
    remove_fatal_error_handler();
    CrashRecoveryContext::Disable();
  }

private:
  static inline std::mutex mutex;
  static inline unsigned users = 0;
};
} // namespace

Error nsa::runGuarded(function_ref<void()> function) {
  RecoveryEnabled enabled;
  fatalMessage.clear();
  CrashRecoveryContext context;
  if (context.RunSafely(function))
    return Error::success();
  if (!fatalMessage.empty())
    return createStringError(fatalMessage);
  return createStringError("LLVM failed with code " + Twine(context.RetCode));
}
